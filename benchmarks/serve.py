"""How many viewers a server can serve, streaming at once against one alone; and how soon A* follows a hand that drags.

Starts `searchformer serve`, asks one question at a time, then 20 at a time, through WebSockets as browsers do. A search
that streams with others should not be slower than a tenth of one alone; the ratio of rates (tokens per second of each
viewer) decides, not the absolute times. Searches of A* are timed in this process: processor time from the text of a
request to the text of its reply. The last line is JSON. Try: `python benchmarks/serve.py --viewers 20`
"""

import argparse
import asyncio
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import websockets

TASK = {
    "width": 6,
    "height": 6,
    "start": [0, 4],
    "goal": [3, 0],
    "walls": [[0, 0], [2, 1], [4, 2], [5, 2], [1, 3], [2, 3], [4, 3], [5, 3], [0, 5]],
}


SIZES, KINDS, ALGORITHMS = (10, 20, 30), ("random", "perfect", "empty"), ("astar", "dijkstra")


def search_milliseconds(*, repeats: int) -> dict[str, float]:
    """Median processor time of a request, by algorithm and size; of the kinds of maze, the slowest."""
    from searchformer.web.mazes import new_task
    from searchformer.web.records import NewTask, SearchRequest
    from searchformer.web.searches import Searches, read_task

    searches, slowest = Searches(), dict[str, float]()

    def once(text: str) -> float:
        began = time.process_time()
        asked = SearchRequest.model_validate_json(text)
        searches.run(read_task(asked.task), asked).model_dump_json()
        return 1000 * (time.process_time() - began)

    for size in SIZES:
        for kind in KINDS:
            task = new_task(NewTask(domain="maze", kind=kind, width=size, height=size, seed=1))  # type: ignore[arg-type]
            for algorithm in ALGORITHMS:
                text = json.dumps({"task": task, "algorithm": algorithm})
                found = statistics.median([once(text) for _ in range(repeats + 1)][1:])
                name = f"{algorithm}_{size}x{size}_milliseconds"
                slowest[name] = max(slowest.get(name, 0.0), round(found, 1))
    return slowest


async def watch(address: str, number: int) -> dict[str, float]:
    """One viewer: seconds from the question to the first and to the last tokens, and tokens."""
    began, first, tokens = time.perf_counter(), 0.0, 0
    host = address.removeprefix("http://")
    async with websockets.connect(f"ws://{host}/api/ask", origin=address) as socket:  # type: ignore[arg-type]
        await socket.send(json.dumps({"task": TASK, "first": number}))
        async for text in socket:
            message = json.loads(text)
            if message["type"] == "error":
                raise SystemExit(f"the server refuses: {message['reason']}")
            if message["type"] == "tokens":
                first = first or time.perf_counter() - began
                tokens += sum(len(answer["tokens"]) for answer in message["answers"].values())
            if message["type"] == "answer":
                break
    return {"first_seconds": first, "seconds": time.perf_counter() - began, "tokens": tokens}


async def measure(address: str, *, viewers: int, repeats: int) -> dict[str, Any]:
    """The same questions one after the other, and all at once."""
    await asyncio.gather(*(watch(address, number) for number in range(viewers)))  # warm-up: kernels compile
    alone, together = [], []
    for _ in range(repeats):
        alone += [await watch(address, number) for number in range(viewers)]
        together += await asyncio.gather(*(watch(address, number) for number in range(viewers)))
    rates = {
        name: statistics.median(each["tokens"] / each["seconds"] for each in found)
        for name, found in (("alone", alone), ("together", together))
    }
    slowest = min(each["tokens"] / each["seconds"] for each in together)
    return {
        "viewers": viewers,
        "tokens_per_second_alone": round(rates["alone"], 1),
        "tokens_per_second_each_of_many": round(rates["together"], 1),
        "tokens_per_second_all_of_many": round(viewers * rates["together"], 1),
        "share_of_alone": round(rates["together"] / rates["alone"], 3),
        "slowest_share_of_alone": round(slowest / rates["alone"], 3),
        "first_tokens_seconds_alone": round(statistics.median(each["first_seconds"] for each in alone), 3),
        "first_tokens_seconds_of_many": round(statistics.median(each["first_seconds"] for each in together), 3),
    }


def main() -> None:
    """Start a server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "searchformer", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "the server did not start"
            result = asyncio.run(measure(found[0], viewers=options.viewers, repeats=options.repeats))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=60)
    result |= search_milliseconds(repeats=options.repeats)
    for name, value in result.items():
        print(f"{name:35} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
