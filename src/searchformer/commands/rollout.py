"""`searchformer rollout`: a model and a data set in, a directory of answers out."""

import json
from typing import TYPE_CHECKING, Annotated

from searchformer.commands.options import Flat, Json
from searchformer.engines.options import EngineOptions, make_engine
from searchformer.rollout.options import RolloutOptions

if TYPE_CHECKING:
    from pathlib import Path


def run(
    *,
    options: Annotated[RolloutOptions, Flat],
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
) -> None:
    """Sample many answers per task with a trained model.

    --data is a data set, or a file of tasks: anything that `searchformer trace` reads, in the size of the model. If it
    is interrupted, run the same command again to continue.
    """
    from searchformer.addresses import at_hand
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.pretrained import resolve_model
    from searchformer.rollout.dispatch import roll_out

    with at_hand(options, reads=("model", "data"), writes=("out",)) as here:
        here = here.model_copy(update={"model": resolve_model(here.model)})
        if here.data.is_file():
            here = here.model_copy(update={"data": _dataset_of(here)})
        summary = roll_out(here, display=TerminalDisplay(), engine=make_engine(where))
    if as_json:
        print(json.dumps(summary))
    else:
        state = "complete" if summary["complete"] else "waiting for other ranks"
        print(
            f"{options.out}: {summary['answers']:,} answers ({summary['answers_before']:,} were there), "
            f"{summary['tokens']:,} tokens, {summary['tokens_per_second']:,.0f} tokens/s, "
            f"{summary['peak_memory_gb']:.2f} GB; {state}"
        )


def _dataset_of(options: RolloutOptions) -> "Path":
    """A data set of the tasks in a file, kept beside the answers; made only once."""
    from searchformer.commands.tasks import report_left_out
    from searchformer.dataset.store import Dataset, file_digest
    from searchformer.domains import make_domain
    from searchformer.domains.formats import FormatError
    from searchformer.errors import SearchformerError
    from searchformer.files import make_directory, require_same
    from searchformer.interop.published import read_language
    from searchformer.interop.tasks import import_tasks, read_tasks

    directory, source = options.out / "tasks", {"source": {"digest": file_digest(options.data)}}
    if directory.exists():
        require_same(Dataset(directory).manifest.config, source, where=options.out, what="rollouts")
        return directory
    language = read_language(str(options.model))
    if language.domain is None:
        raise SearchformerError(f"{options.model} does not say which domain it is for; give --data a data set")
    make_directory(options.out)
    skipped: list[FormatError] = []
    found = read_tasks(str(options.data), skipped=skipped)
    domain = make_domain(language.domain, language.settings)
    _, left_out = import_tasks(
        found, directory, domain, vocabulary=language.vocabulary, split=options.split, config=source
    )
    report_left_out([*map(str, skipped), *left_out])
    return directory
