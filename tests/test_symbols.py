"""Symbols: costs that data never use share one, which costs nothing and keeps every probability exact."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from step_models import Searches, padded, searches_of, step_model
from synthetic import task_id, write_dataset
from test_step_networks import BACKENDS, assert_same, inputs_of, naive_answers, prompts_of
from test_step_training import arguments, evaluations, options
from test_training import ALONE, environment, losses, same, weights

from searchformer.dataset.batches import Sequences
from searchformer.dataset.store import Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.model import ModelConfig, Transformer, load_model, read_model_config, save_model, with_symbols
from searchformer.pretrained.package import package_model
from searchformer.recipes.cost import parameters
from searchformer.rollout import Engine, Sampling
from searchformer.tokens.grammar import Automaton, build_automaton
from searchformer.tokens.symbols import Symbols, costs_of, symbols_for
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary
from searchformer.train import train
from searchformer.train.evaluation import evaluate
from searchformer.train.objective import Objective

MAZE = make_domain("maze", {"width": 4, "height": 4})
WORDS = [token for token in MAZE.token_list() if token[0] != "c" or not token[1:].isdigit()]


def vocabulary_of(costs: int) -> Vocabulary:
    return Vocabulary.of([*WORDS, *(f"c{cost}" for cost in range(costs))])


LARGE = vocabulary_of(40_000)
COSTS = costs_of(LARGE)


@pytest.fixture(scope="module")
def maze() -> Searches:
    """Searches written with a vocabulary of 40,000 costs."""
    return searches_of(MAZE, tasks=3, vocabulary=LARGE)


def large_model(searches: Searches, highest: int = 2, **shape: int) -> Transformer:
    """A network that tells few costs apart, so that searches hold some that it does not."""
    symbols = symbols_for(COSTS, highest)
    return step_model(searches.vocabulary, *searches.places, symbols=symbols, **shape)


def written(directory: Path, vocabulary: Vocabulary, *, highest: int = 99) -> Dataset:
    """A data set of small mazes in this vocabulary; training tasks have costs up to `highest` only."""
    searches, rows = searches_of(MAZE, tasks=40, vocabulary=vocabulary), []
    costs, plan = costs_of(vocabulary), vocabulary.ids["plan"]
    for prompt, response in zip(searches.prompts, searches.responses, strict=True):
        cut = response.tolist().index(plan)
        rows.append((task_id(len(rows)), prompt[1:-1].tolist(), response[1:cut].tolist(), response[cut:-1].tolist()))
    low = [row for row in rows if max(costs[row[2]]) <= highest]
    return write_dataset(directory, train=low, test=rows, vocabulary=vocabulary)


# --- the mapping


def test_tokens_keep_their_order_and_the_shared_symbol_comes_last():
    symbols = Symbols.sharing(np.array([False, True, False, True, False, True]))
    assert symbols.of_token.tolist() == [0, 3, 1, 3, 2, 3]
    assert (symbols.count, symbols.sizes.tolist(), symbols.first_token.tolist()) == (4, [1, 1, 1, 3], [0, 2, 4, 1])
    assert symbols.shared.tolist() == [False, True] * 3
    assert [symbols.tokens(symbol).tolist() for symbol in range(4)] == [[0], [2], [4], [1, 3, 5]]
    some = np.array([[True, False, False, False, True, False], [False, False, True, True, False, False]])
    assert symbols.with_any(some).tolist() == [[True, False, True, False], [False, True, False, True]]


@pytest.mark.parametrize("shared", [[], [3]])
def test_symbols_are_ids_where_fewer_than_two_tokens_would_share(shared):
    is_shared = np.isin(np.arange(5), shared)
    assert Symbols.sharing(is_shared).of_token.tolist() == [0, 1, 2, 3, 4]


def test_costs_up_to_a_quarter_above_the_highest_have_a_symbol_of_their_own():
    vocabulary = vocabulary_of(100)
    costs = costs_of(vocabulary)
    own = [vocabulary.tokens[token] for token in np.flatnonzero(~symbols_for(costs, 8).shared)]
    assert sorted(own) == sorted(["bos", "eos", *WORDS, *(f"c{cost}" for cost in range(11))])
    assert symbols_for(costs, -1).count == 2 + len(WORDS) + 1
    assert symbols_for(costs, 79).count == len(vocabulary)


# --- probabilities


def test_all_40000_costs_together_have_their_probability_at_every_target(maze):
    model = large_model(maze)
    generator = np.random.default_rng(0)
    for responses in (maze.responses, [np.array([BOS, *generator.integers(len(LARGE), size=30), EOS])] * 3):
        inputs = inputs_of(model, maze.prompts, responses)
        assert inputs.shared_N is not None
        with torch.inference_mode():
            known_NV, losses_N = model.log_probabilities(inputs)[:, model.symbols.of_token], model.losses(inputs)
        assert known_NV.shape[1] == len(LARGE)
        assert torch.allclose(known_NV.exp().sum(dim=-1), torch.ones(len(known_NV)), atol=1e-5)
        targets_N = torch.from_numpy(np.concatenate([response[1:] for response in responses]))
        assert torch.allclose(losses_N, -known_NV.gather(1, targets_N[:, None])[:, 0], atol=1e-4)


def test_costs_that_share_a_symbol_are_equally_likely_and_read_alike(maze):
    model = large_model(maze)
    response = maze.responses[0]
    changed = np.where(model.symbols.shared[response], LARGE.ids["c31415"], response)
    assert len(np.unique(response[changed != response])) > 1
    with torch.inference_mode():
        first, second = (model.losses(inputs_of(model, maze.prompts[:1], [each])) for each in (response, changed))
    assert torch.equal(first, second)


# --- training


def test_a_network_and_its_training_do_not_depend_on_how_many_costs_are_never_used(tmp_path):
    found = []
    for costs in (100, 40_000):
        dataset, run = written(tmp_path / f"data-{costs}", vocabulary_of(costs)), tmp_path / f"run-{costs}"
        train(options(dataset, eval_every=4), run)
        model, _ = load_model(run / "model")
        found.append((model, losses(run), evaluations(run)))
    (few, few_losses, few_scores), (many, many_losses, many_scores) = found
    assert few.config.symbol_count == many.config.symbol_count < 50
    assert few.parameter_count == many.parameter_count == parameters(many.config)
    assert few_losses == many_losses
    assert few_scores == many_scores
    stored = (tmp_path / "run-40000/model/model.safetensors").stat().st_size
    assert stored < 4 * many.parameter_count + 10 * 40_000  # 9 bytes for each token: its kind, number and symbol


def test_nothing_is_as_wide_as_the_vocabulary_while_losses_and_scores_are_computed(maze):
    """Every array that PyTorch makes on the way is watched."""
    model, largest = large_model(maze), 0
    assert model.cutter is not None  # made once, from the kinds of all tokens
    assert len(model.beside_VO) == model.config.symbols  # and this from their numbers
    model.encode(torch.zeros((1, 1, model.config.prompt_places), dtype=torch.int64))

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor):
                largest = max(largest, made.numel())
            return made

    with Watch():
        inputs = inputs_of(model, maze.prompts[:1], maze.responses[:1])
        model.log_probabilities(inputs)
        model.losses(inputs).sum().backward()
    assert 0 < largest < len(LARGE)


def test_costs_of_test_tasks_that_training_tasks_never_have_have_a_finite_loss(tmp_path):
    dataset = written(tmp_path / "data", LARGE, highest=4)
    train(options(dataset, steps=20, eval_every=20), tmp_path / "run")
    model, _ = load_model(tmp_path / "run/model")
    test = Sequences(dataset, "test")
    batch = test.batch(np.arange(len(test)))
    assert (COSTS[batch.responses] > 5).any()
    inputs = Objective(model).inputs(batch)
    assert inputs.shared_N is not None
    scores = evaluate(Objective(model), test, tasks=40, tokens_per_microbatch=10**6, processes=ALONE)
    with torch.inference_mode():
        expected = torch.dot(model.losses(inputs), inputs.weights_N).item() / len(batch)
    assert scores["loss"] == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(scores["loss"])
    assert evaluations(tmp_path / "run")[-1]["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_network_of_plans_has_one_symbol_for_all_costs_and_learns_them_when_fine_tuned(tmp_path):
    dataset = written(tmp_path / "data", LARGE)
    train(options(dataset, steps=20, plan_only=True), tmp_path / "plans")
    plans, _ = load_model(tmp_path / "plans/model")
    assert plans.config.symbols == 2 + len(WORDS) + 1
    train(options(dataset, steps=30, init_from=tmp_path / "plans"), tmp_path / "traces")
    traces, _ = load_model(tmp_path / "traces/model")
    used = np.unique(Sequences(dataset, "train").batch(np.arange(20)).responses)
    assert plans.symbols.shared[used].any()
    assert not traces.symbols.shared[used].any()
    assert losses(tmp_path / "traces")[-1] < 0.8 * losses(tmp_path / "traces")[0]
    train(options(dataset, steps=2, plan_only=True, init_from=tmp_path / "traces"), tmp_path / "again")
    assert load_model(tmp_path / "again/model")[0].config.symbols == traces.config.symbols


def test_tokens_that_get_a_symbol_of_their_own_begin_with_what_they_shared(maze):
    model = large_model(maze, highest=4)
    wider = with_symbols(model, symbols_for(COSTS, 80))
    ids = torch.from_numpy(np.random.default_rng(0).integers(len(LARGE), size=(2, 50, 9)))
    assert wider.config.symbols > model.config.symbols
    assert wider.parameter_count == parameters(wider.config)
    before, after = (
        [
            each.encoder.embedding(torch.from_numpy(each.symbols.of_token)[ids[..., : each.config.prompt_places]]),
            each.decoder.embedding(torch.from_numpy(each.symbols.of_token)[ids[..., : each.config.places]]),
            each.decoder.head.embedding(torch.from_numpy(each.symbols.of_token)[ids[..., : each.config.places]]),
            each.decoder.output[1].weight[each.symbols.of_token],
        ]
        for each in (model, wider)
    )
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    everything = with_symbols(model, Symbols.sharing(np.zeros(len(LARGE), bool)))
    assert (everything.config.symbols, everything.config.symbol_count) == (0, len(LARGE))
    assert everything.token_kinds.tolist() == model.token_kinds.tolist()


def test_two_processes_fine_tune_as_one_does_though_only_the_first_reads_the_model(tmp_path):
    dataset = written(tmp_path / "data", LARGE)
    train(options(dataset, steps=2, plan_only=True), tmp_path / "plans")
    train(options(dataset, init_from=tmp_path / "plans"), tmp_path / "one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    given = arguments(dataset, tmp_path / "two", "--init-from", tmp_path / "plans")
    subprocess.run([*torchrun, "-m", "searchformer", "train", *given], env=environment(), check=True)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    one, two = (load_model(tmp_path / name / "model")[0] for name in ("one", "two"))
    assert one.symbols.of_token.tolist() == two.symbols.of_token.tolist()


def test_a_checkpoint_of_another_number_of_weights_is_refused_in_one_line(tmp_path, monkeypatch):
    dataset = written(tmp_path / "data", LARGE)
    train(options(dataset, steps=3), tmp_path / "run")
    monkeypatch.setattr("searchformer.tokens.symbols.ROOM", 3.0)
    before = weights(tmp_path / "run")
    with pytest.raises(SearchformerError, match="another version of this package") as caught:
        train(options(dataset, steps=3), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert same(weights(tmp_path / "run"), before)


# --- on disk


def test_a_saved_network_comes_back_with_its_symbols_and_an_older_version_refuses_it(maze, tmp_path):
    model = large_model(maze)
    save_model(model, LARGE, tmp_path / "model", trained={"domain": "maze"})
    package_model(tmp_path / "model", tmp_path / "packaged")
    for directory, close in (("model", 0.0), ("packaged", 2e-2)):
        loaded, _ = load_model(tmp_path / directory)
        assert loaded.symbols.of_token.tolist() == model.symbols.of_token.tolist()
        with torch.inference_mode():
            first, second = (each.losses(inputs_of(each, maze.prompts, maze.responses)) for each in (model, loaded))
        assert torch.allclose(first, second, atol=close, rtol=0)
    assert json.loads((tmp_path / "model/config.json").read_text())["shape"]["symbols"] == model.config.symbols
    assert read_model_config(tmp_path / "model")[0] == model.config


def test_a_network_that_shares_nothing_is_stored_as_before(tmp_path):
    vocabulary = vocabulary_of(9)
    save_model(step_model(vocabulary, 5, 3, 3), vocabulary, tmp_path, trained={})
    assert "symbols" not in json.loads((tmp_path / "config.json").read_text())["shape"]
    model, _ = load_model(tmp_path)
    assert "token_symbols" not in model.state_dict()
    assert model.symbols.of_token.tolist() == list(range(len(vocabulary)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [({"symbols": 5}, "symbols must be 0"), ({"unit": "step", "symbols": 10}, "must not be more than the 9 tokens")],
)
def test_shapes_with_impossible_symbols_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(vocabulary=9, dim=8, layers=1, heads=2, ffn=8, **shape)


# --- sampling


@pytest.fixture(params=BACKENDS)
def engine(request, maze):
    """An engine for a network that likes to write costs which share a symbol."""
    model = large_model(maze)
    with torch.no_grad():
        model.decoder.output[1].weight[-1] *= -5
    return Engine(model, LARGE, backend=BACKENDS[request.param](model), slots=4)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.0), Sampling(0.7, top_k=4), Sampling(1.2, 0, 0.8)], ids=str
)
def test_sampled_symbols_and_tokens_are_those_of_the_obvious_sampler(engine, maze, sampling):
    model, prompts = engine.model, prompts_of(maze)[:2]
    prefix = [*maze.responses[0][1:8], LARGE.ids["c31415"]]
    for settings in ({"max_tokens": 30}, {"max_tokens": 25, "prefix": prefix, "seed": 2}):
        expected = naive_answers(model, prompts, samples=2, sampling=sampling, **settings)
        found = engine.sample_all(prompts, samples=2, **vars(sampling), **settings)
        assert_same(found, expected)
        drawn = np.concatenate([answer.tokens[len(settings.get("prefix", [])) :] for answer in found])
        assert model.symbols.shared[drawn].any()


def test_the_log_probability_of_tokens_that_share_a_symbol_is_the_trainers(engine, maze):
    for answer in engine.sample_all(prompts_of(maze), samples=2, max_tokens=40):
        response = np.array([BOS, *answer.tokens, EOS])
        with torch.inference_mode():
            inputs = inputs_of(engine.model, [maze.prompts[answer.prompt]], [response])
            expected = -engine.model.losses(inputs)[: len(answer.tokens) + (answer.finish == "eos")].sum().item()
        assert answer.log_probability == pytest.approx(expected, abs=1e-5 * len(response) + 1e-6)


def test_every_token_of_a_shared_symbol_is_written_as_often_as_the_next(maze):
    """Two of the costs that share are allowed, beside one that does not: about half of the shared ones are each."""
    model = large_model(maze)
    pair, other = [LARGE.ids["c7"], LARGE.ids["c39999"]], LARGE.ids["c1"]
    next_state = np.full((1, len(LARGE)), -1, np.int32)
    next_state[0, [*pair, other]] = 0
    automaton = Automaton(start=0, next_state=next_state, expects=("three costs",))
    engine = Engine(model, LARGE, precision="fp32", threads=1)
    settings = {"samples": 100, "max_tokens": 8, "automaton": automaton}
    answers = engine.sample_all(prompts_of(maze)[:1], **settings)
    tokens = np.concatenate([answer.tokens for answer in answers])
    first, second = ((tokens == token).sum() for token in pair)
    assert first + second + (tokens == other).sum() == 800
    assert abs(first - second) < 4 * np.sqrt(first + second)
    assert first + second > 100
    expected = naive_answers(model, prompts_of(maze)[:1], samples=3, max_tokens=8, automaton=automaton)
    assert_same(answers[:3], expected)


def test_constrained_answers_hold_no_cost_that_the_domain_does_not_have(engine, maze):
    automaton = build_automaton(MAZE, LARGE)
    prefix = [LARGE.ids[token] for token in ("create", "0", "0", "c15")]
    settings = {"max_tokens": 30, "automaton": automaton, "prefix": prefix}
    found = engine.sample_all(prompts_of(maze)[:2], samples=2, **settings)
    assert_same(found, naive_answers(engine.model, prompts_of(maze)[:2], samples=2, **settings))
    drawn = np.concatenate([answer.tokens for answer in found])
    assert engine.model.symbols.shared[drawn].any()
    assert COSTS[drawn].max() < MAZE.costs
    for answer in found:
        state = automaton.start
        for token in answer.tokens:
            state = automaton.next_state[state, token]
            assert state >= 0


def test_padding_never_changes_which_tokens_share(maze):
    model = large_model(maze)
    arrays = [*padded(maze.prompts, padding=LARGE.ids["c777"]), *padded(maze.responses, padding=LARGE.ids["c777"])]
    with torch.inference_mode():
        plain, wild = model.losses(inputs_of(model, maze.prompts, maze.responses)), model.losses(model.inputs(*arrays))
    assert torch.allclose(plain, wild, atol=1e-6)
