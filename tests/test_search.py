"""The compiled search: golden traces, its readable twin, optimal plans, uniform ties, budgets, memory, a warm start."""

import json
import os
import subprocess
import sys
from collections import Counter, deque
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

from searchformer.domains import make_domain
from searchformer.domains.formats import read_levels
from searchformer.errors import SearchformerError
from searchformer.records import Step
from searchformer.search import BudgetError, Options, Sampler, Searcher, kernel, reference, searcher
from searchformer.search.compiled import _fingerprint, bind
from searchformer.search.ordering import ALGORITHMS, weights
from searchformer.search.world import World, cut_steps
from searchformer.seeding import reseed, stream_key
from searchformer.tokens.vocabulary import Vocabulary

GOLDEN = Path(__file__).parent / "golden"
HOWS = [(algorithm, deterministic) for algorithm in ALGORITHMS for deterministic in (True, False)]
TASKS = 720


def options(algorithm, deterministic, **limits):
    weight = 1.5 if algorithm == "weighted" else 1.0
    return Options(algorithm=algorithm, weight=weight, deterministic=deterministic, **limits)


def assert_same(one, other):
    """Two traces are equal in every field, event by event."""
    for first, second in zip(astuple(one), astuple(other), strict=True):
        assert np.array_equal(first, second)


def plain(domain):
    """The same domain with rules that run uncompiled."""

    class Plain(type(domain)):
        compiled: ClassVar[bool] = False

    return Plain(**domain.model_dump())


def shortest(domain, problem):
    """States on a shortest plan, by breadth-first search without heuristic; 0 if there is none."""
    world = reference.World(domain, problem, uses_heuristic=False)
    depth, waiting = {world.start(): 1}, deque([world.start()])
    while waiting:
        state = waiting.popleft()
        if world.is_goal(state):
            return depth[state]
        for child in world.successors(state):
            if child not in depth:
                depth[child] = depth[state] + 1
                waiting.append(child)
    return 0


def uneven(counts):
    """How far counts lie from an even share, in standard deviations of the chi-square statistic."""
    expected, freedom = sum(counts) / len(counts), len(counts) - 1
    return (sum((count - expected) ** 2 / expected for count in counts) - freedom) / np.sqrt(2 * freedom)


# Golden data


def test_all_golden_mazes_match_token_for_token(golden, write):
    records = golden("maze-deterministic.jsonl.gz")
    maze = make_domain("maze")
    astar = Searcher(maze, Options(deterministic=True))
    for record in records:
        problem = maze.encode(record)
        found = astar.search(problem)
        assert found.solvable == record["solvable"]
        if found.solvable:
            assert write(maze, problem, found) == {part: record[part] for part in ("prompt", "trace", "plan")}
    assert (len(records), sum(not record["solvable"] for record in records)) == (182, 2)


def test_all_golden_sokoban_levels_match_in_solvability_length_and_prompt(golden, write):
    records = golden("sokoban.jsonl.gz")
    sokoban = make_domain("sokoban")
    for deterministic in (True, False):
        astar = Searcher(sokoban, Options(deterministic=deterministic))
        for record in records:
            problem = sokoban.encode(record)
            found = astar.search(problem, record=False)
            assert found.solvable == record["solvable"]
            if found.solvable:
                assert len(found.plan) - 1 == record["optimal_moves"]
                assert write(sokoban, problem, found)["prompt"] == record["prompt"]
    assert (len(records), sum(record["solvable"] for record in records)) == (69, 60)


def test_microban_levels_round_trip_and_the_small_ones_are_solved_in_the_known_number_of_moves():
    sokoban = make_domain("sokoban", {"tokens_format": "full"})
    astar = Searcher(sokoban)
    levels = read_levels(GOLDEN / "microban.txt")
    problems = [sokoban.encode(level.record()) for level in levels]
    assert [sokoban.decode(problem)["level"] for problem in problems] == [list(level.rows) for level in levels]
    assert [len(astar.search(problem).plan) - 1 for problem in problems[:5]] == [33, 16, 41, 23, 25]


# The readable twin


