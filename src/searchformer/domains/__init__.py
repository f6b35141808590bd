"""What a planning task is: `make_domain("maze", {"width": 6, "height": 6})`; `domain_names()` lists the names."""

from searchformer.domains.base import (
    DEAD_END,
    KEYWORDS,
    Domain,
    Group,
    Groups,
    Rules,
    Shapes,
    TaskError,
    domain_class,
    domain_names,
    make_domain,
)

__all__ = [
    "DEAD_END",
    "KEYWORDS",
    "Domain",
    "Group",
    "Groups",
    "Rules",
    "Shapes",
    "TaskError",
    "domain_class",
    "domain_names",
    "make_domain",
]
