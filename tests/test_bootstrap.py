"""Selection of shorter searches: what is kept, what is refused, and what the new data set says of itself."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rollout_directories import write_rollouts

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.bootstrap.rounds import _require_same, bootstrap
from searchformer.bootstrap.rules import RULES, rule_named
from searchformer.bootstrap.select import select
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.pretrained import resolve_model
from searchformer.rollout.store import Rollouts, finish
from searchformer.search import Options, Searcher
from searchformer.tokens.grammar import write_text

SETTINGS = {"width": 5, "height": 5}
SAMPLES = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("data") / "maze"
    generate(GenerateOptions(domain="maze", settings=SETTINGS, tasks=40, seed=3), out)
    return Dataset(out)


def write_answers(directory: Path, data: Dataset, answer, *, split: str = "train", finish: str = "eos") -> Rollouts:
    """Rollouts of all tasks of a split; `answer(problem, row, sample)` gives the tokens of each answer."""
    domain, vocabulary = make_domain("maze", data.manifest.settings), data.vocabulary
    rows = {row["task_id"]: row for row in data.records(split)}

    def answers(task: str) -> list[list[str]]:
        problem = domain.parse_prompt(vocabulary.decode(rows[task]["prompt"]))
        return [answer(problem, rows[task], sample) for sample in range(SAMPLES)]

    prompts = {task: np.array(row["prompt"]) for task, row in rows.items()}
    return write_rollouts(directory, domain, vocabulary, prompts, answers, finish=finish, split=split)


@pytest.fixture(scope="module")
def astar_again(data: Dataset):
    """Answers of a model that imitates A* perfectly: other runs of A* on the same tasks."""
    searcher = Searcher(make_domain("maze", SETTINGS))

    def answer(problem, row, sample):
        _, trace, plan = write_text(searcher.domain, problem, searcher.search(problem, seed=100 + sample))
        return f"{trace} {plan}".split()

    return answer


def lengths(data: Dataset, split: str = "train") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in data.records(split):
        found.setdefault(row["task_id"], []).append(row["trace_length"])
    return found


def test_the_papers_rule_keeps_the_shortest_of_old_and_new(tmp_path, data: Dataset, astar_again) -> None:
    rollouts = write_answers(tmp_path / "answers", data, astar_again)
    selection = select(data, rollouts, tmp_path / "next", rule="paper", round_number=1)
    before, chosen = lengths(data), Dataset(tmp_path / "next", verify=True)
    answered: dict[str, list[int]] = {}
    plan_word = data.vocabulary.ids["plan"]
    for task, _, ids, _ in rollouts.answers():
        answered.setdefault(task, []).append(ids.tolist().index(plan_word))
    assert lengths(chosen) == {task: [min(before[task][0], *answered[task])] for task in before}
    replaced = [row for row in chosen.records("train") if row["source"] == "round-1"]
    assert len(replaced) == selection.replaced > 0
    assert {row["source"] for row in chosen.records("train")} == {"original", "round-1"}
    assert lengths(chosen, "test") == lengths(data, "test")
    assert chosen.manifest.config["bootstrap"]["rule"] == "paper"


def test_several_answers_per_task_are_different_and_short(tmp_path, data: Dataset, astar_again) -> None:
    rollouts = write_answers(tmp_path / "answers", data, astar_again)
    selection = select(data, rollouts, tmp_path / "next", rule="several", round_number=2)
    chosen = Dataset(tmp_path / "next")
    assert selection.rows > selection.tasks == data.rows("train")
    rows = [(row["task_id"], tuple(row["trace"])) for row in chosen.records("train")]
    assert len(set(rows)) == len(rows)
    assert max(map(len, lengths(chosen).values())) <= RULES["several"].keep
    before = lengths(data)
    assert all(length <= before[task][0] for task, found in lengths(chosen).items() for length in found)


def test_the_order_of_answers_on_disk_does_not_change_what_is_chosen(tmp_path, data: Dataset, astar_again) -> None:
    def answer(problem, row, sample):
        """Few different answers, each several times."""
        return astar_again(problem, row, sample % 3)

    def chosen(name: str, order: int) -> list[dict]:
        rollouts = write_answers(tmp_path / name, data, answer)
        (path,) = (tmp_path / name).glob("rollouts-*.parquet")
        pq.write_table(pq.read_table(path).sort_by([("sample", ("ascending", "descending")[order])]), path)
        (tmp_path / name / "manifest.json").unlink()
        finish(tmp_path / name, rollouts.config)
        select(data, rollouts, tmp_path / f"{name}-next", rule="several", round_number=1)
        return list(Dataset(tmp_path / f"{name}-next").records("train"))

    assert chosen("up", 0) == chosen("down", 1)


def test_what_was_judged_once_is_not_judged_again(
    tmp_path, data: Dataset, astar_again, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = write_answers(tmp_path / "answers", data, astar_again)
    first = select(data, rollouts, tmp_path / "first", rule="paper", round_number=1)
    monkeypatch.setattr(Judge, "judge", None)
    assert select(data, rollouts, tmp_path / "again", rule="paper", round_number=1) == first


def test_only_legal_searches_pass_the_legal_rule(tmp_path, data: Dataset, astar_again) -> None:
    def plan_after_one_step(problem, row, sample):
        tokens = astar_again(problem, row, sample)
        return tokens[:5] + tokens[tokens.index("plan") :]  # an optimal plan after one create: no search at all

    rollouts = write_answers(tmp_path / "answers", data, plan_after_one_step)
    assert select(data, rollouts, tmp_path / "paper", rule="paper", round_number=1).replaced == data.rows("train")
    assert select(data, rollouts, tmp_path / "legal", rule="legal", round_number=1).replaced == 0


def test_answers_that_do_not_end_or_do_not_solve_replace_nothing(tmp_path, data: Dataset, astar_again) -> None:
    unfinished = write_answers(tmp_path / "unfinished", data, astar_again, finish="max_tokens")
    assert select(data, unfinished, tmp_path / "a", rule="paper", round_number=1).replaced == 0
    wrong = write_answers(tmp_path / "wrong", data, lambda *given: astar_again(*given)[:-3])
    assert select(data, wrong, tmp_path / "b", rule="paper", round_number=1).replaced == 0


def test_test_tasks_may_not_choose(tmp_path, data: Dataset, astar_again) -> None:
    rollouts = write_answers(tmp_path / "answers", data, astar_again, split="test")
    with pytest.raises(SearchformerError, match="training"):
        select(data, rollouts, tmp_path / "next", rule="paper", round_number=1)


def test_an_unknown_rule_is_named_before_anything_is_done(tmp_path, data: Dataset) -> None:
    with pytest.raises(SearchformerError, match="no selection rule is called 'best'; there are paper"):
        rule_named("best")
    with pytest.raises(SearchformerError, match="--rule best: no selection rule is called 'best'"):
        BootstrapOptions.checked(model=tmp_path, data=data.directory, rule="best")


def test_a_run_goes_on_from_anywhere_but_not_with_another_model(tmp_path, data: Dataset) -> None:
    for name, weights in {"here": b"weights", "there": b"weights", "other": b"others"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(weights)

    def begin(model: str) -> None:
        _require_same(BootstrapOptions(model=tmp_path / model, data=data.directory), tmp_path)

    begin("here")
    begin("there")
    with pytest.raises(SearchformerError, match=r"holds a bootstrap run with other options .model was "):
        begin("other")


def test_data_that_is_missing_or_in_another_language_is_named_before_anything_is_written(tmp_path, data) -> None:
    wrong = {
        "nowhere": "there is no directory .*nowhere, so no complete data set",
        str(data.directory): "vocabulary of .* tokens",
    }
    for place, message in wrong.items():
        options = BootstrapOptions(model=resolve_model("maze-10x10"), data=tmp_path / place)
        with pytest.raises(SearchformerError, match=message):
            bootstrap(options, tmp_path / "out")
    options = BootstrapOptions(model=resolve_model("maze-6x6"), data=data.directory, eval_data=tmp_path / "nowhere")
    with pytest.raises(SearchformerError):
        bootstrap(options, tmp_path / "out")
    assert not (tmp_path / "out" / "options.json").exists()


def test_sound_searches_may_leave_nodes_out_but_say_nothing_wrong(tmp_path, data: Dataset, astar_again) -> None:
    def straight(problem, row, sample, *, slip=0):
        """Walks the plan and looks at nothing else: no run of A*, but every word is true unless costs `slip`."""
        prompt, answer = data.vocabulary.decode(row["prompt"]), astar_again(problem, row, sample)
        goal = prompt[prompt.index("goal") + 1 : prompt.index("goal") + 3]
        plan = answer[answer.index("plan") :]
        steps = []
        for cost, at in enumerate(range(0, len(plan), 3)):
            cell = plan[at + 1 : at + 3]
            away = sum(abs(int(a) - int(b)) for a, b in zip(cell, goal, strict=True))
            for word in ("create", "close"):
                steps += [word, *cell, f"c{cost + slip}", f"c{away}"]
        return steps + plan

    true = write_answers(tmp_path / "true", data, straight)
    straight_ones = select(data, true, tmp_path / "a", rule="sound", round_number=1)
    assert straight_ones == select(data, true, tmp_path / "b", rule="paper", round_number=1)
    assert select(data, true, tmp_path / "c", rule="legal", round_number=1).replaced < straight_ones.replaced
    untrue = write_answers(tmp_path / "untrue", data, lambda *given: straight(*given, slip=1))
    assert select(data, untrue, tmp_path / "d", rule="paper", round_number=1).replaced == straight_ones.replaced
    assert select(data, untrue, tmp_path / "e", rule="sound", round_number=1).replaced == 0


def test_where_a_true_search_was_misled_the_others_stay_as_they_are(tmp_path) -> None:
    settings = {"width": 9, "height": 9}
    generate(GenerateOptions(domain="maze", settings=settings, tasks=40, seed=3), tmp_path / "data")
    data, domain = Dataset(tmp_path / "data"), make_domain("maze", settings)
    astar, greedy = Searcher(domain), Searcher(domain, Options(algorithm="greedy"))
    written, misled = {}, set()

    def answer(problem, row, sample):
        searcher = astar if sample else greedy  # a true search as well, but its plan may be a detour
        _, trace, plan = write_text(domain, problem, searcher.search(problem, seed=100 + sample))
        if len(plan.split()) > len(row["plan"]):
            misled.add(row["task_id"])
        written.setdefault(row["task_id"], []).append(len(trace.split()))
        return f"{trace} {plan}".split()

    rollouts = write_answers(tmp_path / "answers", data, answer)
    select(data, rollouts, tmp_path / "next", rule="hindsight", round_number=1)
    before, chosen = lengths(data), lengths(Dataset(tmp_path / "next"))
    assert 0 < len(misled) < len(chosen)
    for task, found in chosen.items():
        usable = sorted({length for length in written[task][1:] if length < min(before[task])}, reverse=True)
        if task in misled:
            assert found[0] == (usable[0] if usable else before[task][0])
            assert set(found) <= {*usable, *before[task]}
        else:
            assert max(found) <= min(before[task])
    sure = chosen.keys() - misled
    assert sum(min(chosen[task]) for task in sure) < 0.9 * sum(min(written[task][1:]) for task in sure)