def test_kernel_and_reference_agree_event_by_event(domain, draw_problems):
    searchers = [Searcher(domain, options(*how)) for how in HOWS]
    ends = Counter()
    for index, problem in enumerate(draw_problems(domain, TASKS)):
        how, fast = HOWS[index % len(HOWS)], searchers[index % len(HOWS)]
        chosen = fast.options
        slow = reference.search(
            domain,
            problem,
            deterministic=chosen.deterministic,
            seed=index,
            algorithm=chosen.algorithm,
            weight=chosen.weight,
        )
        found = fast.search(problem, seed=index)
        assert_same(found, slow)
        ends[how, found.solvable] += 1
    assert sum(ends.values()) == TASKS
    assert all(ends[how, True] for how in HOWS)


def test_plans_are_legal_and_optimal_and_foreseen(domain, draw_problems):
    rules = bind(domain.rules)
    hows = [options(algorithm, deterministic) for algorithm, deterministic in HOWS]
    searchers = [Searcher(domain, how) for how in hows]
    for index, problem in enumerate(draw_problems(domain, 64, seed=1)):
        least = shortest(domain, problem)
        assert rules["foresee"](problem) in (-1, least)
        world = reference.World(domain, problem, uses_heuristic=True)
        for fast in searchers:
            plan = [tuple(state) for state in fast.search(problem, seed=index).plan.tolist()]
            assert bool(plan) == bool(least)
            if plan:
                assert plan[0] == world.start()
                assert world.is_goal(plan[-1])
                assert all(after in world.successors(before) for before, after in pairwise(plan))
                assert len(plan) == least or fast.options.algorithm in ("weighted", "greedy")
                assert len(plan) <= 1.5 * (least - 1) + 1 or fast.options.algorithm == "greedy"


def test_unrecorded_searches_find_the_same_plan(domain, draw_problems):
    astar = Searcher(domain)
    for index, problem in enumerate(draw_problems(domain, 50, seed=2)):
        full, bare = astar.search(problem, seed=index), astar.search(problem, seed=index, record=False)
        assert (full.created, full.closed, full.plan.tolist()) == (bare.created, bare.closed, bare.plan.tolist())
        assert len(bare.kinds) == 0
        assert (full.created, full.closed) == (int((~full.kinds).sum()), int(full.kinds.sum()))


def test_the_seed_decides_a_non_deterministic_search_and_nothing_else_does(smallest, draw_problems):
    problems = list(draw_problems(smallest, 60, seed=3))
    astar, fixed = Searcher(smallest), Searcher(smallest, Options(deterministic=True))
    differ = 0
    for problem in problems:
        first, again, other = (astar.search(problem, seed=seed) for seed in (1, 1, 2))
        assert_same(first, again)
        assert_same(fixed.search(problem, seed=1), fixed.search(problem, seed=2))
        differ += not np.array_equal(first.nodes, other.nodes) or not np.array_equal(first.states, other.states)
    assert differ > 5


def test_uncompiled_rules_give_the_same_searches(domain, draw_problems):
    slow_domain = plain(domain)
    for how in (Options(), Options(deterministic=True)):
        fast, slow = Searcher(domain, how), Searcher(slow_domain, how)
        for index, problem in enumerate(draw_problems(domain, 12, seed=4)):
            assert_same(slow.search(problem, seed=index), fast.search(problem, seed=index))


def test_plain_python_counts_beyond_what_a_byte_holds():
    maze = make_domain("maze", {"width": 20, "height": 20})
    record = {"width": 20, "height": 20, "start": [0, 0], "goal": [19, 19], "walls": []}
    assert bind(maze.rules)["foresee"](maze.encode(record)) == 39


# Ties


def test_each_open_node_of_least_f_is_closed_with_equal_chance(draw_problems):
    """By age among the nodes tied: a random key fixed at insertion would favour the younger ones."""
    maze = make_domain("maze", {"width": 7, "height": 7})
    astar = Searcher(maze)
    picks = {size: [0] * size for size in range(2, 6)}
    for seed, problem in enumerate(draw_problems(maze, 3000, seed=5)):
        found = astar.search(problem, seed=seed)
        open_nodes = {}  # node -> f, by age
        for kind, node, cost, estimate in zip(found.kinds, found.nodes, found.costs, found.estimates, strict=True):
            f = open_nodes.pop(node, None)
            if not kind:
                open_nodes[node] = cost + estimate
                continue
            tied = sum(1 for other in open_nodes.values() if other == f) + 1
            assert min(open_nodes.values(), default=f) >= f
            if tied in picks:
                older = [other for other, value in open_nodes.items() if value == f and other < node]
                picks[tied][len(older)] += 1
    assert all(sum(counts) > 500 for counts in picks.values()), picks
    assert all(uneven(counts) < 4 for counts in picks.values()), picks


