"""Planning tasks for `verifiers`, under the name by which it finds them: `--env.taskset.id searchformer-taskset`."""

from searchformer.interop.taskset import PlanningTaskset

__all__ = ["PlanningTaskset"]
