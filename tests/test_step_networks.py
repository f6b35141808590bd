"""Step networks: exact probabilities, a loss that means what a token network's means, and the same samplers."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_models import TOKEN_SHAPE, Searches, padded, searches_of, step_model

from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json, write_json
from searchformer.model import SIZES, ModelConfig, Transformer, load_model, make_config, read_model_config, save_model
from searchformer.model.head import BIAS_SCALE, LEAST_MASS
from searchformer.model.inputs import count_matching, count_matching_by_hand, decoder_inputs
from searchformer.model.layers import mix_with_earlier
from searchformer.rollout import Answer, Engine, Prompt, Sampling, sample_naively
from searchformer.rollout.cpu import CpuBackend
from searchformer.rollout.device import DeviceBackend
from searchformer.tokens.grammar import Automaton, build_automaton
from searchformer.tokens.steps import token_kinds
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary

MAZE = make_domain("maze", {"width": 4, "height": 4})
WORDS = Vocabulary.of(["create", "close", "plan", "wall", "start", *map(str, range(4)), *(f"c{n}" for n in range(4))])


@pytest.fixture(scope="module")
def maze() -> Searches:
    return searches_of(MAZE, tasks=4)


def inputs_of(model, prompts, responses, **padding):
    return model.inputs(*padded(prompts, **padding), *padded(responses, **padding))


def any_sequences(seed, count=3, longest=24):
    """Prompts and responses of any ids at all, which begin with bos and end with eos."""
    generator = np.random.default_rng(seed)

    def one():
        return np.array([BOS, *generator.integers(len(WORDS), size=generator.integers(0, longest)), EOS])

    return [one() for _ in range(count)], [one() for _ in range(count)]


# --- probabilities


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_all_tokens_together_have_probability_1_at_every_target_of_any_sequence(seed, places, prompt_places):
    model = step_model(WORDS, places, min(places, 3), prompt_places, seed=seed % 7)
    prompts, responses = any_sequences(seed)
    inputs = inputs_of(model, prompts, responses)
    with torch.inference_mode():
        known_NV, losses_N = model.log_probabilities(inputs), model.losses(inputs)
    assert inputs.targets_N.tolist() == [token for response in responses for token in response[1:]]
    assert torch.allclose(known_NV.exp().sum(dim=-1), torch.ones(len(known_NV)), atol=1e-5)
    assert torch.allclose(losses_N, -known_NV.gather(1, inputs.targets_N[:, None])[:, 0], atol=1e-4)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_the_kernel_counts_matching_tokens_of_any_pieces_as_the_plain_text_does(seed, places):
    generator = np.random.default_rng(seed)
    pieces = generator.integers(3, size=(2, 12, places))
    pieces[np.arange(places) >= generator.integers(1, places + 1, size=(2, 12, 1))] = -1
    earlier = decoder_inputs(pieces, pieces[:, 0])
    expected = count_matching(torch.from_numpy(pieces), torch.from_numpy(earlier))
    assert count_matching_by_hand(pieces, earlier).tolist() == expected.tolist()


def test_losses_of_searches_are_minus_the_log_probabilities(domain):
    searches = searches_of(domain)
    model = step_model(searches.vocabulary, *searches.places)
    inputs = inputs_of(model, searches.prompts, searches.responses)
    with torch.inference_mode():
        known_NV, losses_N = model.log_probabilities(inputs), model.losses(inputs)
    assert torch.allclose(known_NV.exp().sum(dim=-1), torch.ones(len(known_NV)), atol=1e-5)
    assert torch.allclose(losses_N, -known_NV.gather(1, inputs.targets_N[:, None])[:, 0], atol=1e-5)


def difference(words, token, other):
    """How much more the number or cost `token` is than `other`; None if they are not of one kind."""
    texts = [words.tokens[token], words.tokens[other]]
    kinds = {text[0] == "c" and text != "close" for text in texts}
    numbers = [int(text.removeprefix("c")) for text in texts if text.removeprefix("c").isdigit()]
    return numbers[0] - numbers[1] if len(numbers) == 2 and len(kinds) == 1 else None


def first_numbers(cutter, words, prompt):
    """The numbers in the first piece of a prompt that has any."""
    for piece in cutter.prompts(prompt[None], np.array([len(prompt)])).ids[0]:
        if numbers := [token for token in piece.tolist() if token >= 0 and words.tokens[token].isdigit()]:
            return numbers[: cutter.places - 1]
    return []


def cost(words, token):
    """The number of a cost; 0 for other tokens."""
    text = words.tokens[token]
    return int(text[1:]) if cost_text(text) else 0


def supersedes(words, later, piece):
    """Whether a step speaks of the same node as an earlier one, or creates its state at a lower cost."""

    def named(step, *, costs):
        texts = enumerate(words.tokens[token] for token in step)
        return [(place, text) for place, text in texts if named_kind(text) or (costs and cost_text(text))]

    def first_cost(step):
        return cost(words, [BOS, *step][-2])

    if named(later, costs=True) == named(piece, costs=True):
        return bool(named(piece, costs=True))
    same_state = named(later, costs=False) == named(piece, costs=False) != []
    return same_state and words.tokens[later[0]] == "create" and first_cost(later) < first_cost(piece)


def cost_text(text):
    return text[0] == "c" and text[1:].isdigit()


def named_kind(text):
    """Numbers and words, which name states; not keywords, costs, bos and eos."""
    return text not in ("create", "close", "plan", "bos", "eos") and not cost_text(text)


def mixture_by_hand(model, words, prompt, response):
    """Probabilities of every token at every target of one sequence, written as one would explain them."""
    cutter, head, vocabulary, near = model.cutter, model.decoder.head, model.config.vocabulary, model.config.near
    inputs = inputs_of(model, [prompt], [response])
    hidden_TD = model.hidden(inputs.inputs_BTP, model.encode(inputs.prompts_BSP), inputs.near_rows)[0]
    pieces = [
        piece[piece >= 0].tolist() for piece in cutter.responses(response[None], np.array([len(response)])).ids[0]
    ]
    begun = [[BOS, *first_numbers(cutter, words, prompt)], *pieces]
    keys_TD, found = head.copy_key(head.copy_norm(hidden_TD)), []
    for t, piece in enumerate(pieces):
        known_D = head.copy_norm(hidden_TD[t] + head.embedding.weight[piece[0]])
        query_D, gates_P = head.copy_query(known_D), torch.sigmoid(head.copy_gate(known_D))
        content = BIAS_SCALE * float(head.copy_content[cutter.kinds[piece[0]]]) / math.sqrt(model.config.dim)
        scores = [content * float(query_D @ keys_TD[s]) for s in range(t + 1)]
        for s in range(t + 1):  # input s holds piece s - 1
            scores[s] += BIAS_SCALE * float(head.copy_bias[cutter.kinds[piece[0]], cutter.kinds[begun[s][0]]])
            for weight, token in zip(head.copy_costs[cutter.kinds[piece[0]]], [BOS, *begun[s]][-2:], strict=True):
                scores[s] += BIAS_SCALE * float(weight) * cost(words, token)
            if s < t and (s == 0 or any(supersedes(words, later, pieces[s - 1]) for later in pieces[s:t])):
                scores[s] = -math.inf
        attention = torch.softmax(torch.tensor(scores), dim=0)
        reference = [each for each in begun[: t + 1] if words.tokens[each[0]] != "create"][-1]
        for place in range(len(piece)):
            x_D = hidden_TD[t] + head.place[place]
            for before in range(place):
                x_D = x_D + head.embedding.weight[before * vocabulary + piece[before]]
                offset = difference(words, piece[before], reference[before]) if before < len(reference) else None
                is_near = offset is not None and abs(offset) <= near
                x_D = x_D + head.near[before * (2 * near + 1) + near + offset if is_near else -1]
            for block in head.layers:
                x_D = block(x_D[None])[0]
            logits_V = model.decoder.output(x_D)
            near_O = head.near_output(model.decoder.output[0](x_D))
            for token in range(vocabulary if place < len(reference) else 0):
                offset = difference(words, token, reference[place])
                if offset is not None and abs(offset) <= near:
                    logits_V[token] += near_O[near + offset]
            own_V = torch.softmax(logits_V, dim=-1)
            mass_V = torch.zeros(vocabulary)
            for s in range(1, t + 1):
                if pieces[s - 1][1:place] == piece[1:place] and place < len(pieces[s - 1]):
                    mass_V[pieces[s - 1][place]] += attention[s]
            copied_V = (place > 0) * gates_P[place] * mass_V / (mass_V.sum() + LEAST_MASS)
            found.append((1 - copied_V.sum()) * own_V + copied_V)
    return torch.stack(found)


def test_a_token_is_written_by_the_network_or_copied_from_what_agrees_so_far(maze):
    model = step_model(maze.vocabulary, *maze.places)
    with torch.inference_mode():
        expected_NV = mixture_by_hand(model, maze.vocabulary, maze.prompts[0], maze.responses[0])
        known_NV = model.log_probabilities(inputs_of(model, maze.prompts[:1], maze.responses[:1]))
    assert torch.allclose(known_NV.exp(), expected_NV, atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_malformed_sequences_are_written_and_copied_alike(seed, places):
    model = step_model(WORDS, places, min(places, 2), 3)
    prompts, responses = any_sequences(seed, count=1)
    with torch.inference_mode():
        expected_NV = mixture_by_hand(model, WORDS, prompts[0], responses[0])
        known_NV = model.log_probabilities(inputs_of(model, prompts, responses))
    assert torch.allclose(known_NV.exp(), expected_NV, atol=1e-5)


def test_nothing_is_copied_where_nothing_was_written_before(maze):
    model = step_model(maze.vocabulary, *maze.places)
    inputs = inputs_of(model, maze.prompts[:1], maze.responses[:1])
    with torch.inference_mode():
        hidden_BTD, logits_NV = model.read(inputs)
        first_V = model.log_probabilities(inputs)[0]
        share_BTP, _ = model.decoder.head.copied(hidden_BTD, inputs)
    assert share_BTP[0, 0].tolist() == [0] * model.config.places
    assert share_BTP[0, 1:, 0].max() == 0  # nor is a keyword
    assert share_BTP[0, 1:, 1].min() > 0
    assert torch.allclose(first_V, torch.log_softmax(logits_NV[0], -1), atol=1e-5)


def test_padding_and_batch_mates_never_change_a_loss(maze):
    model = step_model(maze.vocabulary, *maze.places)
    with torch.inference_mode():
        alone = [
            model.losses(inputs_of(model, [prompt], [response]))
            for prompt, response in zip(maze.prompts, maze.responses, strict=True)
        ]
        together = model.losses(inputs_of(model, maze.prompts, maze.responses))
        wider = model.losses(inputs_of(model, maze.prompts, maze.responses, padding=7, extra=9))
    assert len({len(losses) for losses in alone}) > 1
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)
    assert torch.allclose(wider, together, atol=1e-5)


def test_later_tokens_never_change_earlier_probabilities(maze):
    model = step_model(maze.vocabulary, *maze.places)
    prompt, response = maze.prompts[0], maze.responses[0]
    with torch.inference_mode():
        before_NV = model.log_probabilities(inputs_of(model, [prompt], [response]))
        for at in (1, 2, 3, len(response) // 2, len(response) // 2 + 1, len(response) - 3):
            changed = response.copy()
            changed[at:-1] = np.random.default_rng(at).integers(2, len(maze.vocabulary), len(response) - at - 1)
            after_NV = model.log_probabilities(inputs_of(model, [prompt], [changed]))
            assert torch.allclose(before_NV[:at], after_NV[:at], atol=1e-5)
            assert not torch.allclose(before_NV[at:], after_NV[at:], atol=1e-3)


def test_token_shift_adds_the_weighted_positions_before():
    x_BTD = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    weights_KD = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    for length in (1, 2, 6):
        mixed_BTD = mix_with_earlier(x_BTD[:, :length], weights_KD)
        for t in range(length):
            expected_BD = x_BTD[:, t].clone()
            for back in range(1, min(3, t) + 1):
                expected_BD += weights_KD[back - 1] * x_BTD[:, t - back]
            assert torch.allclose(mixed_BTD[:, t], expected_BD, atol=1e-6)


def test_a_shift_that_is_all_zero_changes_nothing_and_a_token_network_may_have_one():
    prompt, response = torch.tensor([[0, 3, 4, 1]]), torch.tensor([[0, 5, 6, 7, 8]])
    plain, shifted = (
        Transformer(ModelConfig(vocabulary=9, **TOKEN_SHAPE, shift=shift), generator=torch.Generator().manual_seed(0))
        for shift in (0, 2)
    )
    assert torch.equal(plain(prompt, response), shifted(prompt, response))
    torch.nn.init.ones_(shifted.decoder.layers[0].shift)
    assert torch.allclose(plain(prompt, response)[:, 0], shifted(prompt, response)[:, 0])
    assert not torch.allclose(plain(prompt, response)[:, 1:], shifted(prompt, response)[:, 1:])


# --- on disk


@pytest.fixture
def stored(tmp_path):
    """A step network and a token network of one shape and vocabulary, on disk."""
    steps = step_model(WORDS, 5, 3, 3)
    tokens = Transformer(ModelConfig(vocabulary=len(WORDS), **TOKEN_SHAPE))
    for name, model in (("step", steps), ("token", tokens)):
        save_model(model, WORDS, tmp_path / name, trained={})
    return steps, tmp_path


def test_a_saved_step_network_comes_back_whole_with_the_kinds_of_its_tokens(stored):
    model, directory = stored
    loaded, vocabulary = load_model(directory / "step")
    assert (loaded.config, vocabulary) == (model.config, WORDS)
    assert loaded.token_kinds.tolist() == token_kinds(WORDS).tolist()
    prompts, responses = any_sequences(3)
    with torch.inference_mode():
        first, second = (each.losses(inputs_of(each, prompts, responses)) for each in (model, loaded))
    assert torch.equal(first, second)
    half, _ = load_model(directory / "step", dtype=torch.bfloat16)
    assert half.token_kinds.dtype == torch.uint8


@pytest.mark.parametrize(("weights", "config"), [("token", "step"), ("step", "token")])
def test_weights_of_the_other_kind_are_refused_in_one_clear_line(stored, weights, config):
    directory = stored[1]
    (directory / weights / "model.safetensors").replace(directory / config / "model.safetensors")
    with pytest.raises(SearchformerError) as caught:
        load_model(directory / config)
    message = str(caught.value)
    assert "\n" not in message
    assert f"config.json describes a {config} network, model.safetensors holds the weights of a {weights} network" in (
        message
    )


def test_token_networks_are_stored_with_the_fields_that_older_versions_know(stored):
    """An older version forbids other fields: it reads every token network, and refuses what it cannot run."""
    known = {"vocabulary", "dim", "layers", "heads", "ffn", "positions", "rope_theta", "norm_eps"}
    directory = stored[1]
    assert set(json.loads((directory / "token/config.json").read_text())["shape"]) == known
    found = set(json.loads((directory / "step/config.json").read_text())["shape"])
    step_fields = {"unit", "step_format", "shift", "number_heads", "near", "places", "plan_places", "prompt_places"}
    assert found - known == step_fields | {"vicinity"}
    assert ModelConfig.model_config["extra"] == "forbid"
    later = read_json(directory / "token/config.json", what="model")
    later["shape"]["unheard_of"] = 1
    write_json(directory / "token/config.json", later)
    with pytest.raises(SearchformerError, match="does not describe a model") as caught:
        read_model_config(directory / "token")
    assert "unheard_of" in str(caught.value)


def test_named_sizes_of_step_networks_say_so_and_the_papers_are_token_networks():
    for size in SIZES:
        config = make_config(size, vocabulary=20)
        assert config.unit == ("step" if size.startswith("step") else "token")
        assert (config.shift > 0) == (config.unit == "step")


def test_a_token_network_with_places_is_refused():
    with pytest.raises(SearchformerError, match="all its places must be 1"):
        make_config("dim=16,layers=2,heads=2,ffn=24,places=3", vocabulary=9)


# --- sampling

BACKENDS = {
    "cpu": lambda model: CpuBackend(model, precision="fp32", threads=1),
    "cpu-2-threads": lambda model: CpuBackend(model, precision="fp32", threads=2),
    "device": lambda model: DeviceBackend(model, precision="fp32"),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Makes a backend of a model."""
    return BACKENDS[request.param]