def test_deterministic_mazes_close_ties_by_row_then_column():
    maze = make_domain("maze", {"width": 3, "height": 3})
    open_room = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 2], "walls": []}
    found = Searcher(maze, Options(deterministic=True)).search(maze.encode(open_room))
    closed = [(int(cell) >> 16, int(cell) & 0xFFFF) for cell in found.states[found.nodes[found.kinds]].ravel()]
    assert closed == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]


# Sampling


def sampled(domain, how, *, tasks, **numbers):
    """Everything that a `Sampler` gives: rows of (problem, prompt, trace, plan), and the rejected by reason."""
    vocabulary = Vocabulary.of(domain.token_list())
    rows, sampler = [], Sampler(Searcher(domain, how), vocabulary.encode(domain.token_list()), **numbers)
    while len(rows) < tasks:
        batch = sampler.draw(tasks - len(rows))
        parts = [np.split(batch.parts[name], batch.ends[name][1:-1]) for name in ("prompt", "trace", "plan")]
        texts = [[" ".join(vocabulary.decode(ids)) for ids in part] for part in parts]
        rows += zip(batch.problems.tolist(), *texts, strict=True)
    return rows, sampler.rejected()


def expected(domain, how, write, monkeypatch, *, seed, part, tasks, pairs, max_trace_tokens):
    """The same, drawn and searched one after the other by readable code."""
    rules, settings, key = bind(domain.rules), domain.sampling(), stream_key(seed, "sample", part)
    stream, rows, rejected = np.zeros(2, dtype=np.int64), [], dict.fromkeys(kernel.REASONS, 0)
    monkeypatch.setattr(reference, "new_stream", lambda *_: stream)  # a search goes on where drawing the task ended
    candidate = 0
    while True:
        problem = np.zeros(domain.problem_size(), dtype=np.int32)
        reseed(stream, key, candidate, 0)
        rules["sample_layout"](settings, stream, problem)
        for pair in range(pairs):
            if len(rows) == tasks:
                return rows, rejected
            reseed(stream, key, candidate, 1 + pair)
            if not rules["sample_task"](settings, stream, problem):
                rejected["no room"] += 1
                continue
            found = reference.search(domain, problem, deterministic=how.deterministic)
            text = write(domain, problem, found)
            if not found.solvable:
                rejected["unsolvable"] += 1
            elif not rules["accepts"](problem, len(found.plan)):
                rejected["plan too short"] += 1
            elif max(found.costs.max(), found.estimates.max()) >= domain.costs:
                rejected["cost beyond vocabulary"] += 1
            elif len(text["trace"].split()) > max_trace_tokens:
                rejected["trace too long"] += 1
            else:
                rows.append((problem.tolist(), *text.values()))
        candidate += 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_sampled_rows_are_those_of_readable_code(smallest, write, monkeypatch, deterministic):
    how = Options(deterministic=deterministic)
    numbers = {"seed": 3, "part": 2, "tasks": 60, "pairs": 3, "max_trace_tokens": 80}
    rows, rejected = sampled(smallest, how, **numbers)
    assert (rows, rejected) == expected(smallest, how, write, monkeypatch, **numbers)
    assert len(rows) == 60


def test_uncompiled_sampling_gives_the_same_rows(smallest):
    numbers = {"seed": 0, "part": 0, "tasks": 15, "pairs": 2, "max_trace_tokens": 500}
    assert sampled(plain(smallest), Options(), **numbers) == sampled(smallest, Options(), **numbers)


