"""The command line: exit codes, one clear line for bad input, JSON as the last line, a quick `--help`."""

import io
import json
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from typing import get_type_hints

import pytest
from annotated_types import Ge, Gt

from searchformer.bootstrap.rules import RULES
from searchformer.cli import COMMANDS, GROUPS, main, run
from searchformer.commands.progress import PACE_SECONDS, Pace, TerminalDisplay
from searchformer.domains import domain_names
from searchformer.errors import Interrupted
from searchformer.model import SIZES
from searchformer.options import OptionsModel, option_name


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
    settings = json.loads(seen.stdout.splitlines()[-1])["settings"]
    assert settings == {"max_cost": None, "width": 5, "height": 5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "chess", "--out", "d"), "no domain is called 'chess'; there are maze, sokoban, tiles"),
        (
            ("generate", "maze", "--out", "d", "--boxes", "2"),
            "maze has no option '--boxes'; it has --max-cost, --width",
        ),
        (
            ("generate", "sokoban", "--out", "d", "--boxes", "99"),
            "do not fit into 7 x 7 cells (boxes keep two cells from the border)",
        ),
        (("generate", "sokoban", "--out", "d", "--start-goal-pairs", "2"), "--start-goal-pairs is for domains with"),
        (("generate", "maze", "--out", "d", "--weight", "2"), "--weight goes with --algorithm weighted"),
        (("generate", "maze", "--out", "d", "--append"), "no complete data set to append to"),
        (("train", "--data=d", "--out=o", "--model=maze-6x6"), "; --init-from maze-6x6 fine-tunes that model"),
        (("inspect", "nowhere"), "there is no directory nowhere, so no complete data set"),
    ],
)
def test_bad_input_is_exit_code_1_and_one_clear_line(call, tmp_path, arguments, message):
    code, output, errors = call(*arguments)
    assert (code, output) == (1, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("searchformer: ")
    assert message in errors
    assert not list(tmp_path.iterdir())


def test_another_configuration_is_refused_in_one_line(made):
    out, _ = made
    result = searchformer(
        "generate", "maze", "--width", "5", "--height", "5", "--tasks", "40", "--seed", "9", "--out", out
    )
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "seed was 0, now 9" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "maze"), "--out is missing"),
        (("generate", "maze", "--out", "d", "--tasks", "0"), "--tasks 0: input should be greater than or equal to 1"),
        (("generate", "maze", "--out", "d", "--tasks", "many"), "--tasks many: input should be a whole number"),
        (("generate", "maze", "--out", "d", "--width", "0"), "--width 0: input should be greater than or equal to 2"),
        (("generate", "maze", "--out", "d", "--width", "wide"), "--width wide: input should be a whole number"),
        (("trace", "sokoban", "f", "--tokens-format", "short"), "--tokens-format short: input should be 'paper' or "),
        (("solve", "--random", "sokoban", "--boxes", "0"), "--boxes 0: input should be greater than or equal to 1"),
        (("generate", "maze", "--out", "d", "--test-fraction", "2"), "--test-fraction 2: input should be less than"),
        (("generate", "maze", "--out", "d", "--algorithm", "magic"), "--algorithm magic: input should be 'astar', "),
        (("generate", "maze", "--out", "d", "--width"), "--width needs a value"),
        (("generate", "maze", "--out", "d", "stray"), "unexpected argument stray"),
        (("bootstrap", "--model=m", "--data=d", "--out=o", "--temperature=0"), "--temperature 0: input should be "),
        (("rollout", "--model=m", "--data=d", "--out=o", "--cache-gb=0"), "--cache-gb 0: input should be greater than"),
        (("rollout", "--model=m", "--data=d", "--out=o", "--split=x"), "--split x: input should be 'test' or 'train'"),
        (("train", "--data=d", "--out=o", "--lr=nan"), "--lr nan: input should be a finite number"),
        (("train", "--data=d", "--out=o", "--patience=2"), "--patience needs --validation"),
        (("train", "--data=d", "--out=o", "--tracker=paper"), 'invalid value "paper" for --tracker; choose from'),
        (("train", "--data=d", "--out=o", "--plan"), "unknown option: --plan; did you mean --plan-only? See searchfor"),
        (("judge", "maze", "f", "--json"), "unknown option: --json; see searchformer judge --help"),
        (("export", "hub"), "DIRECTORY is missing; see searchformer export hub --help"),
        (("solve", "a.xsb", "b.xsb"), "unexpected argument b.xsb"),
        (("solve", "--random=maze", "--planner=luck"), "--planner luck: input should be 'model' or 'astar'"),
        (("inspect",), "DIRECTORY is missing"),
        (("inspect", "d", "--colour"), "unknown option: --colour"),
        (("conjure",), "there is no command conjure"),
        (("--colour",), "there is no command --colour"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_clear_line(call, tmp_path, arguments, message):
    code, output, errors = call(*arguments)
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"searchformer: {message}")
    assert errors.endswith("--help\n")
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


