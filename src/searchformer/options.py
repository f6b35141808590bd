"""Options: an option is written once, as a field of a model.

Its name, type, bounds, default and the line below it serve the command line and its help, recipes, stored
configurations and the check that a resumed run is the same run.
"""

import shlex
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from searchformer.errors import SearchformerError, cut


class MayChange:
    """Marks an option that may differ when a run is resumed: `save_every: Annotated[int, MayChange] = 500`."""


class OptionsModel(BaseModel):
    """Options, checked once and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Options from unchecked values; raises SearchformerError, naming the first wrong one."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SearchformerError(option_error(error)) from None

    def may_change(self) -> set[str]:
        """Names of the options that may differ when a run is resumed."""
        return {name for name, field in type(self).model_fields.items() if MayChange in field.metadata}

    def result_fields(self) -> dict[str, Any]:
        """The options that decide the result, as JSON values: a resumed run must have the same ones."""
        return self.model_dump(mode="json", context={"result fields only": True})

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leaves out what may change if `result_fields` asks, in options within options too."""
        left_out = self.may_change() if info.context else set()
        return {name: value for name, value in handler(self).items() if name not in left_out}

    def words(self) -> list[str]:
        """The command-line words that give these options; those at their defaults are left out."""
        words = []
        for name, value in self.model_dump(mode="json", exclude_defaults=True).items():
            flag = option_name(name)
            if isinstance(value, bool):
                words.append(flag if value else option_name(f"no_{name}"))
            else:
                words += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
        return words


def option_name(field: str) -> str:
    """`batch_size` as `--batch-size`."""
    return f"--{field.replace('_', '-')}"


def option_error(error: ValidationError) -> str:
    """The first mistake in one line: `--temperature 0: input should be greater than 0`."""
    first = error.errors()[0]
    message = error_message(first)
    if not first["loc"]:
        return message
    name = option_name("-".join(map(str, first["loc"])))
    given = "" if first["type"] in ("missing", "extra_forbidden") else f" {shlex.quote(cut(str(first['input'])))}"
    return f"{name}{given}: {message}"


def error_message(error: Any) -> str:
    """What pydantic says of one mistake, as the end of a sentence."""
    kinds = {
        "extra_forbidden": "no such option",
        "missing": "this option is missing",
        "int_parsing": "input should be a whole number",
        "int_from_float": "input should be a whole number",
        "float_parsing": "input should be a number",
    }
    message = kinds.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return message if message.startswith("--") else message[:1].lower() + message[1:]
