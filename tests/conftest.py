"""Fixtures that tests share: every registered domain in small, tasks drawn from it, and golden files.

A domain that is registered later is covered without a new line: it comes with its default settings.
"""

import gzip
import json
import os
import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchformer.domains import Domain, domain_names, make_domain
from searchformer.records import Trace
from searchformer.search.compiled import bind
from searchformer.seeding import new_stream

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests share the cores, and so do the processes they start
GOLDEN = Path(__file__).parent / "golden"
SMALL: dict[str, list[dict[str, Any]]] = {
    "maze": [{"width": n, "height": n} for n in (4, 5, 6)]
    + [{"width": 6, "height": 3}, {"width": 6, "height": 5, "smallest": 3}],
    "sokoban": [
        {"width": 5, "height": 5, "walls": 1, "boxes": 1},
        {"width": 6, "height": 5, "walls": 2, "boxes": 1},
        {"width": 6, "height": 5, "walls": 2, "boxes": 2, "tokens_format": "full"},
    ],
    "tiles": [
        {"width": 2, "height": 2, "slides": 20},
        {"width": 3, "height": 2, "slides": 12},
        {"width": 3, "height": 3, "slides": 10},
    ],
}
VARIANTS = [(name, settings) for name in domain_names() for settings in SMALL.get(name, [{}])]


def _label(variant: tuple[str, dict[str, Any]]) -> str:
    return "-".join([variant[0], *map(str, variant[1].values())])


@pytest.fixture
def crash_seed() -> int:
    """Decides when runs are killed: another seed every time, printed where a test fails; CRASH_SEED replays one."""
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbelow(1 << 32))
    print(f"to replay: CRASH_SEED={seed}")
    return seed


@pytest.fixture(params=VARIANTS, ids=_label)
def domain(request) -> Domain:
    """A registered domain with small settings."""
    return make_domain(*request.param)


@pytest.fixture(scope="session")
def every_domain() -> list[Domain]:
    """All registered domains with all their small settings."""
    return [make_domain(*variant) for variant in VARIANTS]


@pytest.fixture(params=domain_names())
def smallest(request) -> Domain:
    """Every registered domain once, with its smallest settings."""
    return make_domain(request.param, SMALL.get(request.param, [{}])[0])


@pytest.fixture(scope="session")
def draw_problems() -> Callable[..., Iterator[np.ndarray]]:
    """Draw tasks of a domain by its own rules, uncompiled; they need not be solvable."""

    def draw(domain: Domain, tasks: int, *, seed: int = 0) -> Iterator[np.ndarray]:
        rules, settings = bind(domain.rules), domain.sampling()
        drawn = 0
        for index in count():
            stream, problem = new_stream(seed, "tests", index), np.zeros(domain.problem_size(), dtype=np.int32)
            if rules["sample_layout"](settings, stream, problem) and rules["sample_task"](settings, stream, problem):
                yield problem
                drawn += 1
            if drawn == tasks:
                return

    return draw


@pytest.fixture(scope="session")
def write() -> Callable[..., dict[str, str]]:
    """The tokens of a task and of a search of it, written in the obvious way."""

    def tokens(domain: Domain, problem: np.ndarray, rule: str, *arguments: Any) -> list[str]:
        codes = np.zeros(domain.prompt_room(problem) + domain.state_room(problem), dtype=np.int32)
        length = bind(domain.rules)[rule](problem, *arguments, codes)
        return [domain.token_text(code) for code in codes[:length].tolist()]

    def write(domain: Domain, problem: np.ndarray, found: Trace) -> dict[str, str]:
        trace, plan = [], []
        for kind, node, cost, estimate in zip(found.kinds, found.nodes, found.costs, found.estimates, strict=True):
            state = tokens(domain, problem, "write_state", found.states[node])
            trace += ["close" if kind else "create", *state, f"c{cost}", f"c{estimate}"]
        for state in found.plan:
            plan += ["plan", *tokens(domain, problem, "write_plan", state)]
        prompt = tokens(domain, problem, "write_prompt")
        return {part: " ".join(text) for part, text in (("prompt", prompt), ("trace", trace), ("plan", plan))}

    return write


@pytest.fixture(scope="session")
def golden() -> Callable[[str], list[dict[str, Any]]]:
    """The records of a golden file of JSON lines."""

    def read(name: str) -> list[dict[str, Any]]:
        with gzip.open(GOLDEN / name, "rt") as lines:
            return [json.loads(line) for line in lines]

    return read