def prompts_of(searches: Searches) -> list[Prompt]:
    return [Prompt(f"task-{number}", prompt[1:-1]) for number, prompt in enumerate(searches.prompts)]


def assert_same(found: list[Answer], expected: list[Answer]) -> None:
    assert [(a.task_id, a.sample, a.finish, a.tokens.tolist()) for a in found] == [
        (a.task_id, a.sample, a.finish, a.tokens.tolist()) for a in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5 * max(len(one.tokens), 1) + 1e-6)


def naive_answers(model, prompts, *, samples, **settings):
    return [sample_naively(model, prompt, sample=s, **settings) for prompt in prompts for s in range(samples)]


def inside_a_step(searches: Searches, row: int = 0) -> list[int]:
    """The beginning of a search, up to the middle of a step; most of it is legal, so that there is much to copy."""
    return searches.responses[row][1:30].tolist()


def test_every_backend_gives_the_answers_of_the_obvious_sampler_in_every_domain(domain):
    searches = searches_of(domain)
    model, prompts = step_model(searches.vocabulary, *searches.places), prompts_of(searches)
    for temperature, prefix in ((0.0, []), (1.0, inside_a_step(searches))):
        settings = {"max_tokens": len(prefix) + 17, "prefix": prefix, "seed": 3}
        expected = naive_answers(model, prompts, samples=2, sampling=Sampling(temperature), **settings)
        for make in BACKENDS.values():
            engine = Engine(model, searches.vocabulary, backend=make(model), slots=3)
            assert_same(engine.sample_all(prompts, samples=2, temperature=temperature, **settings), expected)


