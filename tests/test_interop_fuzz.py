"""Every reader of other people's files gets damaged input: it reads it or says in one line why not, and stays small.

A seeded thousand inputs each; SEARCHFORMER_FUZZ=100000 asks for more.
"""

import contextlib
import gzip
import io
import json
import os
import random
import resource
import signal
import tempfile
import warnings
from pathlib import Path

import bson
import numpy as np
import pytest
import torch
from test_interop_mazes import ALPHA, MAZE, MAZE_TASK, QUESTION, RIGHT, table
from test_interop_mongodump import DOCUMENT, SMALL, TOKENS, small_archive

from searchformer.domains import make_domain
from searchformer.domains.formats import read
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.interop.meta_checkpoint import (
    _checked_weights,
    _named_size,
    _plain,
    published_weights,
    read_checkpoint,
)
from searchformer.interop.mongodump import Archive, _vocabulary_in, dataset_names
from searchformer.interop.published import domain_of_dataset, parse_domain
from searchformer.interop.sequences import SequenceParser, task_ids
from searchformer.interop.tasks import read_tasks
from searchformer.interop.verifier import reward_parts
from searchformer.model import ModelConfig, Transformer
from searchformer.tokens.vocabulary import Vocabulary

INPUTS = int(os.environ.get("SEARCHFORMER_FUZZ", "1000"))
HANG_SECONDS = 60
MOST_MEGABYTES = 400
EXTREMES = [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\x01\0\0\0", b"99999999999999999999", b"\0", b"\n"]
TINY = ModelConfig(vocabulary=5, dim=4, layers=1, heads=1, ffn=4, positions=16)
MAZE3 = make_domain("maze", {"width": 3, "height": 3})
VOCABULARY = Vocabulary.of(TOKENS)
PARSER, JUDGE = SequenceParser(VOCABULARY), Judge(MAZE3)


def mutate(generator: random.Random, seeds: list[bytes]) -> bytes:
    """A valid input, damaged in one to four places."""
    data = bytearray(generator.choice(seeds))
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(data) + 1)
        width = generator.choice([1, 1, 1, 4, 16, 100])
        match generator.randrange(6):
            case 0:
                data[at : at + width] = generator.randbytes(width)
            case 1:
                del data[at : at + width]
            case 2:
                data[at:at] = generator.randbytes(width)
            case 3:
                data[at : at + 4] = generator.choice(EXTREMES)
            case 4:
                other = generator.choice(seeds)
                begin = generator.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + width * 8]
            case 5:
                data[at:] = b"" if generator.random() < 0.5 else data[at:] * 2
        if len(data) > 1 << 20:
            del data[1 << 20 :]
    return bytes(data)


# --- the readers: a path or bytes in


def checkpoint_seeds(place: Path) -> list[bytes]:
    weights = {name: torch.ones(each.shape) for name, each in Transformer(TINY, device="meta").state_dict().items()}
    config = {"encoder": "enc-s", "decoder": "dec-s", "_id": "x", "numbers": [1, 2.5, None]}
    torch.save({"step": 1, "config": config, "model": published_weights(weights, TINY)}, place / "seed.ckpt")
    return [(place / "seed.ckpt").read_bytes()]


def read_a_checkpoint(path: Path) -> None:
    found = read_checkpoint(path)
    _plain(found)
    with contextlib.suppress(SearchformerError):
        _named_size(path, found)
    _checked_weights(path, found["model"], TINY, "tiny")


def read_an_archive(path: Path) -> None:
    with Archive(path) as archive:
        dataset_names(archive.collections)
        for run in archive.runs(check=False):
            if run.collection == "vocabulary":
                _vocabulary_in(run, SMALL, archive)
                continue
            at = run.begin
            while at < run.end:
                rows, stopped = PARSER.parse(run.array, at, run.end)
                if stopped == at:
                    length = int.from_bytes(run.data[at : at + 4], "little")
                    rows, stopped = PARSER.parse_document(run.data[at : at + length]), at + length
                task_ids(MAZE3, VOCABULARY, rows)
                at = stopped


def read_a_task_file(path: Path) -> None:
    failed: list[SearchformerError] = []
    for _, record in read_tasks(str(path), skipped=[]):
        if isinstance(record, SearchformerError):
            one_line(record)
            failed.append(record)
            continue
        with contextlib.suppress(SearchformerError):
            domain = make_domain("sokoban" if "level" in record else "maze")
            problem = domain.encode(record)
            if len(problem) < 1000 and isinstance(record.get("answer"), str) and domain.name == "maze":
                JUDGE.judge_text(problem, record["answer"])
    if failed:
        raise failed[0]


def read_levels(path: Path) -> None:
    for level in read(path, skipped=[]):
        level.record()


