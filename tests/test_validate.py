"""Validation: legal traces pass, every single-token change is found, and a slow checker of its own agrees."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from conftest import VARIANTS

from searchformer.domains import Group, domain_class, make_domain, maze
from searchformer.search import Options, Searcher, readings
from searchformer.search.ordering import ALGORITHMS, weights
from searchformer.search.replay import VIOLATIONS
from searchformer.search.validate import UNDECIDED, Validator, codes_of
from searchformer.tokens.grammar import write_text

PAPER_FORMAT = ("sokoban", {"width": 6, "height": 5, "walls": 1, "boxes": 2, "tokens_format": "paper"})

# --- a checker of its own, from the reference's rules: no arrays, no code of the package


@dataclass(frozen=True)
class Maze:
    """A state is (x, y)."""

    start: tuple[int, int]
    goal: tuple[int, int]
    walls: frozenset
    width: int
    height: int

    def children(self, state):
        x, y = state
        around = [(x, y + 1), (x, y - 1), (x - 1, y), (x + 1, y)]
        inside = [(i, j) for i, j in around if 0 <= i < self.width and 0 <= j < self.height]
        return [cell for cell in inside if cell not in self.walls]

    def estimate(self, state):
        return abs(state[0] - self.goal[0]) + abs(state[1] - self.goal[1])

    def solved(self, state):
        return state == self.goal

    def text(self, state):
        return f"{state[0]} {state[1]}"

    plan_text = text


@dataclass(frozen=True)
class Sokoban:
    """A state is (worker, frozenset of boxes)."""

    start: tuple
    docks: frozenset
    walls: frozenset
    full: bool

    def children(self, state):
        (x, y), boxes = state
        found = []
        for dx, dy in ((0, 1), (0, -1), (-1, 0), (1, 0)):
            target, beyond = (x + dx, y + dy), (x + 2 * dx, y + 2 * dy)
            if target in self.walls or (target in boxes and beyond in self.walls | boxes):
                continue
            found.append((target, boxes - {target} | {beyond} if target in boxes else boxes))
        return found

    def estimate(self, state):
        total = 0
        free = self.docks - state[1]
        for x, y in state[1] - self.docks:
            sideways = not {(x - 1, y), (x + 1, y)} & self.walls
            upright = not {(x, y - 1), (x, y + 1)} & self.walls
            if not sideways and not upright:
                return None
            total += min(abs(x - i) + abs(y - j) for i, j in free)
        return total

    def solved(self, state):
        return state[1] == self.docks

    def text(self, state):
        boxes = sorted(state[1] if self.full else state[1] - self.docks)
        return " ".join([f"worker {state[0][0]} {state[0][1]}", *(f"box {x} {y}" for x, y in boxes)])

    def plan_text(self, state):
        return f"{state[0][0]} {state[0][1]}"


@dataclass(frozen=True)
class Tiles:
    """A state is the tuple of tiles, row by row, 0 for the blank."""

    start: tuple[int, ...]
    width: int

    def children(self, state):
        blank, found = state.index(0), []
        for other, tile in enumerate(state):
            apart = abs(other % self.width - blank % self.width) + abs(other // self.width - blank // self.width)
            if apart == 1:
                found.append(tuple(tile if i == blank else 0 if i == other else t for i, t in enumerate(state)))
        return found

    def estimate(self, state):
        homes = [(place, tile - 1) for place, tile in enumerate(state) if tile]
        return sum(abs(a % self.width - b % self.width) + abs(a // self.width - b // self.width) for a, b in homes)

    def solved(self, state):
        return state == (*range(1, len(state)), 0)

    def text(self, state):
        return " ".join(map(str, state))

    plan_text = text


def task_of(domain, prompt):
    """The task of a prompt's text; None for a domain that came later and has no slow rules here."""
    words = prompt.split()
    if domain.name == "tiles":
        return Tiles(tuple(map(int, words[1:])), domain.width)
    if domain.name not in ("maze", "sokoban"):
        return None
    cells = [(words[i], (int(words[i + 1]), int(words[i + 2]))) for i in range(0, len(words), 3)]
    found = {word: [cell for name, cell in cells if name == word] for word, _ in cells}
    walls = frozenset(cell for name, cell in cells if name == "wall")
    if domain.name == "maze":
        return Maze(found["start"][0], found["goal"][0], walls, domain.width, domain.height)
    start = (found["worker"][0], frozenset(found["box"]))
    return Sokoban(start, frozenset(found["dock"]), walls, domain.tokens_format == "full")


