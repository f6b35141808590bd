"""What stands near the node at hand: a picture a person can check, and every search of every domain told by hand."""

from itertools import combinations

import numpy as np
import pytest
from step_models import padded, searches_of, step_model

from searchformer.domains import KEYWORDS, make_domain
from searchformer.tokens.steps import NOTHING
from searchformer.tokens.vicinity import RELATIONS, WORDS, Vicinity

REACH = 2


def meaning(row, pairs, words):
    """What a row of the table says."""
    side, numbers = 2 * REACH + 1, 2 * pairs
    nodes = (WORDS + pairs) * pairs * side**2
    if row < nodes:
        cell, across = divmod(row, side)
        cell, down = divmod(cell, side)
        what, pair = divmod(cell, pairs)
        name = words[what] if what < WORDS else f"place {what - WORDS}"
        return f"{name} at {across - REACH:+} {down - REACH:+} from place {pair}"
    change, relation = divmod(row - nodes, RELATIONS)
    cost = ("costs no more", "costs one more", "costs more")[relation]
    if change == 0:
        return f"itself {cost}"
    if change < 1 + 2 * numbers:
        number, up = divmod(change - 1, 2)
        return f"number {number} by {2 * up - 1:+} {cost}"
    both, up = divmod(change - 1 - 2 * numbers, 2)
    return f"numbers {both // numbers} and {both % numbers} by {2 * up - 1:+} {cost}"


def numbers_in(step):
    return [int(token) for token in step.split() if token.isdigit()]


def costs_in(step):
    return [int(token[1:]) for token in step.split() if token[0] == "c" and token[1:].isdigit()]


def form(step):
    """A step without its keyword, numbers and costs: steps of another form name other kinds of states."""
    words = step.split()[1:]
    return ["number" if token.isdigit() else token for token in words if token[0] != "c" or not token[1:].isdigit()]


def told_by_hand(prompt, steps, pairs):
    """What the network is told before it writes the step after `steps`, of which the first is bos."""
    reference = [step for step in steps if not step.startswith("create")][-1]
    own = numbers_in(reference)[: 2 * pairs]
    places = [own[i : i + 2] for i in range(0, len(own) - 1, 2)]
    things = [(f"place {i}", *place) for i, place in enumerate(places)]
    things += [(group.split()[0], *numbers_in(group)[:2]) for group in prompt if len(numbers_in(group)) >= 2]
    told = []
    for pair, (x, y) in enumerate(places):
        for name, other_x, other_y in things:
            across, down = other_x - x, other_y - y
            if name != f"place {pair}" and max(abs(across), abs(down)) <= REACH:
                told.append(f"{name} at {across:+} {down:+} from place {pair}")
    known = [step for at, step in enumerate(steps) if not is_superseded(step, steps[at + 1 :])]
    same = [step for step in known if form(step) == form(reference)]
    itself = [step for step in same if numbers_in(step) == numbers_in(reference)]
    cost = max((costs_in(step)[0] for step in itself if costs_in(step)), default=0)
    for step in same:
        changes = [b - a for a, b in zip(numbers_in(reference), numbers_in(step), strict=True)]
        changed = [number for number, change in enumerate(changes) if change]
        by = {changes[number] for number in changed}
        if len(changed) > 2 or by not in (set(), {1}, {-1}) or any(number >= 2 * pairs for number in changed):
            continue
        more = min(max((costs_in(step) or [0])[0] - cost, 0), 2)
        how = ("costs no more", "costs one more", "costs more")[more]
        what = {0: "itself", 1: "number {} by {:+}", 2: "numbers {} and {} by {:+}"}[len(changed)]
        told.append(f"{what.format(*changed, *by)} {how}")
    return sorted(told)


def is_superseded(step, later):
    """Whether a later step names the node again, or creates its state at a lower cost; bos is at any later step."""

    def node(text):
        return text.split()[1:]

    def state(text):
        return [token for token in node(text) if token[0] != "c" or not token[1:].isdigit()]

    if step.startswith("bos"):
        return bool(later)
    return any(
        node(step) == node(other)
        or (other.startswith("create") and state(step) == state(other) and costs_in(other)[0] < costs_in(step)[0])
        for other in later
    )