def test_a_network_whose_places_are_too_few_samples_alike(maze, backend):
    model, prompts = step_model(maze.vocabulary, 2, 2, 2), prompts_of(maze)
    engine = Engine(model, maze.vocabulary, backend=backend(model), slots=3)
    settings = {"max_tokens": 45, "prefix": inside_a_step(maze)}
    expected = naive_answers(model, prompts, samples=2, **settings)
    assert_same(engine.sample_all(prompts, samples=2, **settings), expected)


@pytest.mark.parametrize(
    "sampling", [Sampling(0.6, top_k=3), Sampling(1.3, 0, 0.7), Sampling(1, 9, 0.5), Sampling(0.5)], ids=str
)
def test_top_k_top_p_and_temperature_are_those_of_the_obvious_sampler(maze, backend, sampling):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)[:2]
    engine = Engine(model, maze.vocabulary, backend=backend(model))
    expected = naive_answers(model, prompts, samples=2, sampling=sampling, max_tokens=25)
    assert_same(engine.sample_all(prompts, samples=2, max_tokens=25, **vars(sampling)), expected)


@pytest.mark.parametrize("length", [0, 1, 3, 6])
def test_a_prefix_may_end_anywhere_in_a_step(maze, backend, length):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)[:1]
    engine = Engine(model, maze.vocabulary, backend=backend(model))
    settings = {"max_tokens": 20, "prefix": maze.responses[0][1 : 1 + length].tolist()}
    expected = naive_answers(model, prompts, samples=2, **settings)
    assert_same(engine.sample_all(prompts, samples=2, **settings), expected)


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_a_limit_may_cut_anywhere_in_a_piece(maze, backend, limit):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)[:2]
    engine = Engine(model, maze.vocabulary, backend=backend(model))
    found = engine.sample_all(prompts, samples=3, max_tokens=limit)
    assert_same(found, naive_answers(model, prompts, samples=3, max_tokens=limit))
    assert max(len(answer.tokens) for answer in found) == limit
    (cut,) = engine.sample_all(prompts[:1], samples=1, max_tokens=limit, prefix=inside_a_step(maze))
    assert (cut.tokens.tolist(), cut.finish, cut.log_probability) == (inside_a_step(maze)[:limit], "max_tokens", 0.0)


