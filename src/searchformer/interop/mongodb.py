"""Data sets in a running MongoDB server, in the published layout: read from there, and written to there.

In: an address and a data set's name. Out: a data set of ours, or documents in the collections `NAME.seq.train` and so
on. Both go in bulk and can be interrupted: the same call continues. Sorting, slicing to N sequences and statistics of
lengths are aggregation pipelines, which the server runs. Needs the extra `mongodb`.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from searchformer.dataset.shards import ROWS_PER_SHARD
from searchformer.dataset.store import MANIFEST, SPLITS, Dataset, Manifest
from searchformer.display import Display, Silent, Update
from searchformer.domains import Domain
from searchformer.errors import SearchformerError
from searchformer.extras import require
from searchformer.files import locked, read_json, require_same, write_json
from searchformer.interop.mongodump import read_vocabulary
from searchformer.interop.published import domain_of_dataset
from searchformer.interop.sequences import FIELDS, PUBLISHED_ID, DatasetWriter, SequenceParser
from searchformer.tokens.vocabulary import Vocabulary

DATABASE = "tokenSeqDB"
DOCUMENTS = 500
"""Documents that are sent at a time."""
CONFIG = ".import.json"
"""What an unfinished import was asked for; removed at its end."""
TIMEOUT_SECONDS = 10
Database = Any
"""pymongo's, or what behaves like it."""


@contextlib.contextmanager
def connected(uri: str, *, database: str = DATABASE) -> Iterator[Database]:
    """A database of the server at `uri`; whatever goes wrong with it is one line, without the password in it."""
    pymongo = require("pymongo", extra="mongodb")
    try:
        client = pymongo.MongoClient(uri, serverSelectionTimeoutMS=1000 * TIMEOUT_SECONDS)
        with client:
            yield client[database]
    except (pymongo.errors.PyMongoError, ValueError) as error:
        raise SearchformerError(f"MongoDB: {' '.join(str(error).split())[:200]}") from None


# --- what the server computes


def slice_pipeline(after: int | None, count: int) -> list[dict[str, Any]]:
    """The next `count` documents by id, after the id `after`."""
    match = [{"$match": {"_id": {"$gt": after}}}] if after is not None else []
    return [*match, {"$sort": {"_id": 1}}, {"$limit": count}]


def statistics_pipeline() -> list[dict[str, Any]]:
    """Number of tasks, and least, mean and greatest length of each part, of a collection `NAME.meta.SPLIT`."""
    kinds = {"min": "$min", "mean": "$avg", "max": "$max"}
    parts = {f"{field}_{kind}": {operator: f"${field}_len"} for field in FIELDS for kind, operator in kinds.items()}
    return [{"$group": {"_id": None, "tasks": {"$sum": 1}, **parts}}]


def length_statistics(database: Database, name: str) -> dict[str, dict[str, float]]:
    """Statistics of each split's lengths, computed by the server."""
    found = {}
    for split in SPLITS:
        groups = list(database[f"{name}.meta.{split}"].aggregate(statistics_pipeline()))
        found[split] = {key: value for key, value in groups[0].items() if key != "_id"} if groups else {"tasks": 0}
    return found


# --- in


def import_mongodb(
    database: Database,
    name: str,
    out: Path,
    *,
    sequences: int | None = None,
    domain: Domain | None = None,
    display: Display | None = None,
) -> Manifest:
    """Write the data set `name` to `out`: all of it, or the first `sequences` of the training split by id."""
    published = {"published": {"name": name, "sequences": sequences}}
    if (out / MANIFEST).exists():
        require_same(Dataset(out).manifest.config, published, where=out, what="a data set")
        return Dataset(out).manifest
    deterministic = False
    if domain is None:
        domain, deterministic = domain_of_dataset(name)
    document = database["vocabulary"].find_one({"_id": name})
    if document is None:
        known = ", ".join(str(each["_id"]) for each in database["vocabulary"].find({}, {"_id": 1})) or "none"
        raise SearchformerError(f"the server has no data set {name!r}; it has: {known}")
    vocabulary = read_vocabulary(document, SearchformerError)
    config = {"deterministic": deterministic, "algorithm": "astar", "weight": 1.0, **published}
    if out.exists() and not (out / CONFIG).exists() and any(path.name != ".lock" for path in out.iterdir()):
        raise SearchformerError(f"{out} is not empty; choose another directory")
    with locked(out, doing="importing"), (display or Silent()).bar("import", unit="tasks") as update:
        asked = {"config": config, "domain": domain.model_dump(), "vocabulary": vocabulary.digest}
        if (out / CONFIG).exists():
            require_same(read_json(out / CONFIG, what="import"), asked, where=out, what="an import")
        write_json(out / CONFIG, asked)
        writer = DatasetWriter(out, domain, vocabulary)
        for split in SPLITS:
            most = sequences if split == "train" else None
            _import_split(database[f"{name}.seq.{split}"], writer, split, most, update)
        manifest = writer.finish(config)
        (out / CONFIG).unlink()
    return manifest


