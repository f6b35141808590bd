"""The processes of one run: one alone, or several as in `torchrun --nproc-per-node 2 -m searchformer train ...`."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from searchformer.model.device import choose_device


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and talks to the user."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_first(self, value: Any) -> Any:
        """The first process's value, in every process; also a point where all wait for it."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


@contextlib.contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the other processes, if torchrun started several; gloo on the CPU, nccl on GPUs."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    if world == 1:
        yield Processes(rank=0, world=1, device=chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Processes(rank=rank, world=world, device=chosen)
    finally:
        dist.destroy_process_group()


def end_process() -> None:
    """Exit 0 at once if torchrun started this process: the work is done and the files are closed.

    Python's own shutdown races with gloo's threads, which may still hold tensors: now and then one of them aborts a
    process whose training is complete, and torchrun calls the whole run failed.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