def test_constrained_answers_follow_the_grammar_and_the_obvious_sampler(smallest):
    searches = searches_of(smallest, tasks=1)
    model, prompts = step_model(searches.vocabulary, *searches.places), prompts_of(searches)
    settings = {"max_tokens": 40, "automaton": build_automaton(smallest, searches.vocabulary)}
    expected = naive_answers(model, prompts, samples=3, **settings)
    for make in BACKENDS.values():
        engine = Engine(model, searches.vocabulary, backend=make(model))
        found = engine.sample_all(prompts, samples=3, **settings)
        assert_same(found, expected)
    table = settings["automaton"].next_state
    for answer in found:
        state = settings["automaton"].start
        for token in answer.tokens:
            state = table[state, token]
            assert state >= 0


def endless(vocabulary: Vocabulary) -> Automaton:
    """Everything but eos, for answers of a given length."""
    next_state = np.zeros((1, len(vocabulary)), np.int32)
    next_state[0, EOS] = -1
    return Automaton(start=0, next_state=next_state, expects=("anything but the end",))


def test_a_cache_too_small_for_all_makes_sequences_wait_and_changes_no_answer(maze, backend, monkeypatch):
    """With one place, every token has a position, so that sequences take several blocks each."""
    model, prompts = step_model(maze.vocabulary, 1, 1, 1), prompts_of(maze)[:2]
    made = backend(model)
    settings = {"samples": 3, "max_tokens": 70, "automaton": endless(maze.vocabulary)}
    roomy = Engine(model, maze.vocabulary, backend=made, slots=8).sample_all(prompts, **settings)
    assert {len(answer.tokens) for answer in roomy} == {70}
    starts, decode = [], made.decode

    def watched(rows, *arguments):
        starts.extend(rows.key[rows.position == 0].tolist())
        return decode(rows, *arguments)

    monkeypatch.setattr(made, "decode", watched)
    tight = Engine(model, maze.vocabulary, backend=made, slots=8, cache_gb=5.5 * made.block_bytes / 1e9)
    assert tight.blocks == 5  # a sequence takes 2 and its prompt 1
    assert_same(tight.sample_all(prompts, **settings), roomy)
    assert len(starts) > len(set(starts)) == len(roomy)


