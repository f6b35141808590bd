"""`searchformer import KIND`: other people's checkpoints, data sets and tasks in."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from searchformer.commands.options import DomainName, Flat, Json, Settings
from searchformer.commands.tasks import report_left_out
from searchformer.dataset.options import SearchOptions

if TYPE_CHECKING:
    from searchformer.dataset.store import Manifest

NewDirectory = Annotated[Path, Parameter(help="Directory to write; it must not hold anything yet.")]
LANGUAGE = "Its tokens: maze:WxH, sokoban, or a vocabulary.json, data set or model that has them."


def meta_checkpoint(
    file: Annotated[Path, Parameter(help="A published .ckpt file.")],
    /,
    *,
    vocabulary: Annotated[str, Parameter(help=LANGUAGE)],
    out: NewDirectory,
    size: Annotated[str | None, Parameter(help="15M, 46M, 175M or 747M; what the file says if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Turn a published checkpoint into a model directory. No code in the file is run."""
    from searchformer.interop.meta_checkpoint import import_checkpoint
    from searchformer.interop.published import read_language

    trained = import_checkpoint(file, out, language=read_language(vocabulary), size=size)
    if as_json:
        print(json.dumps({"out": str(out), **trained}))
    else:
        print(f"{out}: size {trained['size']}, step {trained['step']}")


def mongodump(
    file: Annotated[Path, Parameter(help="An archive that `mongodump --archive` wrote, with or without --gzip.")],
    /,
    *,
    out: NewDirectory | None = None,
    name: Annotated[str | None, Parameter(help="Which data set; the only one if left out.")] = None,
    domain: Annotated[str | None, Parameter(help="maze:WxH or sokoban, if the name does not say.")] = None,
    list_: Annotated[bool, Parameter(name="--list", help="Print what the archive holds, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Read a data set from a published MongoDB archive; no server is needed.

    Split, vocabulary and ids are kept (the ids as the column published_id), and every collection's checksum is
    compared. The file is read as a stream, in memory that does not grow with it.
    """
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.errors import SearchformerError
    from searchformer.interop.mongodump import dataset_names, import_archive, list_archive
    from searchformer.interop.published import parse_domain

    if list_:
        found = list_archive(file, display=TerminalDisplay())
        names = dataset_names([each.name for each in found])
        if as_json:
            print(json.dumps({"datasets": names, "collections": [vars(each) for each in found]}))
            return
        for each in found:
            print(f"{each.name}: {each.documents:,} documents, {each.bytes:,} bytes")
        print(f"every checksum is right; data sets: {', '.join(names) or 'none'}")
        return
    if out is None:
        raise SearchformerError("--out DIR is missing; --list shows what the archive holds")
    given = parse_domain(domain) if domain else None
    manifest = import_archive(file, out, name=name, domain=given, display=TerminalDisplay())
    report_dataset(out, manifest, as_json=as_json)


def report_dataset(out: Path, manifest: "Manifest", *, as_json: bool) -> None:
    """Say what a data set holds."""
    counts = manifest.counts
    if as_json:
        print(json.dumps({"out": str(out), "counts": counts, "longest": manifest.longest}))
    else:
        print(f"{out}: {counts['train']:,} training and {counts['test']:,} test tasks")


def mongodb(
    uri: Annotated[str, Parameter(help="Address of the server: mongodb://HOST:PORT")],
    name: Annotated[str, Parameter(help="Name of the data set there.")],
    /,
    *,
    out: NewDirectory | None = None,
    database: Annotated[str, Parameter(help="Database of the server.")] = "tokenSeqDB",
    sequences: Annotated[int | None, Parameter(help="The first N training sequences by id; all if left out.")] = None,
    domain: Annotated[str | None, Parameter(help="maze:WxH or sokoban, if the name does not say.")] = None,
    statistics: Annotated[bool, Parameter(help="Print lengths, computed by the server; write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Read a data set from a MongoDB server; run the same command again to continue."""
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.errors import SearchformerError
    from searchformer.interop.mongodb import connected, import_mongodb, length_statistics
    from searchformer.interop.published import parse_domain

    if out is None and not statistics:
        raise SearchformerError("--out DIR is missing; --statistics shows what the server has")
    if sequences is not None and sequences < 1:
        raise SearchformerError(f"--sequences is at least 1; found {sequences}")
    with connected(uri, database=database) as there:
        if statistics:
            print(json.dumps(length_statistics(there, name)))
            return
        assert out is not None
        given = parse_domain(domain) if domain else None
        manifest = import_mongodb(there, name, out, sequences=sequences, domain=given, display=TerminalDisplay())
    report_dataset(out, manifest, as_json=as_json)


class TaskImportOptions(SearchOptions):
    """How tasks are searched, and where they go."""

    deterministic: bool = True
    """Break ties by the domain's fixed order instead of at random."""
    split: Literal["test", "train"] = "test"
    """The split that all tasks go to."""


def tasks(
    domain: DomainName,
    file: Annotated[str, Parameter(help="Anything that `searchformer trace` reads; - for stdin.")],
    /,
    *,
    out: NewDirectory,
    like: Annotated[Path | None, Parameter(help="A data set or model whose settings and tokens to take.")] = None,
    options: Annotated[TaskImportOptions, Flat] = TaskImportOptions(),
    as_json: Json = False,
    **settings: Settings,
) -> None:
    """Make a data set of the tasks in a file: A* searches them, so that models can be trained and scored on them.

    All tasks are of one size: --width and --height, or that of --like. Others, repeated and unsolvable ones are left
    out and counted.
    """
    from searchformer.commands.options import domain_settings
    from searchformer.dataset.store import MANIFEST
    from searchformer.domains import make_domain
    from searchformer.errors import SearchformerError
    from searchformer.interop.published import read_language
    from searchformer.interop.tasks import import_tasks, read_tasks
    from searchformer.pretrained import resolve_model
    from searchformer.search import Options

    if like and not like.is_file() and not (like / MANIFEST).exists():
        like = resolve_model(like)
    language = read_language(str(like)) if like else None
    if language and language.domain not in (None, domain):
        raise SearchformerError(f"{like} is of the domain {language.domain}; asked for is {domain}")
    made = make_domain(domain, (language.settings if language else {}) | domain_settings(domain, settings))
    skipped: list[Any] = []
    how = options.model_dump(include={"algorithm", "weight", "deterministic", "max_expansions"})
    manifest, left_out = import_tasks(
        read_tasks(file, skipped=skipped),
        out,
        made,
        vocabulary=language.vocabulary if language else None,
        split=options.split,
        options=Options(**how),
    )
    report_left_out([*map(str, skipped), *left_out])
    report_dataset(out, manifest, as_json=as_json)
