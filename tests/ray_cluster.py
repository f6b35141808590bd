"""Three Ray nodes on this machine, for tests: real processes that share nothing but the disk."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}


@contextlib.contextmanager
def three_nodes() -> Iterator[Any]:
    """A cluster with one processor per node; its `address` is what --ray-address takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        import ray
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 1,
            "node_ip_address": "127.0.0.1",
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
        }
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=100 << 20)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
