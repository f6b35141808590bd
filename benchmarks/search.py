"""How fast tasks are made: sampling, A* and tokens, on one core, for mazes and Sokoban, non-deterministic.

Measured: `*_search_tasks_per_second` (sampling, search, tokens in memory), `*_tasks_per_second` (the same to Parquet on
disk), `*_two_workers_ratio` (two workers against one, from N to 4 N tasks: without the start of processes),
`*_ratio_to_reference_py` (against search/reference.py and plain tokenisation of the same kind of tasks; the kernel's
side samples them too), `generic_to_specialised_*` (search and tokens against an A* written by hand for that domain
below, which gives the same tokens; `_with_sampling`: of the whole way, if that A* took the kernel's place), compile
times in processes of their own, and peak memory for N and 4 N tasks. Rates count accepted tasks per second of CPU time,
medians over repeats; two workers are timed by the clock. The last line is JSON. Try: `python benchmarks/search.py
--quick`
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np

from searchformer import seeding
from searchformer.dataset.generate import ROWS_PER_SHARD, GenerateOptions, generate
from searchformer.domains import Domain, make_domain
from searchformer.search import Options, Sampler, Searcher, kernel, reference
from searchformer.search.compiled import bind, copy_function, specialise
from searchformer.tokens.vocabulary import Vocabulary

CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "maze10": ("maze", {"width": 10, "height": 10}, 40_000),
    "maze20": ("maze", {"width": 20, "height": 20}, 12_000),
    "maze30": ("maze", {"width": 30, "height": 30}, 6_000),
    "sokoban": ("sokoban", {"width": 7, "height": 7, "walls": 2, "boxes": 2}, 3_000),
}
"""Name, settings, and tasks of one repeat."""


# --- measuring


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def rates(work: Callable[[int], int], repeats: int) -> list[float]:
    """Tasks per second of CPU time, for each repeat; `work(repeat)` says how many tasks it did. One warm-up before."""
    work(0)
    found = []
    for repeat in range(1, repeats + 1):
        begin = time.process_time()
        tasks = work(repeat)
        found.append(tasks / (time.process_time() - begin))
    return found


def show(name: str, found: list[float]) -> float:
    """Print the median with its spread, and return it."""
    median = statistics.median(found)
    median_text, least, most = (
        f"{value:,.0f}" if value >= 100 else f"{value:.3f}" for value in (median, min(found), max(found))
    )
    print(f"{name:42} {median_text:>10}   ({least} to {most})", flush=True)
    return median


def ids_of(domain: Domain) -> np.ndarray:
    return Vocabulary.of(domain.token_list()).encode(domain.token_list())


def make_sampler(domain: Domain, seed: int) -> Sampler:
    return Sampler(Searcher(domain), ids_of(domain), seed=seed, part=0, pairs=1, max_trace_tokens=(1 << 31) - 1)


def draw(sampler: Sampler, tasks: int) -> int:
    done = 0
    while done < tasks:
        done += len(sampler.draw(tasks - done).problems)
    return done


def problems_of(domain: Domain, tasks: int) -> np.ndarray:
    """int32 [tasks, problem_size]: accepted tasks."""
    sampler, found = make_sampler(domain, seed=9), []
    while sum(map(len, found)) < tasks:
        found.append(sampler.draw(tasks - sum(map(len, found))).problems.copy())
    return np.concatenate(found)


def plain_tokens(domain: Domain, problem: np.ndarray, seed: int) -> list[str]:
    """Prompt, trace and plan of one task by readable code."""
    trace, rules = reference.search(domain, problem, seed=seed), bind(domain.rules)
    codes = np.zeros(domain.prompt_room(problem), dtype=np.int32)

    def text(rule: str, *state: np.ndarray) -> list[str]:
        length = rules[rule](problem, *state, codes)
        return [domain.token_text(code) for code in codes[:length].tolist()]

    tokens = text("write_prompt")
    for kind, node, cost, estimate in zip(trace.kinds, trace.nodes, trace.costs, trace.estimates, strict=True):
        state = text("write_state", trace.states[node])
        tokens += ["close" if kind else "create", *state, f"c{cost}", f"c{estimate}"]
    for state in trace.plan:
        tokens += ["plan", *text("write_plan", state)]
    return tokens


def time_reference(domain: Domain, seconds: float) -> float:
    """Tasks per second of CPU time of `plain_tokens`."""
    problems, done, begin = problems_of(domain, 2000), 0, time.process_time()
    while time.process_time() - begin < seconds:
        plain_tokens(domain, problems[done % len(problems)], seed=done)
        done += 1
    return done / (time.process_time() - begin)


def time_generate(name: str, settings: dict[str, Any], tasks: int, seed: int, workers: int) -> tuple[float, float]:
    """(CPU seconds of this process, seconds by the clock) from nothing to a data set on disk."""
    config = GenerateOptions(domain=name, settings=settings, tasks=tasks, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        begin, cpu = time.perf_counter(), time.process_time()
        generate(config, Path(folder) / "data", workers=workers)
        return time.process_time() - cpu, time.perf_counter() - begin


def in_process(*arguments: str, **environment: str) -> dict[str, float]:
    """What this script prints when run with these arguments in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_start(name: str) -> dict[str, float]:
    """Seconds until the first tasks of a domain are there: compiling, or finding the code compiled."""
    domain, begin, cpu = make_domain(*CASES[name][:2]), time.perf_counter(), time.process_time()
    draw(make_sampler(domain, seed=0), 5)
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def measure_memory(name: str, tasks: int) -> dict[str, float]:
    """Peak memory of this process after making so many tasks."""
    draw(make_sampler(make_domain(*CASES[name][:2]), seed=0), tasks)
    status = Path("/proc/self/status")
    if status.exists():  # Linux hands the parent's ru_maxrss on to a new program, but not this
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return {"megabytes": int(line.split()[1]) / 1024}
    return {"megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


# --- A* written by hand for one domain: the same algorithm, draws and tokens, other data structures

_mix = numba.njit(seeding._mix)
next_word = numba.njit(seeding.next_word)
below = numba.njit(copy_function(seeding.below, {"next_word": next_word}))
shuffle = numba.njit(copy_function(seeding.shuffle, {"next_word": next_word}))
PLAN, CLOSE, CREATE = kernel.PLAN_WORD, kernel.CLOSE_WORD, kernel.CREATE_WORD


@numba.njit(error_model="numpy")
def maze_by_hand(problems, stream, ids, words, cost_base, out):
    """Search all mazes, write traces and plans to `out`; tokens written. Tables are addressed by cell."""
    width, height = np.int64(problems[0, 0]), np.int64(problems[0, 1])
    edge = width + 2
    cells = edge * (height + 2)
    numbers, costs = ids[words:], ids[cost_base:]
    free = np.zeros(cells, dtype=np.uint8)
    column, row = np.zeros(cells, dtype=np.int32), np.zeros(cells, dtype=np.int32)
    for cell in range(cells):
        column[cell], row[cell] = cell % edge - 1, cell // edge - 1
    cost, estimate = np.zeros(cells, dtype=np.int32), np.zeros(cells, dtype=np.int32)
    parent, status = np.zeros(cells, dtype=np.int32), np.zeros(cells, dtype=np.uint8)  # 1 open, 2 closed
    highest_f = 4 * cells
    bucket, count = np.zeros((highest_f, 16), dtype=np.int32), np.zeros(highest_f, dtype=np.int32)
    path, children, order = np.zeros(cells, dtype=np.int32), np.zeros(4, dtype=np.int32), np.zeros(4, dtype=np.int64)
    at = 0
    for index in range(len(problems)):
        problem = problems[index]
        for y in range(height):
            for x in range(width):
                free[(y + 1) * edge + x + 1] = 1 - problem[4 + y * width + x]
        status[:] = 0
        goal_x, goal_y = problem[3] >> 16, problem[3] & 0xFFFF
        goal = (goal_y + 1) * edge + goal_x + 1
        children[0] = ((problem[2] & 0xFFFF) + 1) * edge + (problem[2] >> 16) + 1
        order[0] = 0
        candidates, node, child_cost, highest = 1, -1, 0, 0
        least = highest_f
        while True:
            for turn in range(candidates):
                child = children[order[turn]]
                if status[child] == 0:
                    estimate[child] = abs(column[child] - goal_x) + abs(row[child] - goal_y)
                elif cost[child] <= child_cost:
                    continue
                cost[child], parent[child], status[child] = child_cost, node, 1
                f = child_cost + estimate[child]
                if count[f] == bucket.shape[1]:
                    wider = np.zeros((highest_f, 2 * bucket.shape[1]), dtype=np.int32)
                    wider[:, : bucket.shape[1]] = bucket
                    bucket = wider
                bucket[f, count[f]] = child
                count[f] += 1
                least, highest = min(least, f), max(highest, f + 1)
                out[at], out[at + 1], out[at + 2] = ids[CREATE], numbers[column[child]], numbers[row[child]]
                out[at + 3], out[at + 4] = costs[child_cost], costs[estimate[child]]
                at += 5
            node = -1
            while least < highest:
                if count[least] == 0:
                    least += 1
                    continue
                count[least] -= 1
                place = below(stream, count[least] + 1)
                node = bucket[least, place]
                bucket[least, place] = bucket[least, count[least]]
                if status[node] == 1 and cost[node] + estimate[node] == least:
                    break
                node = -1
            if node < 0:
                break
            status[node] = 2
            out[at], out[at + 1], out[at + 2] = ids[CLOSE], numbers[column[node]], numbers[row[node]]
            out[at + 3], out[at + 4] = costs[cost[node]], costs[estimate[node]]
            at += 5
            if node == goal:
                break
            child_cost = cost[node] + 1
            candidates = 0
            for step in (edge, -edge, -1, 1):
                if free[node + step]:
                    children[candidates] = node + step
                    order[candidates] = candidates
                    candidates += 1
            shuffle(stream, order, candidates)
        count[:highest] = 0
        length = 0
        while node >= 0:
            path[length] = node
            length += 1
            node = parent[node]
        for back in range(length - 1, -1, -1):
            out[at], out[at + 1], out[at + 2] = ids[PLAN], numbers[column[path[back]]], numbers[row[path[back]]]
            at += 3
    return at


@numba.njit(error_model="numpy")
def sokoban_by_hand(problems, stream, ids, words, cost_base, out):
    """The same for Sokoban with two boxes: a state is one integer of three 10-bit cells, found in a hash table."""
    width, height = np.int64(problems[0, 0]), np.int64(problems[0, 1])
    cells, grid = width * height, 8
    numbers, costs = ids[words:], ids[cost_base:]
    word_worker, word_box = ids[words - 1], ids[words - 2]
    nodes_most, table_size, highest_f = 1 << 13, 1 << 14, 1024  # 7x7 has at most 5,313 states
    table, table_node = np.zeros(table_size, dtype=np.int64), np.zeros(table_size, dtype=np.int32)
    states, parent = np.zeros(nodes_most, dtype=np.int32), np.zeros(nodes_most, dtype=np.int32)
    cost, estimate = np.zeros(nodes_most, dtype=np.int32), np.zeros(nodes_most, dtype=np.int32)
    closed = np.zeros(nodes_most, dtype=np.uint8)
    bucket, count = np.zeros((highest_f, 64), dtype=np.int32), np.zeros(highest_f, dtype=np.int32)
    wall, stuck, dock = np.zeros(cells, np.uint8), np.zeros(cells, np.uint8), np.zeros(cells, np.uint8)
    far = np.zeros((2, cells), dtype=np.int32)
    path, children, order = np.zeros(4096, dtype=np.int32), np.zeros(4, dtype=np.int32), np.zeros(4, dtype=np.int64)
    docks = np.zeros(2, dtype=np.int32)
    at = 0
    for epoch in range(1, len(problems) + 1):
        problem = problems[epoch - 1]
        for number in range(2):
            docks[number] = (problem[6 + number] >> 16) * height + (problem[6 + number] & 0xFFFF)
        for cell in range(cells):
            flags = problem[grid + cell]
            wall[cell], stuck[cell], dock[cell] = flags & 1, flags & 2, flags & 4
            for number in range(2):
                far[number, cell] = abs(cell // height - docks[number] // height) + abs(
                    cell % height - docks[number] % height
                )
        start = 0
        for entry in range(3):
            start = start << 10 | ((problem[3 + entry] >> 16) * height + (problem[3 + entry] & 0xFFFF))
        children[0], order[0] = start, 0
        candidates, node, child_cost, highest, nodes = 1, -1, 0, 0, 0
        least = highest_f
        while True:
            for turn in range(candidates):
                child = children[order[turn]]
                key = (child * 0x9E3779B1) & 0xFFFFFFFF
                slot = (key ^ (key >> 15)) & (table_size - 1)
                wanted = np.int64(epoch) << 32 | child
                while table[slot] >> 32 == epoch and table[slot] != wanted:
                    slot = (slot + 1) & (table_size - 1)
                if table[slot] == wanted:
                    found = table_node[slot]
                    if cost[found] <= child_cost:
                        continue
                else:
                    one, two, h = (child >> 10) & 1023, child & 1023, 0
                    if (stuck[one] and not dock[one]) or (stuck[two] and not dock[two]):
                        continue
                    first_open = docks[0] != one and docks[0] != two
                    second_open = docks[1] != one and docks[1] != two
                    if not dock[one]:
                        h += _nearest(far, one, first_open, second_open)
                    if not dock[two]:
                        h += _nearest(far, two, first_open, second_open)
                    found = nodes
                    nodes += 1
                    table[slot], table_node[slot] = wanted, found
                    states[found], estimate[found] = child, h
                cost[found], parent[found], closed[found] = child_cost, node, 0
                f = child_cost + estimate[found]
                if count[f] == bucket.shape[1]:
                    wider = np.zeros((highest_f, 2 * bucket.shape[1]), dtype=np.int32)
                    wider[:, : bucket.shape[1]] = bucket
                    bucket = wider
                bucket[f, count[f]] = found
                count[f] += 1
                least, highest = min(least, f), max(highest, f + 1)
                at = _put_level(
                    ids[CREATE],
                    child,
                    child_cost,
                    estimate[found],
                    height,
                    dock,
                    numbers,
                    costs,
                    out,
                    at,
                    word_worker,
                    word_box,
                )
            node = -1
            while least < highest:
                if count[least] == 0:
                    least += 1
                    continue
                count[least] -= 1
                place = below(stream, count[least] + 1)
                node = bucket[least, place]
                bucket[least, place] = bucket[least, count[least]]
                if closed[node] == 0 and cost[node] + estimate[node] == least:
                    break
                node = -1
            if node < 0:
                break
            closed[node] = 1
            state = states[node]
            at = _put_level(
                ids[CLOSE],
                state,
                cost[node],
                estimate[node],
                height,
                dock,
                numbers,
                costs,
                out,
                at,
                word_worker,
                word_box,
            )
            worker, one, two = state >> 20, (state >> 10) & 1023, state & 1023
            if dock[one] and dock[two]:
                break
            child_cost = cost[node] + 1
            candidates = 0
            for step in (1, -1, -height, height):
                target, beyond = worker + step, worker + 2 * step
                if wall[target]:
                    continue
                new_one, new_two = one, two
                if target in (one, two):
                    if wall[beyond] or beyond in (one, two):
                        continue
                    other = two if target == one else one
                    new_one, new_two = min(beyond, other), max(beyond, other)
                children[candidates] = target << 20 | new_one << 10 | new_two
                order[candidates] = candidates
                candidates += 1
            shuffle(stream, order, candidates)
        count[:highest] = 0
        length = 0
        while node >= 0:
            path[length] = states[node] >> 20
            length += 1
            node = parent[node]
        for back in range(length - 1, -1, -1):
            out[at], out[at + 1], out[at + 2] = ids[PLAN], numbers[path[back] // height], numbers[path[back] % height]
            at += 3
    return at


@numba.njit(forceinline=True, error_model="numpy")
def _nearest(far, cell, first_open, second_open):
    if first_open and second_open:
        return min(far[0, cell], far[1, cell])
    return far[0, cell] if first_open else far[1, cell]


@numba.njit(forceinline=True, error_model="numpy")
def _put_level(word, state, cost, estimate, height, dock, numbers, costs, out, at, word_worker, word_box):
    out[at], out[at + 1] = word, word_worker
    out[at + 2], out[at + 3] = numbers[(state >> 20) // height], numbers[(state >> 20) % height]
    at += 4
    for shift in (10, 0):
        box = (state >> shift) & 1023
        if not dock[box]:
            out[at], out[at + 1], out[at + 2] = word_box, numbers[box // height], numbers[box % height]
            at += 3
    out[at], out[at + 1] = costs[cost], costs[estimate]
    return at + 2


def generic_batch(searcher: Searcher) -> Callable:
    """The kernels of any domain, in the same loop as those by hand."""
    names = ("search", "put_trace", "put_plan")
    assert searcher.work is not None
    size = searcher.work.states.shape[1]
    kernels = specialise(kernel, names, searcher.domain.rules, STATE_SIZE=size)  # as Sampler does
    search, put_trace, put_plan = (getattr(kernels, name) for name in names)

    @numba.njit(error_model="numpy", _nrt=False)  # as compiled.py compiles `sample_and_search`, whose place this takes
    def batch(problems, stream, ids, words, cost_base, out, work):
        at = 0
        for index in range(len(problems)):
            problem = problems[index]
            if search(problem, stream, False, 1, 1, 1 << 62, True, work) != 0:
                return -1
            at = put_trace(problem, work, ids, words, cost_base, out, at)
            at = put_plan(problem, work, ids, words, out, at)
        return at

    return batch


def compare_by_hand(name: str, by_hand: Callable, tasks: int, repeats: int) -> list[tuple[float, float]]:
    """CPU seconds a task of the generic kernel and of the one by hand, for each repeat, after checking equal tokens."""
    domain = make_domain(*CASES[name][:2])
    problems, ids, words = problems_of(domain, tasks), ids_of(domain), len(domain.all_words)
    searcher = Searcher(domain, Options())
    for problem in problems:  # its memory grows to what these tasks need
        searcher.search(problem)
    for problem in problems:
        searcher.search(problem)
    batch, cost_base = generic_batch(searcher), words + domain.numbers
    outputs = [np.zeros(1 << 25, dtype=ids.dtype) for _ in range(2)]

    def generic(stream: np.ndarray) -> int:
        return batch(problems, stream, ids, words, cost_base, outputs[0], searcher.work)

    def special(stream: np.ndarray) -> int:
        return by_hand(problems, stream, ids, words, cost_base, outputs[1])

    pairs = []
    for repeat in range(repeats + 1):
        seconds, ends = {}, set()
        for run in (generic, special) if repeat % 2 else (special, generic):
            stream, begin = seeding.new_stream(0, "bench"), time.process_time()
            ends.add(run(stream))
            seconds[run] = (time.process_time() - begin) / tasks
        (end,) = ends
        assert np.array_equal(outputs[0][:end], outputs[1][:end])
        pairs.append((seconds[generic], seconds[special]))
    return pairs[1:]


# --- the benchmark


def measure_speed(share: float, repeats: int) -> Iterator[tuple[str, float]]:
    """Rates of every case, in memory and to disk, and against readable code."""
    for name, (registered, settings, full) in CASES.items():
        domain, tasks = make_domain(registered, settings), int(full * share)
        sampler = make_sampler(domain, seed=0)

        def in_memory(_: int, sampler: Sampler = sampler, tasks: int = tasks) -> int:
            return draw(sampler, tasks)

        def to_disk(seed: int, kind: str = registered, settings: dict = settings, tasks: int = tasks) -> int:
            time_generate(kind, settings, tasks, seed, 1)
            return tasks

        with one_core():
            rate = show(f"{name}_search_tasks_per_second", rates(in_memory, repeats))
            yield f"{name}_search_tasks_per_second", rate
            slow = time_reference(domain, seconds=3 * share)
            yield f"{name}_ratio_to_reference_py", show(f"{name}_ratio_to_reference_py", [rate / slow])
            yield f"{name}_tasks_per_second", show(f"{name}_tasks_per_second", rates(to_disk, max(1, repeats // 2)))


def measure_workers(share: float, repeats: int) -> Iterator[tuple[str, float]]:
    """Two workers against one, by the clock. A shard is made by one worker, so each gets whole ones, and as many."""
    pair = 2 * ROWS_PER_SHARD
    for name, rounds in (("maze10", 8), ("sokoban", 2)):
        registered, settings, _ = CASES[name]
        more = max(1, round(rounds * share))

        def marginal(workers: int, seed: int, kind=registered, settings=settings, more=more) -> float:
            counts = (pair, pair + more * pair)
            few, many = (time_generate(kind, settings, count, seed, workers)[1] for count in counts)
            return many - few

        ratio = [marginal(1, seed) / marginal(2, seed) for seed in range(max(1, repeats // 2))]
        yield f"{name}_two_workers_ratio", show(f"{name}_two_workers_ratio", ratio)


def measure_by_hand(share: float, repeats: int) -> Iterator[tuple[str, float]]:
    """The generic kernel against those by hand; with sampling, which both share, for mazes, where it takes its time."""
    with one_core():
        pairs = compare_by_hand("maze10", maze_by_hand, int(20_000 * share), repeats)
        key, tasks = "generic_to_specialised_maze", int(40_000 * share)
        yield key, show(key, [special / generic for generic, special in pairs])
        sampler = make_sampler(make_domain(*CASES["maze10"][:2]), seed=0)
        whole = 1 / statistics.median(rates(lambda _: draw(sampler, tasks), repeats))
        shares = [(whole - generic + special) / whole for generic, special in pairs]
        yield f"{key}_with_sampling", show(f"{key}_with_sampling", shares)
        pairs = compare_by_hand("sokoban", sokoban_by_hand, int(1_000 * share), repeats)
        key = "generic_to_specialised_sokoban"
        yield key, show(key, [special / generic for generic, special in pairs])


def measure_processes(share: float, repeats: int) -> Iterator[tuple[str, float]]:
    """Compile times, and memory at N and 4 N tasks, each in a process of its own."""
    for name in ("maze10", "sokoban"):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                took = in_process("--start", name, NUMBA_CACHE_DIR=cache)
                print(f"{name} first tasks, {state}: {took['seconds']:.2f} s by the clock", flush=True)
                key = f"{name}_compile_{state}_cpu_seconds"
                yield key, show(key, [took["cpu_seconds"]])
        tasks = int(CASES[name][2] * share)
        for label, count in (("n", tasks), ("4n", 4 * tasks)):
            key = f"{name}_megabytes_{label}"
            yield key, show(key, [in_process("--memory", name, "--tasks", str(count))["megabytes"]])


PARTS = {"speed": measure_speed, "workers": measure_workers, "by-hand": measure_by_hand, "processes": measure_processes}


def main() -> None:
    """Print the figures; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts")
    parser.add_argument("--start", choices=CASES, help="only time the first tasks of a domain")
    parser.add_argument("--memory", choices=CASES, help="only measure the memory of making --tasks tasks")
    parser.add_argument("--tasks", type=int, default=1000)
    chosen = parser.parse_args()
    begin = time.perf_counter()
    if chosen.start:
        figures = measure_start(chosen.start)
    elif chosen.memory:
        figures = measure_memory(chosen.memory, chosen.tasks)
    else:
        share, repeats = (0.1, 2) if chosen.quick else (1.0, 5)
        figures = {name: value for part in chosen.only for name, value in PARTS[part](share, repeats)}
        figures["benchmark_seconds"] = time.perf_counter() - begin
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
