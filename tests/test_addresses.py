"""Directories in an object store: moto's S3 server on loopback, and every command works on addresses.

`make test` sets the server up in an environment of its own, .venv-s3: it wants other versions of what we use.
"""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from command import invoke
from crash_generate import contents
from pyarrow import fs

from searchformer import addresses
from searchformer.addresses import address_of, read_copy, working_copy
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError

SERVER = Path(os.environ.get("SEARCHFORMER_MOTO") or Path(__file__).parent.parent / ".venv-s3" / "bin" / "moto_server")


@pytest.fixture(scope="module")
def service():
    """Address of a running S3 service with a bucket."""
    assert SERVER.exists(), f"{SERVER} is missing: run `make test`, which installs it"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(SERVER), "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 100
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def bucket(service, monkeypatch, tmp_path):
    """A new bucket, a new cache."""
    keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_ENDPOINT_URL": service}
    for name, value in {**keys, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(addresses.CACHE, str(tmp_path / "cache"))
    name = f"bucket-{abs(hash(str(tmp_path))) % 10**9}"
    fs.S3FileSystem(endpoint_override=service, allow_bucket_creation=True, region="us-east-1").create_dir(name)
    return f"s3://{name}"


def listed(address):
    store, root = fs.FileSystem.from_uri(address)
    found = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return {info.path[len(root) + 1 :] for info in found if info.type == fs.FileType.File}


def elsewhere(monkeypatch, tmp_path, name):
    """Another machine: nothing is cached."""
    monkeypatch.setenv(addresses.CACHE, str(tmp_path / name))


GENERATE = ("generate", "maze", "--width", 4, "--height", 4, "--test-fraction", 0.4)
TRAIN = ("--model", "dim=16,layers=1,heads=2,ffn=32", "--steps", 3, "--batch-size", 4, "--precision", "fp32")


def succeed(*words):
    result = invoke(*words)
    assert result.exception is None, result.exception
    return result


def test_every_stage_works_on_addresses(bucket, tmp_path, monkeypatch):
    data, run, answers = (f"{bucket}/{name}" for name in ("data", "deep/run", "answers"))
    succeed(*GENERATE, "--tasks", 60, "--out", data)
    succeed(*GENERATE, "--tasks", 60, "--out", tmp_path / "local")
    there = {name for name in listed(data) if not name.startswith(".")}
    assert there == {name for name in contents(tmp_path / "local") if not name.startswith(".")}
    elsewhere(monkeypatch, tmp_path, "second")
    assert "every digest verified" in succeed("inspect", data).stdout
    succeed("train", "--data", data, *TRAIN, "--eval-every", 0, "--out", run)
    assert {"model/model.safetensors", "model/config.json", "checkpoint/state.safetensors"} <= listed(run)
    elsewhere(monkeypatch, tmp_path, "third")
    asked = ("--tasks", 4, "--samples", 2, "--max-tokens", 30, "--workers", 1)
    succeed("rollout", "--model", run, "--data", data, *asked, "--out", answers)
    elsewhere(monkeypatch, tmp_path, "fourth")
    succeed("evaluate", answers)
    assert {"manifest.json", "metrics.json", "verdicts.parquet"} <= listed(answers)
    succeed("report", bucket, "--out", tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()


def test_the_manifest_is_sent_last_and_an_old_one_is_taken_away_first(bucket, monkeypatch):
    data, sent = f"{bucket}/data", []
    succeed(*GENERATE, "--tasks", 60, "--out", data)
    for action in ("_upload", "_delete"):
        whole = getattr(addresses._Place, action)

        def watched(place, name, action=action, whole=whole):
            sent.append((action, name, "manifest.json" in listed(data)))
            whole(place, name)

        monkeypatch.setattr(addresses._Place, action, watched)
    succeed(*GENERATE, "--tasks", 40, "--append", "--out", data)
    names = [(action, name) for action, name, _ in sent]
    assert names[-1] == ("_upload", "manifest.json")
    assert ("_delete", "manifest.json") in names
    first_upload = next(index for index, (action, _) in enumerate(names) if action == "_upload")
    assert not any(complete for _, _, complete in sent[first_upload:])
    assert Dataset(read_copy(Path(data)), verify=True).manifest.config["tasks"] == 100


def test_what_is_half_done_goes_on_on_another_machine(bucket, tmp_path, monkeypatch):
    address = f"{bucket}/data"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("searchformer.dataset.generate._finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            invoke(*GENERATE, "--tasks", 60, "--out", address)
    assert "manifest.json" not in listed(address)
    assert ".work/00000.npz" in listed(address)
    elsewhere(monkeypatch, tmp_path, "second")
    succeed(*GENERATE, "--tasks", 60, "--out", address)
    assert "manifest.json" in listed(address)
    assert not any(name.startswith(".work") for name in listed(address))


def test_a_file_that_was_damaged_on_the_way_is_found(bucket, tmp_path, monkeypatch):
    address = f"{bucket}/data"
    succeed(*GENERATE, "--tasks", 60, "--out", address)
    store, root = fs.FileSystem.from_uri(address)
    with store.open_input_stream(f"{root}/train-00000.parquet") as file:
        data = bytearray(file.read())
    data[len(data) // 2] ^= 1
    with store.open_output_stream(f"{root}/train-00000.parquet") as file:
        file.write(bytes(data))
    elsewhere(monkeypatch, tmp_path, "second")
    assert "train-00000.parquet is truncated or altered" in str(invoke("inspect", address).exception)


def test_an_address_that_cannot_be_reached_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv(addresses.CACHE, str(tmp_path))
    error = invoke("inspect", "nowhere://bucket/data").exception
    assert isinstance(error, SearchformerError)
    assert str(error).startswith("nowhere://bucket/data cannot be opened: ")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("file:///tmp/x", "file:///tmp/x"),
        ("runs/first", None),
        ("/tmp/a:b/c", None),
        ("C:/runs", None),
    ],
)
def test_addresses_are_told_from_paths_though_path_drops_a_slash(path, address):
    assert address_of(path) == address
    assert address_of(Path(path)) == address


def test_a_plain_path_is_used_as_it_is(tmp_path):
    assert read_copy(tmp_path) is tmp_path
    with working_copy(tmp_path / "out") as here:
        assert here == tmp_path / "out"
