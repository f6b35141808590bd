"""The obvious sampler: one answer at a time, everything computed again for every token. The engine's specification.

In: a model, a prompt, a seed. Out: an `Answer`. `engine.py` gives the same answers, thousands at a time.
"""

from collections.abc import Sequence

import numpy as np
import torch

from searchformer.model import Transformer
from searchformer.rollout.requests import Alphabet, Answer, Finish, Prompt, Sampling, noise_key, uniform
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.vocabulary import BOS, EOS


def sample_naively(
    model: Transformer,
    prompt: Prompt,
    *,
    sample: int = 0,
    seed: int = 0,
    sampling: Sampling | None = None,
    max_tokens: int,
    prefix: Sequence[int] = (),
    automaton: Automaton | None = None,
) -> Answer:
    """One answer to `prompt`: `prefix` and what follows, up to `max_tokens` or to the model's last position."""
    key = noise_key(seed, prompt.task_id, sample)
    prompt_ids = np.array([[BOS, *prompt.tokens.tolist(), EOS]])
    tokens, log_probability, finish = [BOS], 0.0, "max_tokens"
    alphabet, state = Alphabet.of(model.symbols, automaton), automaton.start if automaton else 0
    while len(tokens) <= max_tokens:
        position = len(tokens) - 1
        asked = np.array([[*tokens, EOS]])  # the last token is the one to predict: any will do
        lengths = np.array([prompt_ids.shape[1]]), np.array([asked.shape[1]])
        inputs = model.inputs(prompt_ids, lengths[0], asked, lengths[1])
        if inputs.inputs_BTP.shape[1] > model.config.positions:
            break
        if position < len(prefix):
            token = prefix[position]
        else:
            with torch.inference_mode():
                known_NV = model.log_probabilities(inputs)
            known_V = known_NV[-1].cpu().double().numpy()
            logits_V = known_V + model.symbols.log_sizes
            allowed_V = alphabet.allowed_SV[state] if automaton else np.ones(len(logits_V), dtype=bool)
            symbol = choose(logits_V, allowed_V, sampling or Sampling(), uniform(key, position))
            log_probability += known_V[symbol] - np.logaddexp.reduce(logits_V)
            token = alphabet.token(symbol, state, key, position)
        state = alphabet.after(state, token)
        if token == EOS:
            finish = "eos"
            break
        tokens.append(int(token))
    answer: Finish = "eos" if finish == "eos" else "max_tokens"
    return Answer(prompt.task_id, 0, sample, np.array(tokens[1:], np.int32), answer, float(log_probability))


def choose(logits_V: np.ndarray, allowed_V: np.ndarray, sampling: Sampling, number: float) -> int:
    """The symbol that `number` in [0, 1) picks: the first whose cumulated probability, in their order, exceeds it."""
    logits_V = np.where(allowed_V, logits_V, -np.inf)
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    weights_V = np.exp((logits_V - logits_V.max()) / sampling.temperature)
    if sampling.top_k:
        weights_V[weights_V < np.sort(weights_V)[::-1][: sampling.top_k][-1]] = 0
    if sampling.top_p < 1:
        ordered_V = np.sort(weights_V)[::-1]
        last = np.searchsorted(ordered_V.cumsum(), sampling.top_p * weights_V.sum())
        weights_V[weights_V < ordered_V[min(last, len(ordered_V) - 1)]] = 0
    cumulated_V = weights_V.cumsum()
    symbol = np.searchsorted(cumulated_V, number * cumulated_V[-1], side="right")
    return int(min(symbol, np.flatnonzero(weights_V)[-1]))