def test_the_full_token_format_is_sampled_like_the_papers():
    small = {"width": 6, "height": 5, "walls": 2, "boxes": 1}
    numbers = {"seed": 0, "part": 0, "tasks": 8, "pairs": 1, "max_trace_tokens": 100_000}
    paper, _ = sampled(make_domain("sokoban", small), Options(), **numbers)
    full, _ = sampled(plain(make_domain("sokoban", small | {"tokens_format": "full"})), Options(), **numbers)
    assert [row[0] for row in full] == [row[0] for row in paper]
    assert [row[3] for row in full] == [row[3] for row in paper]
    assert all(len(row[2]) > len(other[2]) for row, other in zip(full, paper, strict=True))


def test_reasons_to_reject_are_counted():
    maze = make_domain("maze", {"width": 6, "height": 6, "max_cost": 9})
    numbers = {"seed": 0, "part": 0, "tasks": 300, "pairs": 4, "max_trace_tokens": 150}
    rows, rejected = sampled(maze, Options(max_expansions=18), **numbers)
    assert len(rows) == 300
    assert {reason for reason, times in rejected.items() if times} >= set(kernel.REASONS) - {"no room"}


def test_memory_that_starts_tiny_grows_without_changing_a_result(smallest, monkeypatch):
    numbers = {"seed": 1, "part": 0, "tasks": 120, "pairs": 2, "max_trace_tokens": 100_000}
    roomy = sampled(smallest, Options(), **numbers)
    make_output, start = searcher._output, Searcher.__init__

    def tiny_output(size, kind, *, tokens):
        return make_output(size, kind, tokens=16 if tokens == 1 << 20 else tokens)

    def tiny_start(self, *arguments):
        start(self, *arguments)
        self._nodes, self._events, self._buckets = 2, 2, 2

    monkeypatch.setattr(searcher, "_output", tiny_output)
    monkeypatch.setattr(Searcher, "__init__", tiny_start)
    assert sampled(smallest, Options(), **numbers) == roomy


def test_rows_do_not_depend_on_how_many_are_asked_for(smallest):
    numbers = {"seed": 1, "part": 0, "pairs": 2, "max_trace_tokens": 100_000}
    few, _ = sampled(smallest, Options(), tasks=30, **numbers)
    many, _ = sampled(smallest, Options(), tasks=90, **numbers)
    other, _ = sampled(smallest, Options(), tasks=30, **numbers | {"part": 1})
    assert few == many[:30]
    assert few != other


# Budgets


def test_a_search_over_its_expansions_says_so_and_the_next_one_works(domain, draw_problems):
    stingy, astar = (Searcher(domain, Options(max_expansions=most, deterministic=True)) for most in (3, 10_000))
    refused = 0
    for problem in draw_problems(domain, 30, seed=6):
        needed = astar.search(problem)
        if needed.closed > 3 or (needed.closed == 3 and not needed.solvable):
            with pytest.raises(BudgetError, match=r"gave up after closing 3 nodes; allow more with --max-expansions"):
                stingy.search(problem)
            refused += 1
        else:
            assert_same(stingy.search(problem), needed)
    assert 0 < refused < 30


def test_a_search_over_its_memory_says_so_and_the_next_one_works():
    puzzle = make_domain("tiles", {"width": 4, "height": 4})
    hard = puzzle.encode({"prompt": "tiles 15 14 8 12 10 11 9 13 2 6 5 1 3 7 4 0"})
    easy = puzzle.encode({"prompt": "tiles 1 2 3 4 5 6 7 8 9 10 11 12 13 14 0 15"})
    astar = Searcher(puzzle, Options(max_gigabytes=0.01))
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"more than the 0\.01 GB it may use; allow more with --max-gigabytes"):
            astar.search(hard)
        assert len(astar.search(easy).plan) == 2


def test_memory_refused_to_larger_states_is_not_replaced_by_the_smaller_ones():
    sokoban = make_domain("sokoban", {"tokens_format": "full"})
    one = sokoban.encode({"level": ["######", "#@$ .#", "######"]})
    many = sokoban.encode({"level": ["#" * 9, "#@$.$.$.#", "#" + " " * 7 + "#", "#" * 9]})
    astar = Searcher(sokoban, Options(max_gigabytes=1e-9))
    for problem in (one, many, many):
        with pytest.raises(BudgetError):
            astar.search(problem)
    astar = Searcher(sokoban)
    found = astar.search(one)
    astar.options = Options(max_gigabytes=1e-9)
    for _ in range(2):
        with pytest.raises(BudgetError):
            astar.search(many)
    astar.options = Options()
    assert_same(astar.search(one), found)
    assert astar.search(many).states.shape[1] == 4


