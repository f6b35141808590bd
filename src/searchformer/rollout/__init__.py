"""Sampling answers: the engine, its readable twin, and the directory that answers are kept in."""

from searchformer.rollout.engine import Engine
from searchformer.rollout.naive import sample_naively
from searchformer.rollout.requests import Answer, Prompt, Sampling
from searchformer.rollout.work import RolloutOptions, roll_out

__all__ = ["Answer", "Engine", "Prompt", "RolloutOptions", "Sampling", "roll_out", "sample_naively"]
