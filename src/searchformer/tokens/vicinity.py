"""What stands near the node at hand: a step network sees it at once, instead of having to learn what "beside" means.

The node at hand is the one whose children are being written (`Cutter.references`). Its numbers, two by two, are places
in a grid. Seen from each of them, its other places and the things of the prompt that are within reach stand at an
offset: a box on the right of the worker, a wall two below. And of the search so far the network sees the nodes that
differ from it by one in one number, or in two numbers by the same (a worker and the box that it pushes), and whether
they cost less than a child of it would, as much, or more. So it need not search its memory for what a child depends on:
what is in the way, and whether the child is known already.

Only numbers are compared, no rule of a domain is known. Every fact is a row of a table of vectors, whose sum is added
to what the decoder reads. Arrays: S things, T inputs, P places, Y symbols.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from searchformer.tokens.steps import COST, NOTHING, NUMBER, WORD

WORDS = 8
"""Words of prompts that are told apart; in a vocabulary with more of them, some share their rows."""
RELATIONS = 3
"""A node near the one at hand costs no more than it does, one more as its children do, or more than that."""


@dataclass(frozen=True, eq=False)
class Vicinity:
    """Which rows of the table describe what is near."""

    reach: int
    """Things are seen up to this far away in either coordinate."""
    pairs: int
    """Pairs of a node's numbers from which they are seen."""
    coordinates: np.ndarray
    """int64 [Y]: the number of each symbol, negative where it is none."""
    kinds: np.ndarray
    """uint8 [Y]: the kind of each symbol (`steps.py`)."""

    @staticmethod
    def row_count(reach: int, pairs: int) -> int:
        """Rows of the table."""
        numbers = 2 * pairs
        return (WORDS + pairs) * pairs * (2 * reach + 1) ** 2 + RELATIONS * (1 + 2 * numbers + 2 * numbers**2)

    @cached_property
    def word_numbers(self) -> np.ndarray:
        """int64 [Y]: words are numbered in their order; NOTHING for all else."""
        words = self.kinds == WORD
        return np.where(words, (np.cumsum(words) - 1) % WORDS, NOTHING)

    @cached_property
    def is_silent(self) -> np.ndarray:
        """bool [Y]: costs do not count when states are compared."""
        return self.kinds == COST

    def things(self, prompts: np.ndarray) -> np.ndarray:
        """The word and the first two numbers of pieces of prompts [..., S, places], int64 [..., S, 3].

        Pieces that do not have them hold NOTHING.
        """
        filled = prompts >= 0
        is_number = filled & (self.kinds[np.maximum(prompts, 0)] == NUMBER)
        word = np.where(filled[..., 0], self.word_numbers[np.maximum(prompts[..., 0], 0)], NOTHING)
        things = np.full((*prompts.shape[:-1], 3), NOTHING, np.int64)
        things[..., 0] = word
        for which in range(2):
            at = (is_number & (is_number.cumsum(axis=-1) == which + 1)).argmax(axis=-1)[..., None]
            there = is_number.sum(axis=-1) > which
            number = self.coordinates[np.maximum(np.take_along_axis(prompts, at, axis=-1)[..., 0], 0)]
            things[..., 1 + which] = np.where(there, number, NOTHING)
        things[(things == NOTHING).any(axis=-1)] = NOTHING
        return things

    def of_sequences(
        self,
        things: np.ndarray,
        inputs: np.ndarray,
        references: np.ndarray,
        costs: np.ndarray,
        superseded_at: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows of all positions of sequences, one after the other, and where those of each position begin, [B * T].

        `inputs` and `references` are [B, T, P]; the costs of inputs so far, g, and `superseded_at` are [B, T].
        """
        return _of_sequences(things, inputs, references, costs, superseded_at, self.reach, self.pairs, *self.facts)

    def of_slots(
        self,
        things: np.ndarray,
        inputs: np.ndarray,
        references: np.ndarray,
        costs: np.ndarray,
        is_superseded: np.ndarray,
        slots: np.ndarray,
        positions: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for the last position of sequences that are being written, [R]; all else is indexed by slot."""
        sequences = things, inputs, references, costs, is_superseded, slots, positions
        return _of_slots(*sequences, self.reach, self.pairs, *self.facts)

    @property
    def facts(self) -> tuple[np.ndarray, np.ndarray]:
        """What kernels need to know of symbols."""
        return self.coordinates, self.is_silent


@njit(cache=True)
def look_around(
    things: np.ndarray,
    reference: np.ndarray,
    inputs: np.ndarray,
    costs: np.ndarray,
    is_superseded: np.ndarray,
    reach: int,
    pairs: int,
    coordinates: np.ndarray,
    is_silent: np.ndarray,
    found: np.ndarray,
) -> int:
    """Write the rows for one position to `found`; how many there are, at most pairs * (pairs + S) + T.

    `inputs` [T, P], their costs and `is_superseded` reach up to this position.
    """
    side, count, there = 2 * reach + 1, 0, 0
    own = np.empty((pairs, 2), np.int64)
    for place in range(1, len(reference)):
        symbol = reference[place]
        if symbol >= 0 and coordinates[symbol] >= 0 and there < 2 * pairs:
            own[there // 2, there % 2] = coordinates[symbol]
            there += 1
    for pair in range(there // 2):
        for s in range(there // 2 + len(things)):
            what, x, y = WORDS + s, own[s % pairs, 0], own[s % pairs, 1]
            if s >= there // 2:
                what, x, y = things[s - there // 2]
            across, down = x - own[pair, 0] + reach, y - own[pair, 1] + reach
            if what >= 0 and s != pair and 0 <= across < side and 0 <= down < side:
                found[count] = ((what * pairs + pair) * side + down) * side + across
                count += 1
    first = (WORDS + pairs) * pairs * side * side
    begin, own_cost = count, 0.0
    for t in range(len(inputs)):
        change = -1 if is_superseded[t] else _change(reference, inputs[t], 2 * pairs, coordinates, is_silent)
        if change >= 0:
            found[count], count = change * len(inputs) + t, count + 1
            own_cost = max(own_cost, costs[t]) if change == 0 else own_cost  # a step of a plan names no cost itself
    for at in range(begin, count):
        change, t = divmod(found[at], len(inputs))
        found[at] = first + change * RELATIONS + min(max(int(costs[t] - own_cost), 0), RELATIONS - 1)
    return count


@njit(cache=True)
def _change(
    reference: np.ndarray, piece: np.ndarray, numbers: int, coordinates: np.ndarray, is_silent: np.ndarray
) -> int:
    """A number for how the state of a piece differs from the reference's; -1 where it is not near."""
    changes, number, first, step = 0, 0, 0, 0
    for place in range(1, len(reference)):
        here, there = reference[place], piece[place]
        is_number = here >= 0 and coordinates[here] >= 0
        if here != there and not ((here < 0 or is_silent[here]) and (there < 0 or is_silent[there])):
            if not is_number or there < 0 or coordinates[there] < 0 or number >= numbers or changes == 2:
                return -1
            by = coordinates[there] - coordinates[here]
            if by * by != 1 or (changes == 1 and by != step):
                return -1
            if changes == 0:
                first, step = number, by
                changed = 1 + 2 * number + (by > 0)
            else:
                changed = 1 + 2 * numbers + 2 * (first * numbers + number) + (by > 0)
            changes += 1
        number += is_number
    return changed if changes else 0


@njit(cache=True)
def _of_sequences(
    things: np.ndarray,
    inputs: np.ndarray,
    references: np.ndarray,
    costs: np.ndarray,
    superseded_at: np.ndarray,
    reach: int,
    pairs: int,
    coordinates: np.ndarray,
    is_silent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    batch, length = inputs.shape[:2]
    begins = np.empty(batch * length, np.int64)
    most = pairs * (pairs + things.shape[1]) + length
    rows, count = np.empty(max(16 * batch * length, most), np.int64), 0
    for b in range(batch):
        for t in range(length):
            begins[b * length + t] = count
            if inputs[b, t, 0] < 0:  # padding
                continue
            if count + most > len(rows):
                longer = np.empty(2 * len(rows) + most, np.int64)
                longer[:count] = rows[:count]
                rows = longer
            count += look_around(
                things[b],
                references[b, t],
                inputs[b, : t + 1],
                costs[b, : t + 1],
                superseded_at[b, : t + 1] <= t,
                reach,
                pairs,
                coordinates,
                is_silent,
                rows[count:],
            )
    return rows[:count], begins


@njit(cache=True)
def _of_slots(
    things: np.ndarray,
    inputs: np.ndarray,
    references: np.ndarray,
    costs: np.ndarray,
    is_superseded: np.ndarray,
    slots: np.ndarray,
    positions: np.ndarray,
    reach: int,
    pairs: int,
    coordinates: np.ndarray,
    is_silent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    begins, count, most = np.empty(len(slots), np.int64), 0, 0
    for r in range(len(slots)):
        most += pairs * (pairs + things.shape[1]) + positions[r] + 1
    rows = np.empty(most, np.int64)
    for r in range(len(slots)):
        slot, end = slots[r], positions[r] + 1
        begins[r] = count
        count += look_around(
            things[slot],
            references[slot],
            inputs[slot, :end],
            costs[slot, :end],
            is_superseded[slot, :end],
            reach,
            pairs,
            coordinates,
            is_silent,
            rows[count:],
        )
    return rows[:count], begins