@dataclass(frozen=True)
class World:
    """What a legal search may know after some steps; where states read alike there are several."""

    cost: dict = field(default_factory=dict)
    parent: dict = field(default_factory=dict)
    waiting: frozenset = frozenset()
    current: object = None
    pending: tuple = ()


def is_legal(task, answer, cost_weight=1, estimate_weight=1, *, but_sound=False):
    """Is the answer's text a legal search and its plan that search's path? Follows every reading of it.

    With `but_sound`, nodes may be closed in any order and children left out.
    """

    def h(state):
        return task.estimate(state) if estimate_weight else 0

    def f(world, state):
        return cost_weight * world.cost[state] + estimate_weight * h(state)

    def create(world, words):
        options = world.pending if world.cost else (task.start,)
        cost = world.cost[world.current] + 1 if world.pending else 0
        for state in options:
            if words == f"{task.text(state)} c{cost} c{h(state)}":
                yield replace(
                    world,
                    cost=world.cost | {state: cost},
                    parent=world.parent | {state: world.current},
                    waiting=world.waiting | {state},
                    pending=tuple(other for other in world.pending if other != state),
                )

    def close(world, words):
        if (world.pending and not but_sound) or not world.waiting:
            return
        least = min(f(world, state) for state in world.waiting)
        for state in world.waiting:
            in_turn = but_sound or f(world, state) == least
            if words == f"{task.text(state)} c{world.cost[state]} c{h(state)}" and in_turn:
                cost = world.cost[state] + 1
                known = {child for child in task.children(state) if child in world.cost}
                better = {child for child in known if cost_weight and world.cost[child] > cost}
                children = [child for child in task.children(state) if child not in known or child in better]
                pending = tuple(child for child in children if h(child) is not None)
                pending = () if task.solved(state) else pending
                yield replace(world, waiting=world.waiting - {state}, current=state, pending=pending)

    worlds = [World()]
    trace, *plan = answer.split("plan ")
    for step in trace.replace("create", "|create").replace("close", "|close").split("|")[1:]:
        kind, _, words = step.strip().partition(" ")
        worlds = [world for world in worlds if world.current is None or not task.solved(world.current)]
        worlds = [after for world in worlds for after in (create if kind == "create" else close)(world, words)]
    for world in worlds:
        if world.current is not None and task.solved(world.current):
            path = [world.current]
            while world.parent[path[-1]] is not None:
                path.append(world.parent[path[-1]])
            if [step.strip() for step in plan] == [task.plan_text(state) for state in reversed(path)]:
                return trace.startswith("create")
    return False


# --- examples


@pytest.fixture(params=[*VARIANTS, PAPER_FORMAT], ids=str)
def domain(request):
    """Every registered domain in small, and a Sokoban in which states read alike."""
    return make_domain(*request.param)


def searches(domain, draw_problems, tasks, *, seed=0, options=None, least=0, most=400):
    """Solvable problems with the prompt and the answer of a search; traces of `least` to `most` tokens."""
    searcher = Searcher(domain, options or Options())
    for index, problem in enumerate(draw_problems(domain, 200 * tasks, seed=seed)):
        found = searcher.search(problem, seed=index)
        prompt, trace, plan = write_text(domain, problem, found)
        if found.solvable and least <= len(trace.split()) <= most:
            yield problem, prompt, f"{trace} {plan}"
            tasks -= 1
        if not tasks:
            return


def options_of(algorithm):
    return Options(algorithm=algorithm, weight=2.5 if algorithm == "weighted" else 1.0)


LINE = make_domain("maze", {"width": 4, "height": 2})
LINE_TASK = {"width": 4, "height": 1, "start": [1, 0], "goal": [3, 0], "walls": []}
OPENING = "create 1 0 c0 c2 close 1 0 c0 c2 create 0 0 c1 c3 create 2 0 c1 c1"
MIDDLE = "close 2 0 c1 c1 create 3 0 c2 c0"
ENDING = "close 3 0 c2 c0"
PLAN = "plan 1 0 plan 2 0 plan 3 0"


