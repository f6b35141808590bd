"""The arrow of imports: each room imports from rooms above it only, and nothing loads torch that can do without."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import searchformer
from searchformer.cli import COMMANDS

PACKAGE = Path(searchformer.__file__).parent
ROOMS = [
    {"addresses", "compiling", "digests", "display", "errors", "extras", "files", "lifetime", "options", "records"}
    | {"seeding"},
    {"engines"},
    {"domains"},
    {"search"},
    {"tokens"},
    {"dataset"},
    {"model"},
    {"train"},
    {"rollout"},
    {"evaluate"},
    {"bootstrap"},
    {"report"},
    {"pretrained"},
    {"solve"},
    {"interop", "recipes", "web"},
    {"api", "commands", "envs"},
    {"cli"},
    {"__main__"},
]
DEPTH = {room: depth for depth, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE
)


def room_of(path):
    return path.parts[0].removesuffix(".py")


def imported_rooms(source, path):
    """Rooms that the text of module `path` imports, wherever in it the import stands."""
    package = ("searchformer", *path.parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            modules = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            first, _, rest = module.partition(".")
            if first == "searchformer" and rest.split(".")[0] in DEPTH:
                yield rest.split(".")[0]


def against_the_arrow(source, path):
    """Imported rooms that do not lie above the module's own; the ground floor's modules may use each other."""
    own = room_of(path)
    return [room for room in imported_rooms(source, path) if room != own and DEPTH[room] >= max(DEPTH[own], 1)]


def loaded(code):
    """Names of the modules that a fresh process has loaded after running `code`."""
    report = f"{code}\nimport sys\nprint('modules:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("path", FILES, ids=str)
def test_each_room_imports_only_from_rooms_above_it(path):
    assert room_of(path) in DEPTH, f"{path}: say in this test where the new room stands"
    assert against_the_arrow((PACKAGE / path).read_text(), path) == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("domains/maze.py", "from searchformer.search import kernel", ["search"]),
        ("domains/maze.py", "def f():\n    import searchformer.train.loop", ["train"]),
        ("domains/maze.py", "from searchformer import files, report", ["report"]),
        ("tokens/grammar.py", "from ..dataset import store", ["dataset"]),
        ("tokens/grammar.py", "from . import vocabulary\nfrom searchformer.search import kernel", []),
        ("files.py", "from searchformer.errors import SearchformerError", []),
        ("files.py", "from searchformer.domains import Domain", ["domains"]),
        ("commands/train.py", "from searchformer.cli import build", ["cli"]),
    ],
)
def test_an_import_against_the_arrow_is_found(path, source, found):
    assert against_the_arrow(source, Path(path)) == found


@pytest.mark.parametrize("room", ["domains", "search", "tokens", "dataset", "evaluate", "report"])
def test_rooms_that_need_no_torch_do_not_load_it(room):
    names = [module.name for module in pkgutil.walk_packages([str(PACKAGE / room)], f"searchformer.{room}.")]
    modules = loaded("\n".join(f"import {name}" for name in [f"searchformer.{room}", *names]))
    assert f"searchformer.{room}" in modules
    assert "torch" not in modules


def test_answers_are_read_without_torch():
    modules = loaded("import searchformer.rollout.options\nfrom searchformer.rollout.store import Rollouts")
    assert "searchformer.rollout.requests" in modules
    assert "torch" not in modules


def test_domains_load_without_a_compiler():
    modules = loaded("from searchformer.domains import make_domain\nmake_domain('maze')")
    assert not {"torch", "numba", "llvmlite"} & modules


def test_the_command_line_helps_without_loading_torch_or_numba():
    help_code = "import sys\nfrom searchformer.cli import main\nsys.argv = ['searchformer', '--help']\n"
    modules = loaded(f"{help_code}try:\n    main()\nexcept SystemExit:\n    pass")
    assert "searchformer.cli" in modules
    assert not {"torch", "numba", "pyarrow", "matplotlib"} & modules


def test_commands_load_torch_only_when_they_run():
    built = {module.name for module in pkgutil.iter_modules([str(PACKAGE / "commands")])}
    code = "\n".join(f"import searchformer.commands.{name}" for name in sorted(built & COMMANDS.keys()))
    assert "torch" not in loaded(code)
