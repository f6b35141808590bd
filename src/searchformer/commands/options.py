"""What several commands' signatures share."""

import re
from typing import Annotated, Any

from cyclopts import Parameter

from searchformer.errors import SearchformerError, shown
from searchformer.options import option_name

Flat = Parameter(name="*")
"""Each field of the options model is an option of the command."""
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object as the last line.")]
DomainName = Annotated[str, Parameter(help="maze, sokoban, tiles, or a domain that another package registers.")]
Settings = Annotated[str, Parameter(name="--SETTING", help="The domain's own settings, such as --width.")]


def domain_settings(name: str, given: dict[str, str]) -> dict[str, Any]:
    """Settings of domain `name` from the words of the command line."""
    from searchformer.domains import domain_class

    fields = domain_class(name).model_fields
    given = {word.replace("-", "_"): value for word, value in given.items()}
    for field in given:
        if field not in fields:
            known = ", ".join(map(option_name, fields))
            raise SearchformerError(f"{name} has no option {shown(option_name(field))}; it has {known}")
    values = {field: int(value) if re.fullmatch(r"-?\d+", value) else value for field, value in given.items()}
    _require_valid(name, values)
    return values


def _require_valid(name: str, values: dict[str, Any]) -> None:
    """Raise the first mistake in these settings as that of an option; settings that are left out are not checked."""
    from pydantic import ValidationError

    from searchformer.domains import domain_class

    try:
        domain_class(name)(**values)
    except ValidationError as error:
        if error.errors()[0]["loc"]:
            raise