def judge_an_answer(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    JUDGE.judge_text(MAZE3.encode(MAZE_TASK), text)
    reward_parts(text, MAZE_TASK, domain="maze")


def read_names(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        parse_domain(text)
    except SearchformerError:
        domain_of_dataset(text)


def seeds(name: str, place: Path) -> tuple[str, list[bytes], object]:
    """The suffix of a reader's files, valid inputs, and the reader."""
    archive = small_archive()
    answers = [
        "drru",
        "down, right",
        "(0, 0) -> (0, 1)",
        "create 0 0 c0 c2 close 0 0 c0 c2 plan 0 0",
        "<answer>u</answer>",
    ]
    records = [MAZE_TASK | {"answer": "drru"}, {"question": QUESTION, "answer": "6"}, {"q": MAZE, "a": RIGHT}]
    records += [{"level": ["#####", "#@$.#", "#####"]}, {"Prompt": ALPHA, "Response": "<|up|>"}]
    level = "Title: a\n#####\n#@$.#\n#####\n\n5#|#@$@#|5#\n"
    known = {
        "checkpoint": (".ckpt", checkpoint_seeds(place) if name == "checkpoint" else [], read_a_checkpoint),
        "archive": (".archive", [archive, small_archive(DOCUMENT | {"plan": []})], read_an_archive),
        "archive.gz": (".archive.gz", [gzip.compress(archive)], read_an_archive),
        "json lines": (".jsonl", ["\n".join(map(json.dumps, records)).encode()], read_a_task_file),
        "Maze-Hard": (".csv", [table((MAZE, RIGHT), (MAZE, "")).encode()], read_a_task_file),
        "AlphaMaze": (".txt", [f"{ALPHA}<|down|><|right|>\n{ALPHA}".encode()], read_a_task_file),
        "reasoning-gym": (".txt", [f"{QUESTION}\n{QUESTION}".encode()], read_a_task_file),
        "levels": (".xsb", [level.encode()], read_levels),
        "answers": (".txt", [answer.encode() for answer in answers], judge_an_answer),
        "names": (".txt", [SMALL.encode(), b"maze:10x10", b"sokoban.7-by-7-walls-2-boxes-2.with-box-40k"], read_names),
    }
    return known[name]


READERS = [
    "checkpoint",
    "archive",
    "archive.gz",
    "json lines",
    "Maze-Hard",
    "AlphaMaze",
    "reasoning-gym",
    "levels",
    "answers",
    "names",
]


def one_line(error: SearchformerError) -> None:
    assert "\n" not in str(error), str(error)
    assert 0 < len(str(error)) < 2000, str(error)


def too_slow(*_):
    raise AssertionError(f"an input took more than {HANG_SECONDS} seconds")


def megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.fixture
def memory(tmp_path):
    """A directory in memory, where there is such a thing: a disk would take most of the time."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as place:
        yield Path(place)


@pytest.mark.parametrize("name", READERS)
def test_damaged_input_is_read_or_refused_in_one_line(name, tmp_path, memory):
    suffix, valid, reader = seeds(name, tmp_path)
    path = memory / f"input{suffix}"
    for data in valid:
        path.write_bytes(data)
        reader(path)  # the valid ones are read
    before, generator, refused = megabytes(), random.Random(f"fuzz/{name}"), 0
    old = signal.signal(signal.SIGALRM, too_slow)
    try:
        for number in range(INPUTS):
            data = mutate(generator, valid)
            path.write_bytes(data)
            signal.alarm(HANG_SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch has opinions about damaged files
                    reader(path)
            except SearchformerError as error:
                one_line(error)
                refused += 1
            except Exception as error:
                (tmp_path / f"failed{suffix}").write_bytes(data)
                raise AssertionError(f"input {number}, kept in {tmp_path}: {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    assert megabytes() - before < MOST_MEGABYTES
    assert refused or name == "answers"  # the judge has a verdict for everything


def test_an_archive_that_promises_much_takes_little_memory(tmp_path):
    """A document's length is believed only when its bytes are there."""
    path, before = tmp_path / "x.archive", megabytes()
    head = small_archive()[:4] + bson.encode({"version": "0.1"})
    path.write_bytes(head + (16 << 20).to_bytes(4, "little") + b"\0" * 100)
    with pytest.raises(SearchformerError, match="ends in the middle of a document"), Archive(path):
        pass
    assert megabytes() - before < 50


def test_a_bomb_of_zeros_is_refused_at_once(tmp_path):
    """A gigabyte in a megabyte: the reader stops at the first wrong length."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb") as file:
        file.write(small_archive()[:4])
        for _ in range(64):
            file.write(np.zeros(1 << 20, dtype=np.uint8).tobytes())
    path, before = tmp_path / "x.archive.gz", megabytes()
    path.write_bytes(stream.getvalue())
    with pytest.raises(SearchformerError, match="found the length 0"), Archive(path):
        pass
    assert megabytes() - before < 50
