"""Judging and scoring: what answers are worth, and how much search they took."""