@pytest.mark.parametrize("command", ["generate", "inspect", "train", "rollout", "bootstrap", "run"])
def test_a_commands_help_shows_its_options_without_loading_torch_or_numba(command):
    code = f"import sys; sys.argv = ['searchformer', {command!r}, '--help']; from searchformer.cli import main\n"
    code += "try: main()\nexcept SystemExit as end: assert not end.code\n"
    code += "print([name for name in ('torch', 'numba') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    assert "--json" in result.stdout


def test_plain_progress_says_once_that_all_is_done(capsys):
    with TerminalDisplay().bar("generate", unit="tasks") as update:
        for done in (4, 10, 10, 10):
            update(done, 10, "")
        update(20, 20, "")
    assert [text.split(" tasks")[0] for text in capsys.readouterr().err.splitlines()] == [
        "generate: 10 of 10",
        "generate: 20 of 20",
    ]


def test_plain_progress_gives_no_rate_for_work_that_was_done_before(monkeypatch, capsys):
    monkeypatch.setattr("searchformer.commands.progress.time.monotonic", lambda: 5.0)
    with TerminalDisplay().bar("judge", unit="answers") as update:
        update(160, 160, "")
    assert capsys.readouterr().err == "judge: 160 of 160 answers\n"


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("searchformer.commands.progress.time.monotonic", lambda: self.now)


def test_the_pace_is_that_of_the_last_minutes(monkeypatch):
    clock, pace = Clock(monkeypatch), Pace()
    done = 500  # by an earlier run
    assert pace(done) == 0
    for _ in range(1000):
        clock.now += 1.0
        done += 10
        fast = pace(done)
    assert fast == pytest.approx(10)
    changes = []
    for _ in range(400):
        clock.now += 1.0
        done += 5
        changes.append(pace(done))
    assert changes[-1] == pytest.approx(5)
    steps = [before - after for before, after in pairwise(changes)]
    assert max(steps) < 0.1  # it gets there little by little: the time left does not jump
    assert len(pace.marks) <= PACE_SECONDS + 2


