"""The documentation cannot rot: commands and snippets are run, outputs compared, links followed, fields looked up."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import recipe_fields
from documents import COMMANDS, RECORDS, ROOT, SHOWN, Block, blocks, commands_in, inline_commands, links, pages

from searchformer.bootstrap import rules
from searchformer.cli import make_app
from searchformer.cli import run as run_command
from searchformer.model import SIZES
from searchformer.pretrained import packaged_models
from searchformer.recipes.recipe import shipped_names

PAGES = [page for page in pages() if page not in RECORDS]
BLOCKS = [block for page in PAGES for block in blocks(page)]
UNRUN = [block for block in BLOCKS if block.reason is not None]
TO_COME = {"docs/images/accuracy-against-length.png", "docs/images/web-light.png"}
"""Pictures that README.md shows and that are made with the results."""


def runs(block: Block) -> bool:
    return block.language in COMMANDS and block.reason is None


# --- running a page


@pytest.fixture
def page_directory(tmp_path, monkeypatch) -> Path:
    """An empty directory with the repository's tests beside it, and a `searchformer` command that is this one."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    tools = tmp_path / ".tools"
    tools.mkdir()
    for name, words in {
        "searchformer": "-m searchformer",
        "torchrun": "-m torch.distributed.run",
        "python": "",
    }.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # the tests share the cores
    monkeypatch.setattr(rules, "RULES", dict(rules.RULES))  # a page adds one
    return tmp_path


@pytest.mark.parametrize("document", sorted({block.page for block in BLOCKS if runs(block)}))
def test_the_commands_and_snippets_of_a_page_do_what_it_says(document, page_directory):
    names: dict[str, object] = {"__name__": "__main__"}
    differences = []
    for block in blocks(document):
        if block.title:
            (page_directory / block.title).parent.mkdir(parents=True, exist_ok=True)
            (page_directory / block.title).write_text(block.text, encoding="utf-8")
        elif runs(block):
            stdout, stderr, code = run_python(block, names) if block.language == "python" else run_shell(block)
            assert code == block.exit_code, f"{block.name}: exit code {code}\n{stdout}\n{stderr}"
            if block.output is not None:
                differences += difference(block, stderr if block.exit_code else stdout)
    assert not differences, "\n\n".join(differences)