def test_an_answer_does_not_depend_on_slots_or_on_the_other_prompts(maze):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)

    def answers(slots, tasks, **kind):
        engine = Engine(model, maze.vocabulary, slots=slots, precision="fp32", **kind)
        return {(a.task_id, a.sample): a.tokens.tolist() for a in engine.sample(tasks, samples=6, max_tokens=60)}

    together = answers(64, prompts, threads=1)
    assert answers(1, prompts[::-1], threads=1) == together
    assert answers(5, prompts, threads=2) == together
    assert answers(3, prompts[1:2], threads=1) == {key: found for key, found in together.items() if key[0] == "task-1"}


def test_an_engine_that_is_used_again_remembers_nothing(maze, backend):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)
    engine = Engine(model, maze.vocabulary, backend=backend(model), slots=4)
    first = engine.sample_all(prompts, samples=3, max_tokens=50)
    engine.sample_all(prompts[::-1], samples=2, seed=9, max_tokens=80, prefix=inside_a_step(maze, row=1))
    assert_same(engine.sample_all(prompts, samples=3, max_tokens=50), first)


def test_the_samplers_log_probability_is_the_trainers(domain):
    searches = searches_of(domain)
    model, prompts = step_model(searches.vocabulary, *searches.places), prompts_of(searches)
    for make in BACKENDS.values():
        engine = Engine(model, searches.vocabulary, backend=make(model))
        for answer in engine.sample_all(prompts, samples=3, max_tokens=60):
            response = np.array([BOS, *answer.tokens, EOS])
            with torch.inference_mode():
                losses = model.losses(inputs_of(model, [searches.prompts[answer.prompt]], [response]))
            sampled = losses if answer.finish == "eos" else losses[:-1]
            assert answer.log_probability == pytest.approx(-float(sampled.sum()), abs=1e-5 * len(losses))