def test_golden_traces_are_legal(golden):
    files = [("maze", "maze-deterministic.jsonl.gz", "", 180), ("sokoban", "sokoban.jsonl.gz", "example_", 13)]
    for name, file, prefix, expected in files:
        rules, count = make_domain(name), 0
        validator = Validator(rules)
        for record in golden(file):
            if record.get(f"{prefix}trace"):
                codes = codes_of(rules, f"{record[f'{prefix}trace']} {record[f'{prefix}plan']}".split())
                verdict = validator.trace(rules.encode(record), codes)
                assert verdict.legal, (record, verdict)
                assert verdict.steps == verdict.legal_steps == verdict.created + verdict.closed
                assert validator.plan(rules.encode(record), codes).solved
                count += 1
        assert count == expected


@pytest.mark.parametrize(
    ("answer", "violation", "position"),
    [
        (f"{OPENING} {MIDDLE} {ENDING} {PLAN}", None, -1),
        (f"{OPENING.replace('c1 c3', 'c1')} {MIDDLE} {ENDING} {PLAN}", "malformed step", 10),
        (f"create 2 0 c0 c1 {OPENING} {MIDDLE} {ENDING} {PLAN}", "wrong start", 0),
        (f"{OPENING} create 3 0 c1 c0 {MIDDLE} {ENDING} {PLAN}", "not a neighbour", 20),
        (f"{OPENING} {MIDDLE} create 1 0 c2 c2 {ENDING} {PLAN}", "should have been skipped", 30),
        (f"{OPENING} create 0 0 c1 c3 {MIDDLE} {ENDING} {PLAN}", "created twice", 20),
        (f"{OPENING.replace('c1 c3', 'c2 c3')} {MIDDLE} {ENDING} {PLAN}", "wrong cost", 13),
        (f"{OPENING.replace('c1 c3', 'c1 c2')} {MIDDLE} {ENDING} {PLAN}", "wrong estimate", 14),
        (f"{OPENING} close 3 0 c2 c0 {PLAN}", "not open", 20),
        (f"{OPENING} close 1 0 c0 c2 {MIDDLE} {ENDING} {PLAN}", "already closed", 20),
        (f"{OPENING} close 0 0 c1 c3 {MIDDLE} {ENDING} {PLAN}", "not of least f", 20),
        (f"{OPENING.replace(' create 0 0 c1 c3', '')} {MIDDLE} {ENDING} {PLAN}", "child not created", 15),
        (f"{OPENING} {MIDDLE} {ENDING} close 0 0 c1 c3 {PLAN}", "step after the goal", 35),
        (f"{OPENING} {MIDDLE} {PLAN}", "goal not closed", 30),
        (f"{OPENING} {MIDDLE} {ENDING} {PLAN} plan 3 0", "plan does not follow the parents", 44),
        (f"{OPENING} {MIDDLE} {ENDING} plan 1 0 plan 3 0", "plan does not follow the parents", 38),
        (f"{OPENING} {MIDDLE} {ENDING}", "plan does not follow the parents", 35),
        ("", "goal not closed", 0),
    ],
)
def test_violations_have_a_kind_and_a_position(answer, violation, position):
    problem = LINE.encode(LINE_TASK)
    verdict = Validator(LINE).trace(problem, codes_of(LINE, answer.split()))
    assert (verdict.violation, verdict.position) == (violation, position)
    assert verdict.legal == (violation is None)
    assert verdict.sound == (violation in (None, "not of least f", "child not created"))
    task = Maze((1, 0), (3, 0), frozenset(), 4, 1)
    assert is_legal(task, answer) == verdict.legal
    assert is_legal(task, answer, but_sound=True) == verdict.sound


def test_every_kind_of_violation_is_shown_above():
    cases = test_violations_have_a_kind_and_a_position.pytestmark[0].args[1]
    assert {kind for _, kind, _ in cases if kind} == set(VIOLATIONS[1:])


