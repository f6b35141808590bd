"""The package without the repository: a wheel with everything inside, installed and used elsewhere."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "searchformer"
MOST_BYTES = 25_000_000
NOT_SHIPPED = {"__pycache__", ".ruff_cache", ".mypy_cache"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy: a build leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns(*NOT_SHIPPED, "*.egg-info"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package_and_is_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("searchformer/")}
    there = {
        f"searchformer/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and not NOT_SHIPPED & set(path.parts)
    }
    assert found == there
    assert {"searchformer/recipes/quickstart.toml", "searchformer/pretrained/maze-6x6/model.safetensors"} <= found
    assert wheel.stat().st_size < MOST_BYTES


def test_the_installed_wheel_works_from_an_empty_directory(wheel, tmp_path):
    """The environment has the wheel, and this one's dependencies on its path but not its `searchformer`."""
    place, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    venv.create(place, with_pip=True, symlinks=True)
    python = str(place / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # by its own pip, before it sees any other environment: pip would take the `searchformer` of that one away
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def printed(*words: str) -> str:
        command = [str(place / "bin" / "searchformer"), *words]
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [python, "-c", "import searchformer; print(searchformer.__file__)"]
    found = subprocess.run(where, cwd=empty, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == site / "searchformer" / "__init__.py"
    assert "train/quick-search" in printed("run", "quickstart", "--dry-run")
    assert "by the model maze-6x6" in printed("solve", "--random", "maze:6x6", "--seed", "1")
    assert not any(empty.iterdir())


def test_only_interpreters_that_were_tried_are_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = {name.rpartition(" :: ")[2] for name in project["classifiers"] if "Python :: 3." in name}
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in versions
