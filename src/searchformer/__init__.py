"""Transformers that learn to plan by imitating A*, then search less than A* does."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchformer.records import Verdict

__version__ = "0.1.0"
__all__ = ["__version__", "judge"]


def judge(task: dict[str, Any], answer: str, *, paper: bool = False, **settings: Any) -> "Verdict":
    """Judge an answer (space-separated tokens, without bos and eos) to a task in JSON; see `evaluate.judge`."""
    from searchformer.evaluate.judge import judge as judge_answer

    return judge_answer(task, answer, paper=paper, **settings)
