"""Kill `searchformer generate` at random moments, start it again, and compare the bytes with an uninterrupted run.

The test suite does it a few times; `python tests/crash_generate.py 20 SEED` does it at 20 moments drawn from SEED.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = ["maze", "--width", "6", "--height", "6", "--tasks", "20000", "--seed", "3"]


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones too."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def start(out: Path, *, workers: int) -> subprocess.Popen:
    """`searchformer generate` as a process of its own, with its own process group."""
    command = [sys.executable, "-m", "searchformer", "generate", *OPTIONS, "--workers", str(workers), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def finish(process: subprocess.Popen) -> float:
    """Wait for a process that must succeed; the seconds it took."""
    began = time.monotonic()
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return time.monotonic() - began


def kill(process: subprocess.Popen) -> None:
    """kill -9 to the coordinator alone; its workers must end by themselves."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 30
    while running := _members(process.pid):
        assert time.monotonic() < end, f"processes {running} outlive the one that started them"
        time.sleep(0.02)


def _members(group: int) -> list[int]:
    """Processes of a group that are running."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:
            continue  # it ended in between
        if fields and fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(entry))
    return found


def survive(directory: Path, *, moments: int, seed: int, kills: int = 2) -> int:
    """Make data sets that are each killed up to `kills` times, `moments` in all. How many kills came before the end."""
    chance = random.Random(seed)
    seconds = finish(start(directory / "whole", workers=1))
    expected = contents(directory / "whole")
    hits = done = 0
    while done < moments:
        out, workers = directory / f"killed-{done}", chance.choice([1, 2])
        for _ in range(min(kills, moments - done)):
            process = start(out, workers=workers)
            time.sleep(chance.uniform(0, seconds))
            hits += process.poll() is None
            kill(process)
            done += 1
        finish(start(out, workers=3 - workers))
        assert contents(out) == expected, f"other bytes after {done} kills: {out} (seed {seed})"
    return hits


if __name__ == "__main__":
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as directory:
        hits = survive(Path(directory), moments=moments, seed=seed)
    print(f"killed at {moments} moments, {hits} of them before the end; the same bytes each time (seed {seed})")
