"""Small step networks with random weights, and searches of a domain for them to read."""

from dataclasses import dataclass

import numpy as np
import torch

from searchformer.domains import Domain
from searchformer.model import ModelConfig, Transformer
from searchformer.model.head import BIAS_SCALE
from searchformer.search import Searcher
from searchformer.solve import random_task
from searchformer.tokens.grammar import write_text
from searchformer.tokens.steps import longest_piece, token_kinds
from searchformer.tokens.symbols import Symbols
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary

TOKEN_SHAPE = {"dim": 24, "layers": 2, "heads": 3, "ffn": 24, "positions": 800}
SHAPE = TOKEN_SHAPE | {"shift": 2, "number_heads": 2, "near": 2, "vicinity": 2}


@dataclass(frozen=True)
class Searches:
    """A*'s searches of one domain."""

    vocabulary: Vocabulary
    prompts: list[np.ndarray]
    """int64, with bos and eos."""
    responses: list[np.ndarray]
    """The same."""

    @property
    def places(self) -> tuple[int, int, int]:
        """Tokens of the longest piece of a response, of a plan, and of a prompt."""
        kinds, plan = token_kinds(self.vocabulary), self.vocabulary.ids["plan"]
        responses = max(longest_piece(kinds[response[1:-1]]) for response in self.responses)
        plans = max(longest_piece(kinds[each[np.argmax(each == plan) : -1]]) for each in self.responses)
        return responses, plans, max(longest_piece(kinds[prompt[1:-1]], prompts=True) for prompt in self.prompts)


def searches_of(domain: Domain, *, tasks: int = 2, vocabulary: Vocabulary | None = None) -> Searches:
    """Searches of the first random tasks of a domain."""
    vocabulary = vocabulary or Vocabulary.of(domain.token_list())
    prompts, responses = [], []
    for seed in range(tasks):
        task = random_task(domain, seed=seed)
        found = Searcher(task.domain).search(task.problem, seed=seed)
        prompt, trace, plan = (vocabulary.encode(part.split()) for part in write_text(domain, task.problem, found))
        prompts.append(np.array([BOS, *prompt, EOS], dtype=np.int64))
        responses.append(np.array([BOS, *trace, *plan, EOS], dtype=np.int64))
    return Searches(vocabulary, prompts, responses)


def step_model(
    vocabulary: Vocabulary,
    places: int,
    plan_places: int,
    prompt_places: int,
    *,
    seed: int = 0,
    symbols: Symbols | None = None,
    **shape: int,
) -> Transformer:
    """A network whose every part, shift, copying and near numbers included, has a say in what it writes."""
    config = ModelConfig(vocabulary=len(vocabulary), unit="step", **{**SHAPE, **shape})
    count = symbols.count if symbols else len(vocabulary)
    config = config.fitted(places=places, plan_places=plan_places, prompt_places=prompt_places, symbols=count)
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config, generator=generator, vocabulary=vocabulary, symbols=symbols)
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("shift", "copy_", "near", "vicinity")):
            is_scaled = name.endswith(("copy_bias", "copy_costs", "copy_content"))
            torch.nn.init.normal_(parameter, std=0.5 / (BIAS_SCALE if is_scaled else 1), generator=generator)
    return model.eval()


def padded(sequences: list[np.ndarray], *, padding: int = 0, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sequences as one array [B, L], and their lengths."""
    lengths = np.array([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), lengths.max() + extra), padding)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    return ids, lengths
