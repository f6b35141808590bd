"""The processes of one run: a single one, or several as in `torchrun --nproc-per-node 2 -m searchformer train ...`.

They may run on several machines. The first one makes every decision that depends on files or measurements.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from searchformer.errors import FirstProcessError, SearchformerError
from searchformer.model.device import choose_device

T = TypeVar("T")


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

    def broadcast(self, tensor: Tensor) -> None:
        """Replace the tensor by the first process's, in place."""
        if self.world > 1:
            dist.broadcast(tensor, src=0)

    def from_first(self, decide: Callable[[], T]) -> T:
        """Call `decide` in the first process only; every process returns what it returned, or raises what it raised.

        The others wait for it here, so this is also how the first process goes ahead.
        """
        if self.world == 1:
            return decide()
        outcome: list[T | SearchformerError | None] = [None]
        if self.is_first:
            try:
                outcome = [decide()]
            except SearchformerError as error:
                outcome = [error]
        dist.broadcast_object_list(outcome, src=0)
        if isinstance(outcome[0], SearchformerError):
            raise outcome[0] if self.is_first else FirstProcessError(str(outcome[0]))
        return cast(T, outcome[0])


@contextlib.contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the other processes, if several were started together; gloo on the CPU, nccl on GPUs."""
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
