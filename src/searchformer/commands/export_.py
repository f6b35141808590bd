"""`searchformer export KIND`: models, data sets and searches for other people's tools."""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from searchformer.commands.options import DomainName, Json

NewFile = Annotated[Path, Parameter(help="File to write.")]
Model = Annotated[Path, Parameter(help="A model directory, a run that has made one, or the name of a packaged model.")]


def meta_checkpoint(model: Model, /, *, out: NewFile, as_json: Json = False) -> None:
    """Write a model of one of the paper's sizes in the layout of the published checkpoints."""
    from searchformer.interop.meta_checkpoint import export_checkpoint
    from searchformer.pretrained import resolve_model

    export_checkpoint(resolve_model(model), out)
    size = out.stat().st_size
    print(json.dumps({"out": str(out), "bytes": size}) if as_json else f"{out}: {size:,} bytes")


def hub(
    directory: Annotated[Path, Parameter(help="A data set, a model, a training run, or a packaged model's name.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="Directory to write; it must not hold anything yet.")],
    text: Annotated[bool, Parameter(help="Write tokens as text instead of ids; for data sets.")] = False,
    push: Annotated[str | None, Parameter(help="Also upload to this repository of the Hub, as OWNER/NAME.")] = None,
    private: Annotated[bool, Parameter(help="Make the repository private, if it is new.")] = False,
    as_json: Json = False,
) -> None:
    """Write a model or data set with its card, for the Hugging Face Hub.

    `datasets.load_dataset(DIR)` reads a data set written this way, `searchformer.load(DIR)` a model.
    """
    from searchformer.dataset.store import MANIFEST, Dataset
    from searchformer.errors import SearchformerError
    from searchformer.extras import require
    from searchformer.interop.models import load

    pushed = None
    interop = require("huggingface_hub", extra="hub") and require("searchformer.interop.hub", extra="hub")
    if (directory / MANIFEST).exists():
        dataset = Dataset(directory, verify=True)
        if push:
            pushed = interop.push_dataset(dataset, push, out, text=text, private=private)
        else:
            interop.export_dataset(dataset, out, text=text)
    elif text:
        raise SearchformerError(f"--text is for data sets; {directory} holds none")
    else:
        model = interop.as_hub_model(load(directory))
        interop.export_model(model, out)
        if push:
            pushed = model.push_to_hub(push, private=private)
    if as_json:
        print(json.dumps({"out": str(out), "card": str(out / interop.CARD), "pushed": pushed and str(pushed)}))
        return
    if pushed:
        print(pushed)
    print(f"{out}: with its card in {interop.CARD}")


def mongodb(
    uri: Annotated[str, Parameter(help="Address of the server: mongodb://HOST:PORT")],
    directory: Annotated[Path, Parameter(help="A data set.")],
    /,
    *,
    name: Annotated[str, Parameter(help="Its name there, such as maze.10-by-10-deterministic.simple")],
    database: Annotated[str, Parameter(help="Database of the server.")] = "tokenSeqDB",
    as_json: Json = False,
) -> None:
    """Send a data set to a MongoDB server, in the published layout; run the same command again to continue."""
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.dataset.store import Dataset
    from searchformer.interop.mongodb import connected, export_mongodb

    dataset = Dataset(directory, verify=True)
    with connected(uri, database=database) as there:
        sent = export_mongodb(there, dataset, name, display=TerminalDisplay())
    there_now = dataset.rows("train") + dataset.rows("test")
    if as_json:
        print(json.dumps({"name": name, "sent": sent, "documents": there_now}))
    else:
        print(f"{name}: {sent:,} documents sent, {there_now:,} are there")


def posthoc(
    domain: DomainName,
    file: Annotated[str, Parameter(help="Tasks, with a model's answer or without; - for stdin.")],
    /,
    *,
    out: NewFile,
    level: Annotated[int, Parameter(help="Which task of the file, from 1.")] = 1,
    model: Annotated[
        Path | None,
        Parameter(help="Export this model's search: a model directory, a run that has made one, or a packaged model."),
    ] = None,
    seed: Annotated[int, Parameter(help="Decides A*'s ties, or the model's answer.")] = 0,
    grid_map: Annotated[Path | None, Parameter(name="--map", help="Also write the maze's map, to draw it on.")] = None,
    as_json: Json = False,
) -> None:
    """Write a search for Posthoc, the path-finding visualiser.

    It is the model's if --model is given, else the one in the task's "answer" if that holds a search, else A*'s.
    """
    from searchformer.errors import SearchformerError
    from searchformer.interop.posthoc import write_map, write_posthoc
    from searchformer.interop.tasks import nth_task
    from searchformer.search import Searcher
    from searchformer.solve import make_task
    from searchformer.tokens.grammar import write_text

    record = nth_task(file, level)
    task = make_task(record, name=domain)
    if grid_map and domain != "maze":
        raise SearchformerError(f"--map is for mazes; this task is of {domain}")
    tokens = str(record.get("answer", "")).split()
    if model:
        from searchformer.interop.models import load

        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            tokens = load(model).sample([record], seed=seed)[0][0].split()
        for note in notes:
            print(f"searchformer: {note.message}", file=sys.stderr)
    elif "create" not in tokens:
        _, trace, plan = write_text(task.domain, task.problem, Searcher(task.domain).search(task.problem, seed=seed))
        tokens = f"{trace} {plan}".split()
    events = write_posthoc(task.domain, task.problem, tokens, out)
    if grid_map:
        write_map(task.domain, task.problem, grid_map)
    print(json.dumps({"out": str(out), "events": events}) if as_json else f"{out}: {events:,} events")
