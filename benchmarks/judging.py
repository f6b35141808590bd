"""How many answers a second the judge takes, on one core: 300-token maze answers, plan and trace both judged.

Run: `python benchmarks/judging.py`. The last line is JSON; the target is 10,000 answers a second.
"""

import json
import os
import statistics
import time

import numpy as np

from searchformer.domains import make_domain
from searchformer.evaluate.judge import Judge
from searchformer.search import Searcher
from searchformer.search.compiled import bind
from searchformer.search.validate import codes_of
from searchformer.seeding import new_stream
from searchformer.tokens.grammar import write_text

REPEATS = 5


def answers(count: int) -> list[tuple]:
    """Problems with legal answers of 250 to 350 tokens, as codes, and their optimal lengths."""
    domain = make_domain("maze", {"width": 10, "height": 10})
    searcher, rules, found, index = Searcher(domain), bind(domain.rules), [], 0
    while len(found) < count:
        problem, stream = np.zeros(domain.problem_size(), dtype=np.int32), new_stream(0, "bench", index)
        rules["sample_layout"](domain.sampling(), stream, problem)
        rules["sample_task"](domain.sampling(), stream, problem)
        index += 1
        trace = searcher.search(problem, seed=index)
        if trace.solvable:
            _, steps, plan = write_text(domain, problem, trace)
            tokens = f"{steps} {plan}".split()
            if 250 <= len(tokens) <= 350:
                found.append((problem, codes_of(domain, tokens), len(trace.plan)))
    return found


def main() -> None:
    """Measure and print."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    batch = answers(300)
    judge = Judge(make_domain("maze", {"width": 10, "height": 10}))
    rates = []
    for repeat in range(REPEATS + 1):
        began = time.perf_counter()
        for _ in range(10):
            for problem, codes, optimal in batch:
                verdict = judge.judge(problem, codes, optimal_length=optimal)
                assert verdict.verdict == "optimal"
                assert verdict.trace_legal
        if repeat:  # the first one warms up
            rates.append(10 * len(batch) / (time.perf_counter() - began))
    tokens = statistics.mean(len(codes) for _, codes, _ in batch)
    print(
        f"{statistics.median(rates):,.0f} answers/s, {min(rates):,.0f} to {max(rates):,.0f}; mean {tokens:.0f} tokens"
    )
    print(json.dumps({"answers_per_second": round(statistics.median(rates)), "mean_tokens": round(tokens, 1)}))


if __name__ == "__main__":
    main()