# Algorithms


@pytest.mark.parametrize(
    ("algorithm", "weight", "f"),
    [("astar", 1.0, (1, 1)), ("dijkstra", 1.0, (1, 0)), ("greedy", 1.0, (0, 1)), ("weighted", 2.5, (2, 5))],
)
def test_algorithms_differ_in_the_weights_of_g_and_h(algorithm, weight, f):
    assert weights(algorithm, weight) == f


@pytest.mark.parametrize(
    ("algorithm", "weight", "message"),
    [
        ("bfs", 1.0, "an algorithm is one of astar, dijkstra, weighted, greedy; found 'bfs'"),
        ("astar", 2.0, "--weight goes with --algorithm weighted; found astar"),
        ("weighted", 0.5, "a weight is a number from 1 to 100; found 0.5"),
        ("weighted", float("nan"), "a weight is a number from 1 to 100; found nan"),
        ("weighted", 101.0, "a weight is a number from 1 to 100; found 101.0"),
    ],
)
def test_bad_algorithms_and_weights_are_refused(algorithm, weight, message):
    with pytest.raises(SearchformerError) as caught:
        Searcher(make_domain("maze"), Options(algorithm=algorithm, weight=weight))
    assert str(caught.value) == message


# Warm start

PLUGIN = '''
"""Count down a line of numbers, by one or by STEP."""
from typing import ClassVar
import numpy as np
from searchformer.domains import Domain, Group, Rules, Shapes
from searchformer.seeding import below

STEP = 3

def successors(problem, state, children):
    children[0, 0] = state[0] - 1
    children[1, 0] = max(0, state[0] - STEP)
    return 2

def heuristic(problem, state):
    return (state[0] + 99) // 100

def write(problem, state, tokens):
    tokens[0] = state[0]
    return 1

def write_prompt(problem, tokens):
    tokens[0] = problem[2]
    return 1

def sample_task(settings, stream, problem):
    problem[2] = 1 + below(stream, 50)
    return True

class Line(Domain):
    name: ClassVar[str] = "line"
    words: ClassVar[tuple[str, ...]] = ()
    rules: ClassVar[Rules] = Rules(successors, heuristic, write_prompt, write, sample_task)
    max_children: ClassVar[int] = 2

    @property
    def shapes(self):
        number = (Group(None, (51,)),)
        return Shapes(number, number, number)

    def build(self, groups):
        return np.array([1, 1, groups[0][1][0]], dtype=np.int32)

    def draw(self, problem, state=None):
        return str(problem[2])
'''
RUN_PLUGIN = """
import json
from line_plugin import Line
from searchformer.search import Searcher
astar = Searcher(Line())
plan = astar.search(astar.domain.encode({"prompt": "20"})).plan.ravel().tolist()
stats = astar.kernels.search.stats
print(json.dumps({"plan": plan, "hits": sum(stats.cache_hits.values()), "misses": sum(stats.cache_misses.values())}))
"""
RUN_REGISTRY = """
import json, sys
from searchformer.domains import make_domain
from searchformer.search import Searcher
missed = []
for name, settings, record in json.loads(sys.argv[1]):
    astar = Searcher(make_domain(name, settings))
    astar.search(astar.domain.encode(record))
    stats = astar.kernels.search.stats
    if not stats.cache_hits or stats.cache_misses:
        missed.append(name)
print(json.dumps(missed))
"""


def run_python(code, *arguments, **environment):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout)


def test_a_second_process_finds_every_registered_domain_compiled(every_domain, draw_problems):
    tasks = []
    for domain in every_domain:
        problem = next(draw_problems(domain, 1))
        Searcher(domain).search(problem)  # leaves its machine code in the cache
        tasks.append([type(domain).name, domain.model_dump(), domain.decode(problem)])
    assert run_python(RUN_REGISTRY, json.dumps(tasks)) == []


