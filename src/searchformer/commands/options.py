"""Options that several commands share."""

import re
from typing import Any

from searchformer.domains import Domain, domain_class
from searchformer.errors import SearchformerError


def domain_settings(name: str, given: list[str]) -> dict[str, Any]:
    """Settings of domain `name` from words such as `--boxes 2` or `--boxes=2`, as the command line leaves them."""
    fields = domain_class(name).model_fields
    settings: dict[str, Any] = {}
    words = iter(given)
    for word in words:
        match = re.fullmatch(r"--([a-z][a-z-]*)(?:=(.*))?", word)
        field = match.group(1).replace("-", "_") if match else ""
        if field not in fields:
            known = ", ".join("--" + field.replace("_", "-") for field in fields)
            raise SearchformerError(f"{name} has no option {word!r}; it has {known}")
        assert match is not None
        value = match.group(2) if match.group(2) is not None else next(words, None)
        if value is None:
            raise SearchformerError(f"option --{field.replace('_', '-')} needs a value")
        settings[field] = int(value) if re.fullmatch(r"-?\d+", value) else value
    return settings


def describe_settings(domain: Domain) -> str:
    """The settings that matter, in one line."""
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in domain.model_dump(exclude_none=True).items())
