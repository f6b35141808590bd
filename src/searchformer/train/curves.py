"""The curves of one run as a picture: losses, what they are above the floor by kind of token, accuracies."""

from pathlib import Path

from searchformer.files import replacing
from searchformer.train.evaluation import EXCESSES
from searchformer.train.log import Record, read_metrics

LOSSES = ("loss", "trace_loss", "plan_loss", "floor")
ACCURACIES = ("token_accuracy", "sequence_accuracy", "plan_accuracy", "exact_match")


def plot_curves(directory: Path) -> Path:
    """Draw `metrics.jsonl` of the run in `directory` into `curves.png` beside it."""
    from matplotlib.figure import Figure

    records = read_metrics(directory)
    figure = Figure(figsize=(8, 8), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True)
    _draw(above, [r for r in records if r["kind"] == "train"], ("loss",), prefix="train ")
    evaluations = [record for record in records if record["kind"] == "eval"]
    split = f"{evaluations[0].get('split', 'test')} " if evaluations else ""
    _draw(above, evaluations, LOSSES, prefix=split)
    _draw(middle, evaluations, EXCESSES, prefix="")
    _draw(below, evaluations, ACCURACIES, prefix=split)
    above.set(ylabel="loss (nats per token)", yscale="log")
    middle.set(ylabel="nats per token above A*'s")
    below.set(ylabel="accuracy", xlabel="step", ylim=(0, 1.02))
    for axes in (above, middle, below):
        if axes.lines:
            axes.legend(frameon=False)
    path = directory / "curves.png"
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return path


def _draw(axes: object, records: list[Record], names: tuple[str, ...], *, prefix: str) -> None:
    for name in names:
        points = [(record["step"], record[name]) for record in records if name in record]
        if points:
            axes.plot(*zip(*points, strict=True), label=prefix + name.replace("_", " "))  # type: ignore[attr-defined]