def test_a_pause_changes_the_time_left_little(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with TerminalDisplay().bar("train", unit="steps") as update:
        for done in range(0, 2000, 10):
            clock.now += 1.0
            update(done, 10_000, "")
        clock.now += 12.0  # an evaluation
        update(2000, 10_000, "loss 1")
    before, after = capsys.readouterr().err.splitlines()[-2:]
    assert before.endswith("10/s, 14 min left")
    assert after == "train: 2,000 of 10,000 steps, 9.4/s, 14 min left; loss 1"


def test_a_bar_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    clock = Clock(monkeypatch)
    with TerminalDisplay().bar("generate sokoban", unit="tasks") as update:
        for done in (0, 6000, 1_000_000):
            clock.now += 60.0
            update(done, 1_000_000, "rejected: 37,514 plan too short, 20,177 unsolvable, 4 duplicate")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    assert lines[-1].startswith("generate sokoban ━")
    assert max(map(len, lines)) <= 80


class Terminal(io.StringIO):
    """Text that takes itself for a terminal."""

    def isatty(self):
        return True


def test_stdin_may_stand_anywhere_among_the_words(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"width": 0}')))
    assert run(["trace", "maze", "-", "--deterministic"]) == 1
    assert capsys.readouterr().err.startswith("searchformer: stdin:1: ")


def test_an_unexpected_error_is_one_line_with_a_traceback_only_when_asked_for(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("the disk\nis full")

    monkeypatch.setattr("searchformer.recipes.recipe.load_recipe", fail)
    assert run(["run", "quickstart"]) == 1
    line = "searchformer: unexpected RuntimeError: the disk is full; --debug shows where it comes from\n"
    assert capsys.readouterr().err == line
    assert run(["run", "quickstart", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what_then"),
    [
        (["run", "quickstart"], "; run the same command again to continue"),
        (["import", "mongodb", "mongodb://here", "name", "--out", "d"], "; run the same command again to continue"),
        (["evaluate", "d"], "; run the same command again, it starts over"),
        (["import", "mongodump", "file", "--out", "d"], "; run the same command again, it starts over"),
        (["inspect", "generate"], ""),
    ],
)
def test_ctrl_c_promises_only_what_the_command_keeps(monkeypatch, capsys, words, what_then):
    def interrupted(*_, **__):
        raise Interrupted("12 of 20 tasks")

    monkeypatch.setattr("searchformer.cli.make_app", lambda _: interrupted)
    assert run(words) == 130
    assert capsys.readouterr().err == f"searchformer: interrupted, 12 of 20 tasks{what_then}\n"


def test_the_last_of_repeated_options_counts(call):
    code, _, errors = call("inspect", "here", "--tasks", "many", "--tasks", "2")
    assert (code, errors) == (1, "searchformer: there is no directory here, so no complete data set\n")


# --- every option of every command


def models_of(command):
    """The options models in a command's signature."""
    hints = get_type_hints(import_module(f"searchformer.commands.{command}").run)
    return [hint for hint in hints.values() if isinstance(hint, type) and issubclass(hint, OptionsModel)]


def below_the_bound(field):
    """A value that the field's bounds exclude."""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            return bound.ge - 1
        if isinstance(bound, Gt):
            return bound.gt
    return None


BOUNDED = [
    (command, name, below_the_bound(field))
    for command in COMMANDS
    for model in models_of(command)
    for name, field in model.model_fields.items()
    if below_the_bound(field) is not None
]
POSITIONAL = {"generate": ["maze"], "trace": ["maze", "f"], "judge": ["maze", "f"], "inspect": ["d"], "evaluate": ["d"]}


def test_bounds_are_looked_for_where_they_are():
    assert ("bootstrap", "temperature", 0) in BOUNDED
    assert ("rollout", "cache_gb", 0) in BOUNDED
    assert {command for command, _, _ in BOUNDED} == COMMANDS.keys() - {"report", "merge"}


@pytest.mark.parametrize(("command", "name", "value"), BOUNDED)
def test_a_value_out_of_bounds_is_one_line_and_exit_code_2(call, command, name, value):
    required = [
        f"{option_name(other)}=x"
        for model in models_of(command)
        for other, field in model.model_fields.items()
        if field.is_required()
    ]
    option = option_name(name)
    words = [command, *POSITIONAL.get(command, []), *required, "--out=o", f"{option}={value}"]
    code, output, errors = call(*(word for word in words if word != "--out=o" or command in ("generate", *TO_OUT)))
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"searchformer: {option} {value}: input should be greater than ")


TO_OUT = ("train", "bootstrap")


@pytest.mark.parametrize(("command", "names"), [("bootstrap", RULES), ("train", SIZES), ("generate", domain_names())])
def test_help_names_all_there_is_to_choose_from(call, monkeypatch, command, names):
    monkeypatch.setenv("COLUMNS", "300")
    _, output, _ = call(command, "--help")
    assert {name for name in names if not re.search(rf"\b{name}[,. ]", output)} == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(call, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "300")
    code, output, errors = call(command, "--help")
    assert (code, errors) == (0, "")
    for model in models_of(command):
        for name, field in model.model_fields.items():
            assert f"{option_name(name)} " in output
            assert field.description
            assert " ".join(field.description.split()) in output


@pytest.mark.parametrize(("group", "kind"), [(group, kind) for group, (_, kinds) in GROUPS.items() for kind in kinds])
def test_every_kind_of_import_and_export_is_explained(call, monkeypatch, group, kind):
    monkeypatch.setenv("COLUMNS", "300")
    code, output, errors = call(group, "--help")
    assert (code, errors) == (0, "")
    assert f" {kind} " in output
    code, output, errors = call(group, kind, "--help")
    assert (code, errors) == (0, "")
    assert "--out " in output or kind == "mongodb"
    assert "--json " in output
    code, output, errors = call(group, kind)
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