@pytest.mark.parametrize(("kind", "precision"), [("cpu", "bf16"), ("cpu", "int8"), ("device", "bf16")])
def test_narrow_caches_keep_probabilities_close(maze, kind, precision):
    model, prompts = step_model(maze.vocabulary, *maze.places), prompts_of(maze)
    make = {"cpu": CpuBackend, "device": DeviceBackend}[kind]
    prefixes = [response[1:-1].tolist() for response in maze.responses]
    narrow, exact = (
        [
            engine.sample_all([prompt], samples=1, temperature=0, max_tokens=len(prefix) + 5, prefix=prefix)[0]
            for prompt, prefix in zip(prompts, prefixes, strict=True)
        ]
        for engine in (
            Engine(model, maze.vocabulary, backend=make(model, precision=each)) for each in (precision, "fp32")
        )
    )
    same = [one.tokens.tolist() == other.tokens.tolist() for one, other in zip(narrow, exact, strict=True)]
    assert sum(same) >= 3
    for one, other in zip(narrow, exact, strict=True):
        if one.tokens.tolist() == other.tokens.tolist():
            assert one.log_probability == pytest.approx(other.log_probability, abs=0.3)
    assert any(one.log_probability != other.log_probability for one, other in zip(narrow, exact, strict=True))


# --- limits, in positions


