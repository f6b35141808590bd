"""Sampling answers: the engine, its readable twin, and the directory that answers are kept in."""

from searchformer.rollout.dispatch import RolloutOptions, roll_out
from searchformer.rollout.engine import Engine
from searchformer.rollout.naive import sample_naively
from searchformer.rollout.requests import Answer, Prompt, Sampling

__all__ = ["Answer", "Engine", "Prompt", "RolloutOptions", "Sampling", "roll_out", "sample_naively"]
