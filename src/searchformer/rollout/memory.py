"""How much memory a process has taken."""

import sys

try:
    import resource
except ImportError:  # Windows has no such module
    resource = None  # type: ignore[assignment]


def peak_memory_gb() -> float:
    """Largest resident memory of this process so far; 0 where the system does not tell."""
    if resource is None:
        return 0.0
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / 1e9
