"""The command line: exit codes, one clear line for bad input, JSON as the last line, a quick `--help`."""

import json
import subprocess
import sys

import pytest

from searchformer.cli import COMMANDS, main
from searchformer.commands.progress import ProgressLine


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """Run the command line in this process, in an empty directory: exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["searchformer", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return call


def searchformer(*arguments, **options):
    command = [sys.executable, "-m", "searchformer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small data set, made by the command, and what the command printed."""
    out = tmp_path_factory.mktemp("cli") / "d"
    options = ("--width", "5", "--height=5", "--tasks", "40", "--out", out, "--json")
    return out, searchformer("generate", "maze", *options)


def test_success_is_exit_code_0_and_json_is_the_last_line(made):
    out, result = made
    assert result.returncode == 0
    facts = json.loads(result.stdout.splitlines()[-1])
    assert facts["out"] == str(out)
    assert facts["counts"]["train"] + facts["counts"]["test"] == 40
    seen = searchformer("inspect", out, "--json")
    assert seen.returncode == 0
    assert json.loads(seen.stdout.splitlines()[-1])["settings"] == {"max_cost": None, "width": 5, "height": 5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "chess", "--out", "d"), "no domain is called 'chess'; there are maze, sokoban, tiles"),
        (
            ("generate", "maze", "--out", "d", "--boxes", "2"),
            "maze has no option '--boxes'; it has --max-cost, --width",
        ),
        (("generate", "maze", "--out", "d", "--width"), "option --width needs a value"),
        (("generate", "maze", "--out", "d", "--width", "wide"), "maze: width: "),
        (("generate", "maze", "--out", "d", "--width", "0"), "maze: width: "),
        (("generate", "maze", "--out", "d", "stray"), "maze has no option 'stray'"),
        (("generate", "sokoban", "--out", "d", "--boxes", "99"), "do not fit into 7 x 7 cells"),
        (("generate", "sokoban", "--out", "d", "--start-goal-pairs", "2"), "--start-goal-pairs is for domains with"),
        (("generate", "maze", "--out", "d", "--algorithm", "magic"), "one of astar, dijkstra, weighted, greedy"),
        (("generate", "maze", "--out", "d", "--weight", "2"), "--weight goes with --algorithm weighted"),
        (("generate", "maze", "--out", "d", "--append"), "no complete data set to append to"),
        (("inspect", "nowhere"), "nowhere holds no complete data set: manifest.json is missing"),
    ],
)
def test_bad_input_is_exit_code_1_and_one_clear_line(call, tmp_path, arguments, message):
    code, output, errors = call(*arguments)
    assert (code, output) == (1, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("searchformer: ")
    assert message in errors
    assert not (tmp_path / "d" / "manifest.json").exists()


def test_another_configuration_is_refused_in_one_line(made):
    out, _ = made
    result = searchformer(
        "generate", "maze", "--width", "5", "--height", "5", "--tasks", "40", "--seed", "9", "--out", out
    )
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "seed is 0, asked for is 9" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "maze"),
        ("generate", "maze", "--out", "d", "--tasks", "0"),
        ("generate", "maze", "--out", "d", "--tasks", "many"),
        ("generate", "maze", "--out", "d", "--test-fraction", "2"),
        ("inspect",),
        ("inspect", "d", "--colour"),
        ("conjure",),
        ("--colour",),
    ],
)
def test_wrong_usage_is_exit_code_2(call, tmp_path, arguments):
    code, output, errors = call(*arguments)
    assert (code, output) == (2, "")
    assert "Usage: " in errors
    assert not list(tmp_path.iterdir())


def test_a_traceback_is_shown_only_when_asked_for(tmp_path):
    assert "Traceback" not in searchformer("inspect", "nowhere", cwd=tmp_path).stderr
    result = searchformer("--debug", "inspect", "nowhere", cwd=tmp_path)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_the_version_is_printed():
    result = searchformer("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "searchformer")


def test_help_lists_every_command_and_loads_nothing_heavy():
    code = "import sys; sys.argv = ['searchformer', '--help']; from searchformer.cli import main\n"
    code += "try: main()\nexcept SystemExit as end: assert not end.code\n"
    code += "print([name for name in ('torch', 'numba', 'pyarrow', 'numpy', 'matplotlib') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_a_commands_help_shows_its_options_without_loading_torch_or_numba(command):
    code = f"import sys; sys.argv = ['searchformer', {command!r}, '--help']; from searchformer.cli import main\n"
    code += "try: main()\nexcept SystemExit as end: assert not end.code\n"
    code += "print([name for name in ('torch', 'numba') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    assert "--json" in result.stdout


def test_plain_progress_says_once_that_all_is_done(capsys):
    with ProgressLine("generate", 10, unit="tasks") as line:
        for done in (4, 10, 10, 10):
            line.update(done)
        line.set_total(20)
        line.update(20)
    assert [text.split(" tasks")[0] for text in capsys.readouterr().err.splitlines()] == [
        "generate: 10 of 10",
        "generate: 20 of 20",
    ]
