"""The ten names of the package, and the page that explains them: its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import searchformer
from searchformer.domains import make_domain

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_ten_names_and_each_is_explained():
    names = [name for name in searchformer.__all__ if name != "__version__"]
    assert len(names) == 10
    for name in names:
        assert callable(getattr(searchformer, name))
        assert f"`{name}" in PAGE
        assert name in dir(searchformer)
    with pytest.raises(AttributeError, match="has no attribute 'banana'"):
        _ = searchformer.banana


def test_the_examples_of_the_page_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known: dict = {}
    for example in EXAMPLES:
        exec(example, known)
        for line in example.splitlines():
            statement, _, promised = line.partition("  # '")
            if promised:  # an expression with its value
                value = eval(statement, known)
                assert str(value) == promised.strip().strip("'")
    assert known["found"]["solvable"]
    assert known["data"].rows("train") + known["data"].rows("test") == 50
    assert known["row"]["plan_length"] == len(known["row"]["plan"])
    assert known["solution"].optimal
    assert len(known["answers"]) == 4


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, searchformer; print([n for n in ('torch', 'numba', 'numpy', 'pyarrow') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_solve_is_a_room_and_a_function():
    from searchformer.solve import make_task, solve

    task = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 0], "walls": [[1, 0]]}
    first, second = searchformer.solve(task), solve(make_task(task))
    assert first.plan.tolist() == second.plan.tolist()
    assert searchformer.make_domain("maze") == make_domain("maze")


def test_the_examples_of_the_page_on_other_tools_run():
    page = (Path(__file__).parents[1] / "docs" / "interop.md").read_text()
    known: dict = {}
    for example in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(example, known)
    assert known["total"] == -len(known["env"].unwrapped.best_actions())
    assert set(known["entry"]) == {"question", "answer", "metadata"}
