"""Looking inside a network: the probabilities are the sampler's, and the attention is the one that it computes with."""

import numpy as np
import pytest
import torch
from step_models import searches_of, step_model

from searchformer.domains import make_domain
from searchformer.model import Transformer, load_model, make_config
from searchformer.model.inside import look_inside
from searchformer.model.layers import Attention
from searchformer.pretrained import resolve_model
from searchformer.rollout import Prompt, Sampling, sample_naively
from searchformer.tokens.symbols import costs_of, symbols_for
from searchformer.tokens.vocabulary import EOS

FOUND = searches_of(make_domain("maze", {"width": 6, "height": 6}))


def token_network():
    return load_model(resolve_model("maze-6x6"))[0]


def step_network():
    return step_model(FOUND.vocabulary, *FOUND.places)


def step_network_with_symbols():
    """High costs share a symbol, so that the keywords behind them have other symbols than ids."""
    return step_model(FOUND.vocabulary, *FOUND.places, symbols=symbols_for(costs_of(FOUND.vocabulary), 4))


@pytest.fixture(params=[token_network, step_network, step_network_with_symbols], ids=["token", "step", "symbols"])
def model(request):
    return request.param()


PROMPT, ANSWER = FOUND.prompts[0][1:-1], FOUND.responses[0][1:-1]


@pytest.mark.parametrize("length", [0, 1, 7, 33])
def test_the_likeliest_next_token_is_the_one_that_greedy_sampling_takes(model, length):
    inside = look_inside(model, PROMPT, ANSWER[:length])
    greedy = sample_naively(
        model,
        Prompt("t", PROMPT),
        sampling=Sampling(temperature=0),
        max_tokens=length + 1,
        prefix=ANSWER[:length].tolist(),
    )
    taken = greedy.tokens[length] if len(greedy.tokens) > length else EOS
    by_symbol = np.bincount(model.symbols.of_token, weights=inside.probabilities)  # greedy takes a symbol for one token
    assert by_symbol.argmax() == model.symbols.of_token[taken]
    assert inside.probabilities.sum() == pytest.approx(1, abs=1e-4)


def test_attention_covers_all_positions_and_adds_up_to_one(model):
    inside = look_inside(model, PROMPT, ANSWER[:23])
    config = model.config
    for weights, pieces in ((inside.to_prompt, inside.prompt_pieces), (inside.to_answer, inside.answer_pieces)):
        assert weights.shape == (config.layers, config.heads, len(pieces))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert [token for piece in inside.prompt_pieces for token in piece][1:-1] == PROMPT.tolist()
    flat = [token for piece in inside.answer_pieces for token in piece][1:]
    assert flat == ANSWER[: len(flat)].tolist()
    assert len(flat) == 23 if config.unit == "token" else 18 <= len(flat) <= 23  # the piece being written is no input


def test_the_weights_are_those_that_attention_mixes_values_with():
    generator = torch.Generator().manual_seed(0)
    config = make_config("dim=16,layers=1,heads=2,ffn=16", vocabulary=50)
    layer = Transformer(config, generator=generator).decoder.layers[0].attention_feat
    assert isinstance(layer, Attention)
    x_BLD, source_BSD = torch.randn(1, 3, 16, generator=generator), torch.randn(1, 5, 16, generator=generator)
    q_BHLK, k_BHSK = layer.queries_and_keys(x_BLD, source_BSD, None)
    weights = torch.softmax(q_BHLK @ k_BHSK.mT * 8**-0.5, dim=-1)
    values = layer.wv(source_BSD).unflatten(-1, (2, -1)).transpose(1, 2)
    torch.testing.assert_close(layer.wo((weights @ values).transpose(1, 2).flatten(-2)), layer(x_BLD, source_BSD))


def test_nothing_watches_the_network_afterwards(model):
    look_inside(model, PROMPT, ANSWER[:5])
    assert not any(module._forward_pre_hooks for module in model.modules())
