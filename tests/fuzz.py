"""Spoil valid inputs at random and hand them to every parser: each must accept them or say in one line what is wrong.

The test suite does some from a seed; `python tests/fuzz.py 1000000 SEED` does a million, shared among the parsers, with
memory bounded, and prints a line for each. Anything but a SearchformerError of one short line is a finding, and so is
an input that takes more processor time than HANG_SECONDS; it is printed with the parser's name.
"""

import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from conftest import GOLDEN

from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.domains import make_domain
from searchformer.domains.formats import read
from searchformer.domains.formats.xsb import levels_from_text
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.files import parse_json, write_json
from searchformer.model.config import make_config
from searchformer.model.storage import read_model_config
from searchformer.model.tensors import load_tensors, save_tensors
from searchformer.recipes.plan import stages_of
from searchformer.recipes.recipe import SHIPPED, apply_change, load_recipe
from searchformer.rollout import store
from searchformer.search import Searcher
from searchformer.tokens.grammar import parse_response, write_text
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.train.log import read_metrics

HANG_SECONDS = 30
"""Processor time, not the clock's: on a busy machine, an input may wait for minutes."""
LONGEST = 1000
"""Characters of a message, without the path of the file."""
PIECES = [
    b"0", b"-1", b"1e999", b"NaN", b"9" * 5000, b"99999999999999999999", b"1.5", b"null", b"true", b'""', b"[]", b"{}",
    b"[" * 2000, b"{\"a\":" * 2000, b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\0", b"\n", b"\r\n", b"\t",
    b" ", b"../x", b"/etc/passwd", b"#", b"@", b"$", b".", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"</", b"=", b'"',
    b"'", b"plan", b"create", b"close", b"c0", b"eos", b"bos", b"start", b"wall", b"(", b")", b"5(", b"-", b"|",
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A parser, and valid inputs for it."""

    seeds: list[bytes]
    parse: Callable[[bytes], Any]
    weight: int = 1
    """Share of the inputs."""


def mutate(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """The data with a few random changes."""
    text = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        kind, at = chance.randrange(7), chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice((1, 1, 4, 20, 200)))
        if kind == 0 and at < len(text):
            text[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del text[at:end]
        elif kind == 2:
            text[at:at] = text[at:end] * chance.choice((1, 1, 2, 50))
        elif kind == 3:
            text[at:end] = chance.choice(PIECES)
        elif kind == 4:
            text[at:at] = chance.choice(PIECES)
        elif kind == 5:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            text[at:end] = other[start : start + chance.randrange(100)]
        else:
            del text[at:]
    return bytes(text)


def targets(directory: Path) -> dict[str, Target]:
    """All parsers; files are written into the directory."""
    maze, sokoban = make_domain("maze", {"width": 4, "height": 4}), make_domain("sokoban", {"width": 6, "height": 6})
    generate(GenerateOptions(domain="maze", settings={"width": 4, "height": 4}, tasks=30), directory / "data")
    vocabulary = Dataset(directory / "data").vocabulary
    record = {"width": 4, "height": 4, "start": [0, 0], "goal": [3, 3], "walls": [[1, 0], [1, 1]]}
    level = {"rows": ["######", "#@ $.#", "#    #", "#    #", "#    #", "######"]}
    problem = maze.encode(record)
    prompt, trace, plan = write_text(maze, problem, Searcher(maze).search(problem))
    judge = Judge(maze)
    model = directory / "model"
    model.mkdir()
    shape = make_config("1M", vocabulary=len(vocabulary)).stored()
    write_json(model / "config.json", {"shape": shape, "vocabulary_digest": vocabulary.digest, "trained": {}})
    vocabulary.save(model)
    save_tensors(
        model / "model.safetensors", {"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2)}, {"step": "3"}
    )
    config = {"domain": "maze", "settings": {"width": 4, "height": 4}, "split": "test", "tasks": 1, "samples": 1}
    rollouts = directory / "rollouts"
    rollouts.mkdir()
    write_json(rollouts / "config.json", config | {"model": {"trained": {}}, "deterministic": False})
    write_json(rollouts / "manifest.json", {"answers": 0, "shards": [{"file": "rollouts-0.parquet", "digest": "00"}]})
    metrics = directory / "run"
    metrics.mkdir()
    lines = "".join(json.dumps({"step": step, "kind": "train", "loss": 0.5}) + "\n" for step in range(4))
    unsealed = json.dumps({"tokens": list(vocabulary.tokens), "digest": vocabulary.digest}).encode()

    def at(path: Path, use: Callable[[], Any]) -> Callable[[bytes], Any]:
        def parse(data: bytes) -> Any:
            path.write_bytes(data)
            return use()

        return parse

    def task(domain: Any) -> Callable[[bytes], Any]:
        return lambda data: domain.encode(parse_json(data, where="task"))

    def words(data: bytes) -> list[str]:
        return data.decode("utf-8", "replace").split()

    def recipe() -> None:
        stages_of(load_recipe(str(directory / "recipe.toml")))

    def change(data: bytes) -> None:
        apply_change({"train": [{"steps": 1}], "data": {"a": {}}}, data.decode("utf-8", "replace"))

    def read_rollouts() -> None:
        store.read_config(rollouts)
        store.shard_files(rollouts)

    golden = {name: (GOLDEN / name).read_bytes() for name in ("microban.txt", "arena.map", "arena.map.scen")}
    (directory / "arena.map").write_bytes(golden["arena.map"])
    slc = b'<?xml version="1.0"?><SokobanLevels><Title>t</Title><LevelCollection><Level Id="1" Width="5" Height="3">'
    slc += b"<L>#####</L><L>#@$.#</L><L>#####</L></Level></LevelCollection></SokobanLevels>"
    small = golden["microban.txt"][:3000]
    manifest = (directory / "data" / "manifest.json").read_bytes()
    plain = json.dumps({k: v for k, v in json.loads(manifest).items() if k != "content_digest"}).encode()
    config_seeds = [(model / "config.json").read_bytes(), json.dumps({"shape": shape, "trained": {}}).encode()]
    rollout_seeds = [(rollouts / "config.json").read_bytes(), json.dumps(config | {"model": {}}).encode()]
    answer, changes = f"{trace} {plan}".encode(), [b"train.steps=2", b"train[0].steps=[1,2]", b"data.a.settings={w=3}"]

    def text(parse: Callable[[str], Any], errors: str = "replace") -> Callable[[bytes], Any]:
        return lambda data: parse(data.decode("utf-8", errors))

    def reading(name: str, **cells: Any) -> Callable[[bytes], Any]:
        return at(directory / name, lambda: read(directory / name, **cells))

    def judged(answer: str) -> None:
        judge.judge_text(problem, answer)

    def opened() -> None:
        Dataset(directory / "data", verify=True)

    def weights() -> None:
        load_tensors(model / "model.safetensors", repair="")

    return {
        "levels as text": Target([small, b"5#|#@$.#|5#"], text(levels_from_text, "surrogateescape"), 4),
        "levels as .slc": Target([slc], reading("a.slc"), 2),
        "maps": Target([golden["arena.map"][:2000]], reading("b.map", start=(1, 1), goal=(2, 2)), 2),
        "scenarios": Target([golden["arena.map.scen"][:600]], reading("c.map.scen")),
        "tasks of maze": Target([json.dumps(record).encode(), b'{"prompt": "start 0 0 goal 3 3"}'], task(maze), 8),
        "tasks of sokoban": Target([json.dumps(level).encode()], task(sokoban), 8),
        "prompts": Target([prompt.encode()], lambda data: maze.parse_prompt(words(data)), 8),
        "answers": Target([answer], lambda data: parse_response(maze, vocabulary, words(data)), 8),
        "answers judged": Target([answer], text(judged), 4),
        "recipes": Target([(SHIPPED / "quickstart.toml").read_bytes()], at(directory / "recipe.toml", recipe)),
        "changes of recipes": Target(changes, change, 8),
        "manifests": Target([manifest, plain], at(directory / "data" / "manifest.json", opened), 2),
        "vocabularies": Target([unsealed], at(directory / "vocabulary.json", lambda: Vocabulary.load(directory)), 4),
        "models": Target(config_seeds, at(model / "config.json", lambda: read_model_config(model)), 4),
        "weights": Target([(model / "model.safetensors").read_bytes()], at(model / "model.safetensors", weights), 2),
        "rollouts": Target(rollout_seeds, at(rollouts / "config.json", read_rollouts), 2),
        "manifests of rollouts": Target(
            [(rollouts / "manifest.json").read_bytes(), b'{"answers": 0, "shards": [{"file": "a", "digest": "00"}]}'],
            at(rollouts / "manifest.json", read_rollouts),
            2,
        ),
        "curves": Target([lines.encode()], at(metrics / "metrics.jsonl", lambda: read_metrics(metrics)), 2),
    }


class Hang(BaseException):
    """An input takes too long; no parser catches it by mistake."""


def _hang(*_: object) -> None:
    raise Hang


def attempt(name: str, target: Target, data: bytes, directory: Path) -> str | None:
    """What is wrong with how the parser took the data; None if nothing is."""
    before = signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    try:
        target.parse(data)
    except SearchformerError as error:
        message = str(error).replace(str(directory), "")
        return f"{name}: a message of {len(message)} characters" if len(message) > LONGEST or "\n" in message else None
    except Hang:
        return f"{name}: more than {HANG_SECONDS} s"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return None


def fuzz(
    directory: Path, *, inputs: int, seed: int, names: list[str] | None = None, say: Callable[[str], None] | None = None
) -> tuple[dict[str, int], list[str]]:
    """Inputs by parser, and findings: one of each kind, with the input. A line about each parser goes to `say`."""
    known = targets(directory)
    known = {name: target for name, target in known.items() if not names or name in names}
    total, counts, findings = sum(target.weight for target in known.values()), {}, {}
    for name, target in known.items():
        chance = random.Random(f"{name} {seed}")
        counts[name] = -(-inputs * target.weight // total)
        others = [data for other in known.values() for data in other.seeds]
        began = time.process_time()
        for _ in range(counts[name]):
            data = mutate(chance.choice(target.seeds), chance, others)
            wrong = attempt(name, target, data, directory)
            if wrong is not None:
                findings.setdefault(wrong[:60], f"{wrong}; input {data[:300]!r}")
        if say:
            say(f"{counts[name]:>9,} {name}, {time.process_time() - began:.1f} s")
    return counts, list(findings.values())


if __name__ == "__main__":
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    began = time.process_time()
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        counts, findings = fuzz(
            Path(name), inputs=inputs, seed=seed, names=sys.argv[3:], say=lambda line: print(line, flush=True)
        )
    print(
        f"{sum(counts.values()):,} inputs, {len(findings)} findings, {time.process_time() - began:.0f} s, seed {seed}"
    )
    print("\n".join(findings))
    sys.exit(bool(findings))
