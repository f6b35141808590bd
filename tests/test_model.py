"""The network against the published one, against itself with padding, and against its own copy on disk."""

import json
import math
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from searchformer.errors import SearchformerError
from searchformer.model import SIZES, Transformer, load_model, make_config, save_model
from searchformer.model.causal import BlockedCausal
from searchformer.model.layers import RMSNorm
from searchformer.model.rotary import rotary_table, rotate
from searchformer.tokens.vocabulary import BOS, Vocabulary

GOLDEN = Path(__file__).parent / "golden" / "meta-model-s-maze10.npz"
TINY = "dim=16,layers=2,heads=2,ffn=24"


def reference_weights(name: str, shape: torch.Size) -> torch.Tensor:
    """The weights that made the golden file: drawn from the tensor's name."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    values = generator.standard_normal(tuple(shape)).astype(np.float32) * 0.08
    return torch.from_numpy(values + (1.0 if "norm" in name or name.endswith("output.0.weight") else 0.0)).float()


@pytest.fixture(scope="module")
def published() -> tuple[Transformer, dict[str, np.ndarray]]:
    with np.load(GOLDEN) as stored:
        golden = dict(stored)
    model = Transformer(make_config("15M", vocabulary=len(golden["vocabulary"])))
    model.load_state_dict({name: reference_weights(name, old.shape) for name, old in model.state_dict().items()})
    return model.eval(), golden


def tiny(vocabulary: int = 12, seed: int = 0) -> Transformer:
    return Transformer(make_config(TINY, vocabulary=vocabulary), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("index", range(4))
def test_logits_are_those_of_the_published_network(published, index):
    model, golden = published
    prompt, response = (torch.from_numpy(golden[f"{part}_{index}"]) for part in ("prompt", "response"))
    with torch.inference_mode():
        logits = model(prompt[None], response[None, :-1])[0, ::8]
    assert np.abs(logits.numpy() - golden[f"logits_{index}"]).max() < 1e-4


@pytest.mark.parametrize("index", range(4))
def test_greedy_answers_are_those_of_the_published_network(published, index):
    model, golden = published
    prompt, greedy = (torch.from_numpy(golden[f"{part}_{index}"]) for part in ("prompt", "greedy"))
    assert greedy[0] == BOS
    with torch.inference_mode():
        best = model(prompt[None], greedy[None, :-1])[0].argmax(dim=-1)
    assert best.tolist() == greedy[1:].tolist()  # by induction, greedy decoding writes just these tokens


def test_padding_never_changes_logits(published):
    model, golden = published
    prompts = [torch.from_numpy(golden[f"prompt_{i}"]) for i in range(4)]
    responses = [torch.from_numpy(golden[f"response_{i}"])[:-1] for i in range(4)]
    padded_prompts = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True, padding_value=5)
    padded_responses = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True, padding_value=7)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    with torch.inference_mode():
        together = model(padded_prompts, padded_responses, lengths)
        for index, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            alone = model(prompt[None], response[None])[0]
            assert torch.allclose(together[index, : len(response)], alone, atol=2e-5)


def test_the_content_of_padding_never_matters():
    model = tiny()
    prompts = torch.randint(12, (3, 9), generator=torch.Generator().manual_seed(1))
    responses = torch.randint(12, (3, 7), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([9, 4, 1])
    other = torch.where(torch.arange(9) < lengths[:, None], prompts, (prompts + 5) % 12)
    assert torch.equal(model(prompts, responses, lengths), model(other, responses, lengths))
    assert not torch.equal(model(prompts, responses), model(other, responses))


def test_later_response_tokens_never_change_earlier_logits():
    model = tiny()
    prompt, response = torch.arange(6)[None], torch.tensor([[0, 3, 4, 5, 6]])
    changed = torch.tensor([[0, 3, 4, 9, 10]])
    first, second = model(prompt, response), model(prompt, changed)
    assert torch.allclose(first[:, :3], second[:, :3], atol=1e-6)
    assert not torch.allclose(first[:, 3:], second[:, 3:], atol=1e-3)


def test_the_short_rmsnorm_is_torchs():
    short, long = RMSNorm(12, eps=1e-5), torch.nn.RMSNorm(12, eps=1e-5)
    x = torch.randn(3, 5, 12, generator=torch.Generator().manual_seed(0))
    weight, pull = torch.linspace(0.5, 2, 12), torch.linspace(-1, 1, 180).view_as(x)
    results = []
    for norm in (short, long):
        norm.weight.data.copy_(weight)
        own = x.clone().requires_grad_()
        y = norm(own)
        y.backward(pull)
        results.append((y, own.grad, norm.weight.grad))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("length", [1, 64, 65, 200])
def test_blocked_causal_attention_is_torchs(length):
    generator = torch.Generator().manual_seed(length)
    q, k, v, pull = (torch.randn(3, length, 8, generator=generator) for _ in range(4))
    results = []
    for attend in (BlockedCausal.apply, partial(functional.scaled_dot_product_attention, is_causal=True)):
        own = [x.clone().requires_grad_() for x in (q, k, v)]
        mixed = attend(*own)
        mixed.backward(pull)
        results.append([mixed, *(x.grad for x in own)])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*results, strict=True))


def test_rotation_turns_pairs_by_the_angle_of_their_position():
    config = make_config("dim=8,layers=1,heads=2,ffn=4", vocabulary=4)
    x = torch.randn(1, 7, 2, 4, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, *(table[:, None] for table in rotary_table(7, config, torch.device("cpu"))))
    for position in range(7):
        for pair, angle in enumerate((position, position / 100)):
            (a, b), (c, s) = x[0, position, 1, 2 * pair : 2 * pair + 2], (math.cos(angle), math.sin(angle))
            expected = torch.stack((a * c - b * s, a * s + b * c))
            assert torch.allclose(turned[0, position, 1, 2 * pair : 2 * pair + 2], expected, atol=1e-6)


def test_the_same_seed_draws_the_same_weights():
    same, again, other = tiny(seed=1).state_dict(), tiny(seed=1).state_dict(), tiny(seed=2).state_dict()
    assert all(torch.equal(same[name], again[name]) for name in same)
    assert any(not torch.equal(same[name], other[name]) for name in same)


def test_sizes_of_the_paper_have_its_parameter_counts():
    def millions(size: str) -> float:
        return Transformer(make_config(size, vocabulary=118), device="meta").parameter_count / 1e6

    assert millions("15M") == pytest.approx(6.3, abs=0.05)
    assert millions("46M") == pytest.approx(33.1, abs=0.3)
    assert millions("1M") == pytest.approx(1.2, abs=0.05)
    assert millions("3M") == pytest.approx(3, abs=0.3)
    paper = [size for size in SIZES if not size.startswith("step")]
    assert [millions(size) for size in paper] == sorted(millions(size) for size in paper)


def test_a_custom_shape_rounds_its_feed_forward_as_the_published_ones_do():
    assert make_config("dim=192,layers=6,heads=3", vocabulary=118) == make_config("15M", vocabulary=118)


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ("16M", "unknown model size '16M'; known: 1M"),
        ("dim=64,layers=3", "heads"),
        ("dim=64,layers=3,heads=3", "multiple of 2 x heads"),
        ("dim=many,layers=3,heads=4", "dim"),
        ("dim=64,layers=3,heads=4,width=9", "width"),
    ],
)
def test_a_wrong_size_is_named(size, complaint):
    with pytest.raises(SearchformerError, match=complaint):
        make_config(size, vocabulary=10)


def test_a_sequence_beyond_the_limit_is_refused():
    model = Transformer(make_config(f"{TINY},positions=8", vocabulary=12))
    with pytest.raises(SearchformerError, match="a prompt of 9 tokens is longer than the model's limit of 8"):
        model.encode(torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(SearchformerError, match="a response of 9 tokens"):
        model(torch.zeros(1, 8, dtype=torch.int64), torch.zeros(1, 9, dtype=torch.int64))


@pytest.fixture
def saved(tmp_path) -> tuple[Transformer, Path]:
    model = tiny(vocabulary=5)
    save_model(model, Vocabulary.of(["a", "b", "c"]), tmp_path / "model", trained={"size": TINY, "step": 3})
    return model, tmp_path / "model"


def test_a_saved_model_comes_back_whole(saved):
    model, directory = saved
    loaded, vocabulary = load_model(directory)
    assert vocabulary == Vocabulary.of(["a", "b", "c"])
    assert loaded.config == model.config
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    assert json.loads((directory / "config.json").read_text())["trained"] == {"size": TINY, "step": 3}


def test_a_model_loads_in_the_precision_asked_for(saved):
    loaded, _ = load_model(saved[1], dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}


def test_a_model_with_another_vocabulary_is_refused(saved):
    Vocabulary.of(["a", "b", "d"]).save(saved[1])
    with pytest.raises(SearchformerError, match="restore the model's own"):
        load_model(saved[1])


def test_a_truncated_weights_file_is_refused(saved):
    weights = saved[1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(SearchformerError, match=r"model\.safetensors cannot be read: .*restore the file"):
        load_model(saved[1])


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(SearchformerError, match=r"holds no model: config\.json is missing"):
        load_model(tmp_path)