def test_after_a_violation_the_legal_steps_are_still_counted():
    problem = LINE.encode(LINE_TASK)
    answer = f"{OPENING.replace('c1 c3', 'c2 c2')} {MIDDLE} {ENDING} {PLAN}"
    verdict = Validator(LINE).trace(problem, codes_of(LINE, answer.split()))
    assert (verdict.steps, verdict.legal_steps, verdict.cost_errors) == (7, 6, 1)
    assert (verdict.created, verdict.closed) == (4, 3)


@pytest.mark.parametrize(
    ("plan", "reason", "step"),
    [
        (PLAN, None, 2),
        ("", "no plan", 0),
        ("plan 0 0 plan 1 0", "wrong start", 0),
        ("plan 1 0 plan 3 0", "illegal move", 1),
        ("plan 1 0 plan 2 0 plan 2 0", "illegal move", 2),
        ("plan 1 0 plan 2 0 plan 3 1", "illegal move", 2),
        ("plan 1 0 plan 2 0", "not solved", 1),
        ("plan 1 0 plan 2 0 plan 3 0 plan 2 0", "not solved", 3),
        ("plan 1 0 plan 2", "illegal move", 1),
    ],
)
def test_plans_are_walked_in_the_domains_own_rules(plan, reason, step):
    verdict = Validator(LINE).plan(LINE.encode(LINE_TASK), codes_of(LINE, plan.split()))
    assert (verdict.solved, verdict.reason, verdict.step) == (reason is None, reason, step)


# --- agreement with the slow checker


def test_every_single_token_change_is_found_or_harmless(domain, draw_problems):
    validator = Validator(domain)
    alphabet = [*domain.token_list(), "bos", "eos", "c99999"]
    alphabet_codes, tried = codes_of(domain, alphabet), 0
    for problem, prompt, answer in searches(domain, draw_problems, 2, most=250):
        task, tokens = task_of(domain, prompt), answer.split()
        codes = codes_of(domain, tokens)
        assert validator.trace(problem, codes).legal
        assert task is None or is_legal(task, answer)
        generator = np.random.default_rng(len(tokens))
        few = min(len(alphabet), 25)
        for place in range(len(tokens)):
            near = [i for i, token in enumerate(alphabet) if token in near_tokens(tokens[place])]
            for choice in {*near, *generator.choice(len(alphabet), few, replace=False).tolist()}:
                if alphabet[choice] == tokens[place]:
                    continue
                mutated = codes.copy()
                mutated[place] = alphabet_codes[choice]
                tried += 1
                if validator.trace(problem, mutated).legal:
                    changed = " ".join([*tokens[:place], alphabet[choice], *tokens[place + 1 :]])
                    assert task is not None
                    assert is_legal(task, changed), f"token {place} of {answer!r} became {alphabet[choice]!r}"
    assert tried > 1000


def near_tokens(token):
    """The changes that are hardest to notice: a neighbouring number or cost, another keyword."""
    if token.isdigit():
        return {str(int(token) + 1), str(int(token) - 1)}
    if token[1:].isdigit():
        return {f"c{int(token[1:]) + 1}", f"c{int(token[1:]) - 1}"}
    return {"create", "close", "plan", "box", "worker"}


def scramble(answer, generator):
    """Change the answer by whole steps: leave one out, repeat one, swap two, or take one to another place."""
    marked = answer.replace("create", "|create").replace("close", "|close").replace("plan", "|plan")
    steps = [step.strip() for step in marked.split("|")[1:]]
    first, second = (int(index) for index in generator.integers(len(steps), size=2))
    if generator.random() < 0.5:
        second = min(first + 1, len(steps) - 1)  # neighbours may often be swapped
    way = int(generator.integers(4))
    if way == 0:
        del steps[first]
    elif way == 1:
        steps.insert(second, steps[first])
    elif way == 2:
        steps[first], steps[second] = steps[second], steps[first]
    else:
        steps.insert(second, steps.pop(first))
    return " ".join(steps)


