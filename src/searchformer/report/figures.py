"""All figures, in the order in which they appear: what they show, and who draws them.

In: `Results`. Out: `Chart`s, and a line for each figure that lacks its input.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from matplotlib import rc_context

from searchformer.report.charts import STYLE, Chart, MissingInputError
from searchformer.report.diagnostics import sequence_lengths, trace_validity, training_curves
from searchformer.report.examples import example_searches
from searchformer.report.lengths import box_plots, histograms, scatter
from searchformer.report.performance import pass_at_k, task_size, training_sequences
from searchformer.report.results import Results
from searchformer.report.rounds import bootstrap_rounds
from searchformer.report.tradeoff import accuracy_against_length

FIGURES: dict[str, Callable[[Results], Iterator[Chart]]] = {
    "optimal answers against search length": accuracy_against_length,
    "correct answers against training sequences": training_sequences,
    "performance against task size": task_size,
    "search length by bootstrapping round": bootstrap_rounds,
    "histograms of average-on-optimal length": histograms,
    "box plots of average-on-optimal length": box_plots,
    "A*'s length against the model's": scatter,
    "sequence lengths of data sets": sequence_lengths,
    "training curves": training_curves,
    "validity of traces": trace_validity,
    "pass@k": pass_at_k,
    "example searches": example_searches,
}


@dataclass(frozen=True, eq=False)
class Drawn:
    """Charts, and why others are missing."""

    charts: tuple[Chart, ...]
    left_out: tuple[str, ...]


def draw_all(results: Results) -> Drawn:
    """Every figure that the results allow."""
    charts: list[Chart] = []
    left_out = []
    with rc_context(STYLE):
        for title, draw in FIGURES.items():
            try:
                charts += draw(results)
            except MissingInputError as error:
                left_out.append(f"No figure of {title}: {error}")
    return Drawn(tuple(charts), tuple(left_out))
