"""Live MongoDB: the same tests over a real connection, in process, and against a real server where one is named.

`nx-27017` speaks MongoDB's wire protocol and keeps its data in SQLite (see wire_server.py); `mongomock` answers in this
process. The variable SEARCHFORMER_TEST_MONGODB names a real server, on which a database of its own is made and dropped.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import mongomock_ng as mongomock
import pytest
from command import invoke

from searchformer.dataset.shards import ROWS_PER_SHARD
from searchformer.dataset.store import PARTS, Dataset
from searchformer.errors import SearchformerError
from searchformer.interop import mongodb
from searchformer.interop.mongodb import connected, export_mongodb, import_mongodb, length_statistics
from searchformer.interop.mongodump import import_archive

GOLDEN = Path(__file__).parent / "golden" / "tokenSeqDB-maze10.archive.gz"
NAME = "maze.10-by-10-deterministic.simple"
OTHER = "maze.4-by-4-nondeterministic.simple"
REAL = os.environ.get("SEARCHFORMER_TEST_MONGODB")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def wire_server(tmp_path_factory):
    """A process that speaks the wire protocol; its address."""
    port, place = free_port(), tmp_path_factory.mktemp("server")
    server = Path(__file__).with_name("wire_server.py")
    options = ["--db", "memory", "--log-file", place / "log", "--pid-file", place / "pid"]
    command = [sys.executable, server, "--host", "127.0.0.1", "--port", port, *options]
    process = subprocess.Popen([*map(str, command)], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield f"mongodb://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(params=["wire", "mock", *(["real"] if REAL else [])])
def database(request):
    """An empty database."""
    name = f"searchformer_{secrets.token_hex(4)}"
    if request.param == "mock":
        yield mongomock.MongoClient()[name]
        return
    uri = REAL if request.param == "real" else request.getfixturevalue("wire_server")
    with connected(uri, database=name) as found:
        yield found
        if request.param == "real":
            found.client.drop_database(name)


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("published") / "data"
    import_archive(GOLDEN, out)
    return Dataset(out)


def contents(dataset: Dataset, split: str) -> dict[int, tuple]:
    rows = dataset.records(split)
    return {row["published_id"]: (row["task_id"], *(tuple(row[part]) for part in PARTS)) for row in rows}


def test_a_data_set_goes_to_the_server_and_comes_back(database, published, tmp_path):
    assert export_mongodb(database, published, NAME) == 20
    manifest = import_mongodb(database, NAME, tmp_path / "back")
    back = Dataset(tmp_path / "back", verify=True)
    assert manifest.counts == {"train": 14, "test": 6}
    assert back.vocabulary == published.vocabulary
    for split in ("train", "test"):
        assert contents(back, split) == contents(published, split)
        ids = [row["published_id"] for row in back.records(split)]
        assert ids == sorted(ids)
    assert import_mongodb(database, NAME, tmp_path / "back") == manifest  # complete: nothing to do


def test_documents_are_in_the_published_layout(database, published):
    export_mongodb(database, published, NAME)
    document = database[f"{NAME}.seq.train"].find_one()
    assert set(document) == {"_id", "prompt", "reasoning", "plan"}
    assert document["prompt"][0] == "start"
    lengths = database[f"{NAME}.meta.train"].find_one({"_id": document["_id"]})
    assert lengths["reasoning_len"] == len(document["reasoning"])
    assert database[f"{NAME}.log"].count_documents({}) == 20
    assert "bos" not in database["vocabulary"].find_one({"_id": NAME})["vocabulary"]


def test_an_interrupted_export_continues(database, published, monkeypatch):
    monkeypatch.setattr(mongodb, "DOCUMENTS", 4)
    send, sent = mongodb._send, []

    def cut(*arguments):
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(send(*arguments))
        return sent[-1]

    monkeypatch.setattr(mongodb, "_send", cut)
    with pytest.raises(KeyboardInterrupt):
        export_mongodb(database, published, NAME)
    monkeypatch.setattr(mongodb, "_send", send)
    assert database[f"{NAME}.seq.train"].count_documents({}) == 8
    assert export_mongodb(database, published, NAME) == 12
    assert export_mongodb(database, published, NAME) == 0


def test_an_interrupted_import_continues(database, published, tmp_path, monkeypatch):
    export_mongodb(database, published, NAME)
    for module in ("searchformer.interop.mongodb", "searchformer.interop.sequences"):
        monkeypatch.setattr(f"{module}.ROWS_PER_SHARD", 5)
    write, written = mongodb.DatasetWriter.write_shard, []

    def cut(self, split, rows):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(split)
        write(self, split, rows)

    monkeypatch.setattr(mongodb.DatasetWriter, "write_shard", cut)
    with pytest.raises(KeyboardInterrupt):
        import_mongodb(database, NAME, tmp_path / "back")
    monkeypatch.setattr(mongodb.DatasetWriter, "write_shard", write)
    with pytest.raises(SearchformerError, match="with other options"):
        import_mongodb(database, NAME, tmp_path / "back", sequences=3)
    import_mongodb(database, NAME, tmp_path / "back")
    back = Dataset(tmp_path / "back", verify=True)
    assert [shard.rows for shard in back.shards("train")] == [5, 5, 4]
    assert contents(back, "train") == contents(published, "train")
    assert ROWS_PER_SHARD == 8192


def test_the_server_sorts_and_slices(database, published, tmp_path):
    export_mongodb(database, published, NAME)
    import_mongodb(database, NAME, tmp_path / "some", sequences=5)
    found = [row["published_id"] for row in Dataset(tmp_path / "some").records("train")]
    assert found == sorted(contents(published, "train"))[:5]
    assert Dataset(tmp_path / "some").rows("test") == 6


def test_the_server_computes_statistics_of_lengths(database, published):
    export_mongodb(database, published, NAME)
    found = length_statistics(database, NAME)["train"]
    lengths = published.lengths("train")
    assert found["tasks"] == 14
    for field, part in (("prompt", "prompt"), ("reasoning", "trace"), ("plan", "plan")):
        known = lengths[part]
        assert [found[f"{field}_{kind}"] for kind in ("min", "max")] == [known.min(), known.max()]
        assert found[f"{field}_mean"] == pytest.approx(known.mean())


def test_our_own_data_sets_get_ids_of_their_own(database, tmp_path):
    invoke("generate", "maze", "--width", 4, "--height", 4, "--tasks", 30, "--out", tmp_path / "data")
    own = Dataset(tmp_path / "data")
    assert export_mongodb(database, own, OTHER) == 30
    import_mongodb(database, OTHER, tmp_path / "back")
    for split in ("train", "test"):
        back = {row["task_id"]: row["trace"] for row in Dataset(tmp_path / "back").records(split)}
        assert back == {row["task_id"]: row["trace"] for row in own.records(split)}


def test_what_the_server_does_not_have_is_said(database, published, tmp_path):
    with pytest.raises(SearchformerError, match=r"the server has no data set 'maze.10-by-10-d.*; it has: none"):
        import_mongodb(database, NAME, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(SearchformerError, match=r"does not say which tasks these are: .*; choose such a --name"):
        export_mongodb(database, published, "mine")
    export_mongodb(database, published, NAME)
    database["vocabulary"].insert_one({"_id": OTHER, "vocabulary": ["other"]})
    with pytest.raises(SearchformerError, match="with another vocabulary"):
        export_mongodb(database, published, OTHER)
    database[f"{NAME}.seq.test"].insert_one({"_id": 1, "prompt": "no list"})
    with pytest.raises(SearchformerError, match="has 7 documents, the data set 6 tasks"):
        export_mongodb(database, published, NAME)
    with pytest.raises(SearchformerError, match="document 1: expected prompt, a list of tokens"):
        import_mongodb(database, NAME, tmp_path / "y")


def test_a_directory_with_something_in_it_is_left_alone(database, published, tmp_path):
    export_mongodb(database, published, NAME)
    (tmp_path / "note").write_text("mine")
    with pytest.raises(SearchformerError, match="is not empty"):
        import_mongodb(database, NAME, tmp_path)


def test_the_commands_work_over_a_connection(wire_server, published, tmp_path):
    base = ("--database", "commands")
    result = invoke("export", "mongodb", wire_server, published.directory, "--name", NAME, *base)
    assert (result.exception, result.stdout) == (None, f"{NAME}: 20 documents sent, 20 are there\n")
    result = invoke("import", "mongodb", wire_server, NAME, *base, "--statistics")
    assert json.loads(result.stdout)["test"]["tasks"] == 6
    result = invoke("import", "mongodb", wire_server, NAME, *base, "--out", tmp_path / "o")
    assert (result.exception, result.stdout) == (None, f"{tmp_path / 'o'}: 14 training and 6 test tasks\n")
    assert "--out DIR is missing" in str(invoke("import", "mongodb", wire_server, NAME).exception)


def test_no_server_is_one_line_without_the_password(monkeypatch, tmp_path):
    monkeypatch.setattr(mongodb, "TIMEOUT_SECONDS", 0.2)
    address = f"mongodb://me:secret@127.0.0.1:{free_port()}"
    result = invoke("import", "mongodb", address, NAME, "--out", tmp_path / "o")
    assert str(result.exception).startswith("MongoDB: ")
    assert "secret" not in str(result.exception)
    assert str(invoke("import", "mongodb", "nonsense", NAME, "--out", tmp_path / "o").exception).startswith("MongoDB: ")