def _import_split(collection: Any, writer: DatasetWriter, split: str, most: int | None, update: Update) -> None:
    """Write what is missing of a split, a shard at a time: a shard that is on disk is whole."""
    parser, total = SequenceParser(writer.vocabulary), collection.estimated_document_count()
    total = min(total, most) if most is not None else total
    last = None
    while path := writer.existing(split):
        ids = pq.read_table(path, columns=[PUBLISHED_ID])[PUBLISHED_ID].to_numpy()
        last = int(ids[-1]) if len(ids) else last
        writer.keep(split, path, len(ids))
    while (most is None or writer.rows[split] < most) and writer.is_full(split):
        count = min(ROWS_PER_SHARD, most - writer.rows[split]) if most is not None else ROWS_PER_SHARD
        found = collection.aggregate(slice_pipeline(last, count))
        rows = [parser.from_record(document) for document in found]
        if not rows:
            break
        writer.write_shard(split, rows)
        last = int(rows[-1].published_ids[0])
        update(writer.rows[split], total, split)


# --- out


def export_mongodb(database: Database, dataset: Dataset, name: str, *, display: Display | None = None) -> int:
    """Write a data set as `name`; documents that are there already are left alone. Returns how many were sent."""
    domain_of_dataset(name, advice="choose such a --name")  # a name that nobody could import again is refused
    _export_vocabulary(database, dataset.vocabulary, name)
    sent, total = 0, sum(dataset.rows(split) for split in SPLITS)
    with (display or Silent()).bar("export", unit="tasks") as update:
        done = 0
        for split in SPLITS:
            for batch in _batches(dataset, split):
                sent += _send(database, name, split, batch, dataset.vocabulary)
                done += len(batch)
                update(done, total, split)
            found = database[f"{name}.seq.{split}"].count_documents({})
            if found != dataset.rows(split):
                raise SearchformerError(
                    f"{name}.seq.{split} has {found:,} documents, the data set {dataset.rows(split):,} tasks: "
                    "it holds a task twice, or the collection held other documents; choose another name"
                )
    return sent


def _export_vocabulary(database: Database, vocabulary: Vocabulary, name: str) -> None:
    there = database["vocabulary"].find_one({"_id": name})
    tokens = [token for token in vocabulary.tokens if token not in ("bos", "eos")]
    if there is None:
        database["vocabulary"].insert_one({"_id": name, "vocabulary": tokens})
    elif sorted(there.get("vocabulary", [])) != sorted(tokens):
        raise SearchformerError(f"the server has a data set {name!r} with another vocabulary; choose another name")


def _batches(dataset: Dataset, split: str) -> Iterator[list[dict[str, Any]]]:
    for batch in dataset.batches(split):
        rows = batch.to_pylist()
        for first in range(0, len(rows), DOCUMENTS):
            yield rows[first : first + DOCUMENTS]


def _send(database: Database, name: str, split: str, rows: list[dict[str, Any]], vocabulary: Vocabulary) -> int:
    """Insert what the server does not have of these rows; returns how many sequences that were."""
    lengths, states, sequences = {}, {}, {}
    for row in rows:
        identity = document_id(row)
        lengths[identity] = {f"{field}_len": row[f"{part}_length"] for field, part in FIELDS.items()}
        states[identity] = {"state": "complete"}
        sequences[identity] = {field: vocabulary.decode(row[part]) for field, part in FIELDS.items()}
    _insert_missing(database[f"{name}.meta.{split}"], lengths)
    _insert_missing(database[f"{name}.log"], states)
    return _insert_missing(database[f"{name}.seq.{split}"], sequences)


def _insert_missing(collection: Any, documents: dict[int, dict[str, Any]]) -> int:
    """Insert the documents whose ids the collection does not have; returns how many."""
    int64 = require("bson", extra="mongodb").Int64
    known = collection.find({"_id": {"$in": [*map(int64, documents)]}}, {"_id": 1})
    there = {document["_id"] for document in known}
    missing = [{"_id": int64(key), **document} for key, document in documents.items() if key not in there]
    if missing:
        collection.insert_many(missing, ordered=False)
    return len(missing)


def document_id(row: dict[str, Any]) -> int:
    """The document's id: the one it was published with, else the first 8 bytes of its task's id."""
    if row.get(PUBLISHED_ID) is not None:
        return int(row[PUBLISHED_ID])
    return int(np.int64(np.uint64(int(row["task_id"][:16], 16))))