def test_the_slow_checker_agrees_on_answers_with_steps_changed(domain, draw_problems):
    validator, generator = Validator(domain), np.random.default_rng(5)
    verdicts = set()
    for problem, prompt, answer in searches(domain, draw_problems, 6, seed=1, most=300):
        task = task_of(domain, prompt)
        if task is None:
            pytest.skip(f"the slow checker knows no {domain.name}")
        for _ in range(25):
            changed = scramble(answer, generator)
            verdict = validator.trace(problem, codes_of(domain, changed.split()))
            assert verdict.legal == is_legal(task, changed), changed
            assert verdict.sound == is_legal(task, changed, but_sound=True), changed
            assert verdict.legal_steps == verdict.steps or not verdict.legal
            verdicts.add((verdict.legal, verdict.sound))
    assert verdicts == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithms_traces_are_legal_under_its_own_weights(smallest, draw_problems, algorithm):
    options = options_of(algorithm)
    validator = Validator(smallest, algorithm=algorithm, weight=options.weight)
    for problem, prompt, answer in searches(smallest, draw_problems, 15, seed=2, options=options):
        assert validator.trace(problem, codes_of(smallest, answer.split())).legal
        task = task_of(smallest, prompt)
        assert task is None or is_legal(task, answer, *weights(algorithm, options.weight))


@pytest.mark.parametrize(("name", "settings"), [("maze", {"width": 12, "height": 12}), ("tiles", {"slides": 30})])
@pytest.mark.parametrize("algorithm", ["dijkstra", "weighted", "greedy"])
def test_other_algorithms_traces_are_generally_not_those_of_astar(name, settings, draw_problems, algorithm):
    domain = make_domain(name, settings)
    validator = Validator(domain)
    examples = searches(domain, draw_problems, 30, seed=3, options=options_of(algorithm), least=300, most=20_000)
    verdicts = [validator.trace(problem, codes_of(domain, answer.split())) for problem, _, answer in examples]
    assert sum(not verdict.legal for verdict in verdicts) > 10
    if algorithm == "dijkstra":
        assert {verdict.violation for verdict in verdicts if not verdict.legal} == {"wrong estimate"}


def test_traces_in_which_states_read_alike_are_legal(draw_problems):
    sokoban = make_domain("sokoban", {"width": 6, "height": 6, "walls": 1, "boxes": 2})
    validator, astar, ambiguous = Validator(sokoban), Searcher(sokoban), 0
    for index, problem in enumerate(draw_problems(sokoban, 40, seed=6)):
        found = astar.search(problem, seed=index)
        if found.solvable:
            _, trace, plan = write_text(sokoban, problem, found)
            assert validator.trace(problem, codes_of(sokoban, f"{trace} {plan}".split())).legal
            states = {step.rpartition(" c")[0].rpartition(" c")[0] for step in trace.split("create ")}
            ambiguous += len({step.removeprefix("close ") for step in states}) < len(found.states)
    assert ambiguous > 3


# --- traces with many readings

LEVEL = ["#######", "#.  $ #", "#     #", "#   $ #", "#.$   #", "# . #@#", "#######"]
PAPER = [
    {"width": 6, "height": 6, "walls": 1, "boxes": 2},
    {"width": 7, "height": 7, "walls": 2, "boxes": 2},
    {"width": 7, "height": 7, "walls": 1, "boxes": 3},
]


def test_a_level_whose_states_often_read_alike_has_legal_traces():
    sokoban = make_domain("sokoban", {"width": 7, "height": 7, "boxes": 3})
    problem = sokoban.encode({"level": LEVEL})
    validator, astar = Validator(sokoban), Searcher(sokoban)
    for seed in range(0, 55, 11):
        _, trace, plan = write_text(sokoban, problem, astar.search(problem, seed=seed))
        verdict = validator.trace(problem, codes_of(sokoban, f"{trace} {plan}".split()))
        assert (verdict.legal, verdict.sound, verdict.violation) == (True, True, None), seed
        assert verdict.legal_steps == verdict.steps