def test_a_plug_in_starts_warm_and_a_changed_constant_is_never_stale(tmp_path):
    module = tmp_path / "line_plugin.py"
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    module.write_text(PLUGIN)
    cold, warm = (run_python(RUN_PLUGIN, **environment) for _ in range(2))
    assert (cold["hits"], cold["misses"]) == (0, 1)
    assert (warm["hits"], warm["misses"]) == (1, 0)
    assert cold["plan"] == warm["plan"]
    assert len(warm["plan"]) == 1 + 20 // 3 + 1
    module.write_text(PLUGIN.replace("STEP = 3", "STEP = 5"))
    changed = run_python(RUN_PLUGIN, **environment)
    assert changed["misses"] == 1
    assert len(changed["plan"]) == 1 + 20 // 5


TABLE = np.zeros(5000, dtype=np.int64)
ALTERED = np.where(np.arange(5000) == 2500, 1, TABLE)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("def rule(x): return x * N", {"N": 3}, {"N": 4}),
        ("def rule(x): return x * N", {"N": np.int32(3)}, {"N": np.int32(4)}),
        ("def rule(x): return N[x]", {"N": (1, 2)}, {"N": (1, 3)}),
        ("def rule(x): return N[x]", {"N": TABLE}, {"N": ALTERED}),
        ("def rule(x): return [each * N for each in x]", {"N": 3}, {"N": 4}),
        ("def rule(x): return x * M.n", {"M": ModuleType("M")}, {"M": ModuleType("M")}),
        ("def helper(x): return x * N\ndef rule(x): return helper(x)", {"N": 3}, {"N": 4}),
    ],
)
def test_a_changed_constant_changes_a_rules_fingerprint(rule, before, after):
    for scope, number in ((before, 3), (after, 4)):
        if "M" in scope:
            scope["M"].n = number

    def fingerprint(scope):
        names = dict(scope)
        exec(rule, names)
        return _fingerprint(names["rule"], set())

    assert fingerprint(before) == fingerprint(before)
    assert fingerprint(before) != fingerprint(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def rule(x): return x + 1", "def rule(x): return x + 2"),
        ("def rule(x): return x + 1", "def rule(x): return x - 1"),
        ("def rule(x): return [each + 1 for each in x]", "def rule(x): return [each + 2 for each in x]"),
        ("def rule(x, n=1): return x + n", "def rule(x, n=2): return x + n"),
        ("def rule(x): return min(x, 1)", "def rule(x): return max(x, 1)"),
    ],
)
def test_a_changed_text_changes_a_rules_fingerprint(before, after):
    rules = []
    for text in (before, after):
        names = {}
        exec(text, names)
        rules.append(_fingerprint(names["rule"], set()))
    assert rules[0] != rules[1]


# The world that people walk in


def test_a_plan_is_walked_up_to_its_first_illegal_step(smallest, draw_problems):
    astar = Searcher(smallest)
    solved = (astar.search(problem) for problem in draw_problems(smallest, 200))
    problem, found = next(
        (problem, found)
        for problem, found in zip(draw_problems(smallest, 200), solved, strict=True)
        if len(found.plan) > 2
    )
    world = World(smallest, problem)
    plan = [world.plan_tokens(tuple(state)) for state in found.plan.tolist()]
    assert world.walk(plan) == [tuple(state) for state in found.plan.tolist()]
    assert world.is_goal(world.walk(plan)[-1])
    assert world.walk([plan[0], plan[0], plan[1]]) == [world.start()]
    assert world.walk(plan[1:]) == []


def test_an_answer_is_cut_at_its_keywords_whatever_stands_between():
    steps = cut_steps(["x", "create", "0", "1", "c0", "c12", "close", "0", "c3", "plan", "plan", "3", "4", "c1", "c2"])
    assert steps == [
        Step("create", ("0", "1"), 0, 12),
        Step("close", ("0", "c3"), None, None),
        Step("plan", (), None, None),
        Step("plan", ("3", "4", "c1", "c2"), None, None),
    ]
    assert [token for step in steps for token in step.tokens()][:5] == ["create", "0", "1", "c0", "c12"]