def test_positions_are_counted_in_steps_and_the_last_one_ends_an_answer(maze, backend):
    """Positions hold several tokens each; sampling goes on to the end of the last one, forced tokens or not."""
    model, prompts = step_model(maze.vocabulary, *maze.places, positions=24), prompts_of(maze)
    engine = Engine(model, maze.vocabulary, backend=backend(model), slots=3)
    for prefix in ([], inside_a_step(maze), maze.responses[0][1:-1].tolist()):
        settings = {"max_tokens": model.config.most_tokens, "prefix": prefix, "automaton": endless(maze.vocabulary)}
        expected = naive_answers(model, prompts[:2], samples=2, **settings)
        found = engine.sample_all(prompts[:2], samples=2, **settings)
        assert_same(found, expected)
        assert {answer.finish for answer in found} == {"max_tokens"}
        for answer in found:
            response = np.array([[BOS, *answer.tokens, EOS]])
            counts = model.cutter.responses(response, np.array([response.shape[1]])).counts
            assert counts[0] == 25  # the last piece is eos, which was not written
        assert max(len(answer.tokens) for answer in found) > 24


def test_limits_that_positions_cannot_hold_are_refused_in_one_line(maze):
    longest = max(len(prompt) for prompt in maze.prompts)
    model = step_model(maze.vocabulary, *maze.places, positions=longest - 2)
    engine = Engine(model, maze.vocabulary)
    assert len(engine.sample_all(prompts_of(maze), samples=1, max_tokens=5)) == len(maze.prompts)
    most = model.config.positions * model.config.places
    with pytest.raises(SearchformerError, match=f"max_tokens is from 1 to {most}, the model's limit; found {most + 1}"):
        engine.sample_all(prompts_of(maze), samples=1, max_tokens=most + 1)
    short = step_model(maze.vocabulary, *maze.places, positions=3)
    with pytest.raises(SearchformerError, match=r"has \d+ steps with bos and eos; the model takes 3"):
        Engine(short, maze.vocabulary).sample_all(prompts_of(maze), samples=1)
    with (
        torch.inference_mode(),
        pytest.raises(SearchformerError, match=r"of \d+ steps is longer than the model's limit of 3"),
    ):
        short.losses(inputs_of(short, maze.prompts, maze.responses))
