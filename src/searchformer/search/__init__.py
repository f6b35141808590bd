"""A* and its kin: `Searcher(domain).search(problem)` gives a `Trace`."""

from searchformer.search.searcher import BudgetError, Options, Sampler, Searcher

__all__ = ["BudgetError", "Options", "Sampler", "Searcher"]
