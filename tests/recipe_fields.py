"""The tables of fields in docs/recipes.md, made from the models that read recipes.

`python tests/recipe_fields.py` writes them into the page, between its comments; tests/test_docs.py compares.
"""

from typing import Any

from documents import ROOT

from searchformer.recipes.recipe import BootstrapSpec, DataSpec, EvaluationSpec, Recipe, ReportSpec, TrainSpec
from searchformer.train.options import LearningOptions

PAGE = ROOT / "docs" / "recipes.md"
SECTIONS = {
    "recipe": Recipe,
    "data": DataSpec,
    "train": TrainSpec,
    "evaluation": EvaluationSpec,
    "bootstrap": BootstrapSpec,
    "report": ReportSpec,
}
AS_IN_TRAIN = frozenset(LearningOptions.model_fields) - {"steps"}
"""Fields that `[[bootstrap]]` shares with `[[train]]`."""
KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def table(section: str) -> str:
    """The fields of a section, a row each."""
    model = SECTIONS[section]
    schema = model.model_json_schema()
    rows = ["| field | type | default | what it is |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        if section == "bootstrap" and name in AS_IN_TRAIN:
            continue
        default = "required" if name in schema.get("required", ()) else _default(field.get("default"))
        text = str(model.model_fields[name].description).replace("\n", " ")
        rows.append(f"| `{name}` | {_kind(field)} | {default} | {text} |")
    return "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else f"`{value}`"


def _kind(field: dict[str, Any]) -> str:
    """The type of a field in words, with its bounds."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
    kind = options[0]
    if "$ref" in kind or kind.get("type") == "object":
        return "table"
    if kind.get("type") == "array":
        items = kind["items"]
        return "list of tables" if "$ref" in items else f"{_kind(items)}, or a list"
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    limits = [f"{word} {kind[bound]:g}" for bound, word in bounds.items() if bound in kind]
    return " ".join([KINDS[kind["type"]], *limits])


def with_tables(text: str) -> str:
    """The page with today's tables between `<!-- fields of X -->` and `<!-- end -->`."""
    for section in SECTIONS:
        begin = f"<!-- fields of {section} -->\n"
        before, _, rest = text.partition(begin)
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"{PAGE} has no place for the fields of {section}"
        text = f"{before}{begin}\n{table(section)}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