def told(model, vocabulary, prompt, response):
    """What the network is told at every position, by the kernel."""
    inputs = model.inputs(*padded([prompt]), *padded([response]))
    rows, begins = (part.tolist() for part in inputs.near_rows)
    words = [word for word in vocabulary.tokens if word.isalpha() and word not in (*KEYWORDS, "eos")]
    ends = [*begins[1:], len(rows)]
    pairs = model.config.number_heads
    return [sorted(meaning(row, pairs, words) for row in rows[a:b]) for a, b in zip(begins, ends, strict=True)]


def texts(vocabulary, pieces):
    return [" ".join(vocabulary.tokens[token] for token in piece if token != NOTHING) for piece in pieces]


def test_the_kernel_tells_what_a_person_would_tell(domain):
    searches = searches_of(domain, tasks=1)
    model = step_model(searches.vocabulary, *searches.places, vicinity=REACH)
    inputs = model.inputs(*padded(searches.prompts), *padded(searches.responses))
    prompt = texts(searches.vocabulary, inputs.prompts_BSP[0].tolist())[1:-1]
    steps = texts(searches.vocabulary, inputs.inputs_BTP[0].tolist())
    found = told(model, searches.vocabulary, searches.prompts[0], searches.responses[0])
    assert len(found) == len(steps)
    for t in range(0, len(steps), max(len(steps) // 60, 1)):
        assert found[t] == told_by_hand(prompt, steps[: t + 1], model.config.number_heads), (t, steps[: t + 1])


def test_a_worker_is_told_of_the_box_it_can_push_and_of_the_child_that_is_there():
    sokoban = make_domain("sokoban", {"width": 6, "height": 6, "walls": 1, "boxes": 2})
    vocabulary = searches_of(sokoban, tasks=1).vocabulary
    model = step_model(vocabulary, 12, 3, 3, vicinity=REACH, number_heads=3)
    prompt = "worker 1 2 box 2 2 box 3 3 dock 4 2 dock 4 4 wall 1 3"
    trace = (
        "create worker 1 2 box 2 2 box 3 3 c0 c4 close worker 1 2 box 2 2 box 3 3 c0 c4 "
        "create worker 1 1 box 2 2 box 3 3 c1 c4 create worker 2 2 box 3 2 box 3 3 c1 c3"
    )
    ids = [np.array([0, *vocabulary.encode(text.split()), 1], dtype=np.int64) for text in (prompt, trace)]
    assert told(model, vocabulary, *ids)[-1] == sorted([
        "place 1 at +1 +0 from place 0", "place 2 at +2 +1 from place 0",
        "place 0 at -1 +0 from place 1", "place 2 at +1 +1 from place 1",
        "place 0 at -2 -1 from place 2", "place 1 at -1 -1 from place 2",
        "worker at +0 +0 from place 0", "worker at -1 +0 from place 1", "worker at -2 -1 from place 2",
        "box at +1 +0 from place 0", "box at +0 +0 from place 1", "box at -1 -1 from place 2",
        "box at +2 +1 from place 0", "box at +1 +1 from place 1", "box at +0 +0 from place 2",
        "dock at +2 +0 from place 1", "dock at +1 -1 from place 2",
        "dock at +2 +2 from place 1", "dock at +1 +1 from place 2",
        "wall at +0 +1 from place 0", "wall at -1 +1 from place 1", "wall at -2 +0 from place 2",
        "itself costs no more", "number 1 by -1 costs one more", "numbers 0 and 2 by +1 costs one more",
    ])  # fmt: skip


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_every_fact_has_a_row_of_its_own(pairs):
    words = [f"word{n}" for n in range(WORDS)]
    rows = range(Vicinity.row_count(REACH, pairs))
    said = [meaning(row, pairs, words) for row in rows]
    numbers = combinations(range(2 * pairs), 2)
    assert len(set(said)) == len(said)
    assert {f"numbers {a} and {b} by +1 costs more" for a, b in numbers} <= set(said)