def run_python(block: Block, names: dict[str, object]) -> tuple[str, str, int]:
    """Run a snippet in the page's namespace."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block.text, block.name, "exec"), names)
    return out.getvalue(), "", 0


def run_shell(block: Block) -> tuple[str, str, int]:
    """Run the commands of a block: plain ones in this process, which spares each of them the loading of torch."""
    if not all(re.fullmatch(r"searchformer [^|<>;&$`]*", line.partition(" #")[0]) for line in block.lines):
        script = f"set -euo pipefail\n{block.small}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        return done.stdout, done.stderr, done.returncode
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        for line in block.lines:
            code = run_command(shlex.split(line, comments=True)[1:])
            if code:
                break
    return out.getvalue(), err.getvalue(), code


def difference(block: Block, found: str) -> list[str]:
    """What was printed beside what the page shows, if they differ; `...` is anything."""
    shown, printed = (
        "\n".join(line.rstrip() for line in text.strip("\n").split("\n")) for text in (block.output or "", found)
    )
    pattern = ".*".join(map(re.escape, shown.split("...")))
    same = re.fullmatch(pattern, printed, re.DOTALL)
    return [] if same else [f"{block.name} shows\n{shown}\nbut it prints\n{printed}"]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a \nb\n\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("9 tasks in ... s\n", "9 tasks in 1.25 s\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("1 task\n", "2 tasks\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_that_differs_is_found(shown, printed, same):
    assert (difference(Block("page.md", 1, "sh", None, "", (), shown), printed) == []) == same


# --- what is not run


@pytest.mark.parametrize("block", UNRUN, ids=lambda block: f"{block.name} {block.reason}")
def test_a_block_that_is_not_run_says_why_and_has_commands_that_exist(block):
    assert block.reason
    for words in commands_in(block.text) if block.language == "sh" else ():
        parse(words)


@pytest.mark.parametrize("document", PAGES)
def test_commands_in_the_running_text_exist(document):
    for command in inline_commands(document):
        for words in commands_in(command):
            if len(words) > 1 or words[0].startswith("-"):
                parse(words)
            else:
                assert words[0] in make_app(), f"{document}: {command}"


def parse(words: list[str]) -> None:
    """Raise unless the command line takes these words."""
    make_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("words", [["train", "--no-such-option"], ["run", "--jobs", "many"], ["fly", "south"]])
def test_a_command_that_does_not_exist_is_found(words):
    with pytest.raises(Exception, match=r"."):
        parse(words)


def test_every_block_says_what_it_is():
    strange = [f"{b.name}: {b.language!r}" for b in BLOCKS if not b.title and b.language not in COMMANDS | SHOWN]
    assert strange == []


# --- links and fields


@pytest.mark.parametrize("document", pages())
def test_links_lead_somewhere(document):
    missing = []
    for target in links(document):
        path, _, anchor = target.partition("#")
        there = ((ROOT / document).parent / path).resolve() if path else ROOT / document
        if not there.exists():
            missing.append(there.relative_to(ROOT).as_posix())
        elif anchor and anchor not in anchors(there):
            missing.append(target)
    assert set(missing) <= (TO_COME if document == "README.md" else set())


def anchors(path: Path) -> set[str]:
    """The headings of a page as GitHub and mkdocs name them in addresses."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_page_on_recipes_has_every_field_as_the_models_have_it():
    page = recipe_fields.PAGE.read_text(encoding="utf-8")
    assert page == recipe_fields.with_tables(page), "run `python tests/recipe_fields.py`"


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("docs/recipes.md", shipped_names()),
        ("docs/bootstrapping.md", tuple(rules.RULES)),
        ("docs/solving.md", tuple(model.name for model in packaged_models())),
        ("docs/training.md", tuple(SIZES)),
    ],
)
def test_a_page_names_all_that_there_is(document, names):
    page = (ROOT / document).read_text(encoding="utf-8")
    assert len(names) > 2
    assert [name for name in names if f"`{name}`" not in page] == []


# --- the site and the notebook


def test_the_site_builds_and_loads_nothing_from_the_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "data.html", "contributing/domain.html"} <= built
    loaded = r"""<(?:script|img|iframe)[^>]*src=["']?https?:|<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*https?:"""
    for name in built:
        html = (tmp_path / name).read_text(encoding="utf-8")
        assert not re.search(loaded, html), name
        assert "A<em>" not in html, f"{name}: an A* begins italics"


def test_the_tour_runs_from_the_first_cell_to_the_last(tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCHFORMER_TOUR", "small")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    execute = [sys.executable, "-c", "from nbclient.cli import main; main()", str(ROOT / "docs" / "tour.ipynb")]
    done = subprocess.run(execute, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("searchformer-tour-*")
    assert (run / "bootstrap" / "round-1" / "train" / "model" / "model.safetensors").is_file()


def test_every_test_that_the_fault_table_names_is_there():
    table = [line for line in (ROOT / "docs/reliability.md").read_text().splitlines() if line.startswith("| ")]
    named = [name for line in table for name in re.findall(r"`((?:test_\w+\.py::)?test_[\w.]+)(?:\[\w+\])?`", line)]
    assert len(named) > 20
    for name in named:
        file, _, test = name.rpartition("::")
        pattern = r"\w*".join(map(re.escape, test.split("...")))
        text = (ROOT / "tests" / (file or "test_reliability.py")).read_text()
        assert test.endswith(".py") or re.search(rf"^def {pattern}\(", text, re.MULTILINE), f"{name}: no such test"