@pytest.mark.parametrize("settings", PAPER, ids=lambda settings: "-".join(map(str, settings.values())))
@pytest.mark.parametrize("algorithm", ["astar", "weighted", "greedy"])
def test_true_searches_are_legal_as_what_they_are_and_sound_as_any(settings, algorithm, draw_problems):
    domain, options = make_domain("sokoban", settings), options_of(algorithm)
    own, astar = Validator(domain, algorithm=algorithm, weight=options.weight), Validator(domain)
    for problem, _, answer in searches(domain, draw_problems, 20, seed=8, options=options, most=15_000):
        codes = codes_of(domain, answer.split())
        assert own.trace(problem, codes).legal
        verdict = astar.trace(problem, codes)
        assert verdict.sound
        if not verdict.legal:
            assert verdict.violation in ("not of least f", "child not created")
            assert answer.split()[verdict.position] in ("close", "create")


def write_column(problem, state, tokens):
    tokens[0] = state[0] >> 16
    return 1


class Columns(domain_class("maze")):
    """Mazes whose traces name a cell by its column alone: closes and creates may mean many nodes."""

    rules: ClassVar = maze.RULES._replace(write_state=write_column)
    compiled: ClassVar = False

    @property
    def shapes(self):
        return super().shapes._replace(state=(Group(None, (self.width,)),))


@dataclass(frozen=True)
class ColumnsTask(Maze):
    """The same for the slow checker."""

    def text(self, state):
        return str(state[0])

    def plan_text(self, state):
        return f"{state[0]} {state[1]}"


@pytest.fixture
def many_readings(monkeypatch):
    """Counts the traces of which several readings are tried."""
    tried, inner = [], Validator._try_other_readings

    def count(*arguments):
        tried.append(arguments)
        return inner(*arguments)

    monkeypatch.setattr(Validator, "_try_other_readings", count)
    return tried


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_slow_checker_agrees_where_every_step_may_mean_many_nodes(draw_problems, many_readings, algorithm):
    domain, generator, options = Columns(width=5, height=4), np.random.default_rng(7), options_of(algorithm)
    validator, verdicts = Validator(domain, algorithm=algorithm, weight=options.weight), set()
    for problem, prompt, answer in searches(domain, draw_problems, 25, seed=9, options=options, least=60, most=160):
        task = ColumnsTask(**vars(task_of(domain, prompt)))
        for text in (answer, *(scramble(answer, generator) for _ in range(8))):
            verdict = validator.trace(problem, codes_of(domain, text.split()))
            assert verdict.legal == is_legal(task, text, *validator.weights), text
            assert verdict.sound == is_legal(task, text, *validator.weights, but_sound=True), text
            verdicts.add((verdict.legal, verdict.sound))
        assert validator.trace(problem, codes_of(domain, answer.split())).legal
    assert verdicts == {(True, True), (False, True), (False, False)}
    assert len(many_readings) > 20


def test_the_slow_checker_agrees_on_changed_traces_of_sokoban_with_many_readings(draw_problems, many_readings):
    domain = make_domain("sokoban", {"width": 6, "height": 6, "walls": 0, "boxes": 3})
    validator, generator = Validator(domain), np.random.default_rng(6)
    for problem, prompt, answer in searches(domain, draw_problems, 30, seed=9, least=300, most=4000):
        task = task_of(domain, prompt)
        for _ in range(5):
            changed, before = scramble(answer, generator), len(many_readings)
            verdict = validator.trace(problem, codes_of(domain, changed.split()))
            if len(many_readings) > before:
                assert verdict.legal == is_legal(task, changed)
                assert verdict.sound == is_legal(task, changed, but_sound=True)
    assert len(many_readings) > 5


def test_a_trace_whose_readings_are_too_many_to_try_is_undecided(monkeypatch):
    sokoban = make_domain("sokoban", {"width": 7, "height": 7, "boxes": 3})
    problem = sokoban.encode({"level": LEVEL})
    validator, astar = Validator(sokoban), Searcher(sokoban)
    monkeypatch.setattr(readings, "MOST_TURNS", -1000)
    verdicts = []
    for seed in range(4):
        _, trace, plan = write_text(sokoban, problem, astar.search(problem, seed=seed))
        verdicts.append(validator.trace(problem, codes_of(sokoban, f"{trace} {plan}".split())))
    undecided = [verdict for verdict in verdicts if not verdict.legal]
    assert undecided
    assert all((verdict.legal, verdict.violation, verdict.position) == (None, UNDECIDED, -1) for verdict in undecided)
    assert all(verdict.sound is not False for verdict in undecided)
