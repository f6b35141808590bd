"""Transformers that learn to plan by imitating A*, then search less than A* does."""

__version__ = "0.1.0"
