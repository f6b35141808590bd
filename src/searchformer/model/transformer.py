"""The encoder-decoder Transformer: prompts and responses in, the probability of every next token out.

A position holds a token (the published networks) or a step of the search (`unit`): the first is the second with one
place, without a head of its own. Shape suffixes as in `layers.py` and `inputs.py`. Prompts are padded on the right;
`prompt_lengths_B` says where they end, and nothing behind that end changes a logit. (The published code does not mask
prompt padding in the encoder; we do.)
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from searchformer.errors import SearchformerError
from searchformer.model.config import ModelConfig
from searchformer.model.head import BIAS_SCALE, StepEmbedding, StepHead, VicinityEmbedding
from searchformer.model.inputs import Inputs, make_inputs
from searchformer.model.layers import DecoderBlock, EncoderBlock, Linear, RMSNorm
from searchformer.model.rotary import NumberTable, Rotation, rotary_table
from searchformer.tokens.numbers import Numbers
from searchformer.tokens.steps import Cutter, token_kinds, token_numbers
from searchformer.tokens.symbols import Symbols
from searchformer.tokens.vicinity import Vicinity
from searchformer.tokens.vocabulary import Vocabulary

SMALL_EMBEDDING = 0.4
"""Standard deviation of a step network's embeddings, of which several are added, at the start."""


@dataclass(frozen=True)
class Features:
    """Encoded prompts, as the decoder attends to them."""

    vectors_BSD: Tensor
    """Those behind a prompt's end mean nothing."""
    rotation: Rotation
    mask: Tensor | None
    """[B, 1, 1, S], true on each prompt's own positions; None when no prompt is padded."""


class Encoder(nn.Module):
    """Embedding, blocks, RMSNorm, linear map."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = StepEmbedding(config, config.prompt_places)
        self.layers = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.output = nn.Sequential(RMSNorm(config.dim, eps=config.norm_eps), Linear(config.dim, config.dim))


class Decoder(nn.Module):
    """Embedding, blocks, in step networks a head that writes several tokens, RMSNorm, map to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = StepEmbedding(config, config.places)
        self.vicinity = VicinityEmbedding(config) if config.vicinity else None
        self.layers = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.output = nn.Sequential(RMSNorm(config.dim, eps=config.norm_eps), Linear(config.dim, config.symbol_count))
        self.head = StepHead(config) if config.unit == "step" else None

    def step_logits(self, known_ND: Tensor, references_N: Tensor, beside_VO: Tensor) -> Tensor:
        """A step network's own logits [N, V], given what its head knows and the symbol to be relative to."""
        assert self.head is not None
        normed_ND = self.output[0](self.head.refine(known_ND))
        return self.head.add_near(self.output[1](normed_ND).float(), normed_ND, references_N, beside_VO)


class Transformer(nn.Module):
    """The network of the paper's appendix B, or one with a step per position. Weights are drawn from `generator`.

    On the device "meta" it has no weights yet: they are to be loaded. A step network needs to know the `vocabulary` and
    what it tells apart, `symbols`; the kinds, numbers and symbols of tokens are stored with the weights.
    """

    token_kinds: Tensor
    token_numbers: Tensor
    token_symbols: Tensor

    def __init__(
        self,
        config: ModelConfig,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        vocabulary: Vocabulary | None = None,
        symbols: Symbols | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.encoder = Encoder(config)
            self.decoder = Decoder(config)
        if torch.device(device).type != "meta":
            self.to_empty(device=device)
            self.initialise(generator)
        if config.unit == "step":  # a buffer would not survive `to_empty`
            assert vocabulary or torch.device(device).type == "meta", "a step network must know its tokens"
            nothing = np.zeros(config.vocabulary)
            kinds, numbers = (read(vocabulary) if vocabulary else nothing for read in (token_kinds, token_numbers))
            self.register_buffer("token_kinds", torch.from_numpy(kinds.astype(np.uint8)).to(device))
            self.register_buffer("token_numbers", torch.from_numpy(numbers.astype(np.int32)).to(device))
        if config.symbols:
            of_token = np.zeros(config.vocabulary) if symbols is None else symbols.of_token
            self.register_buffer("token_symbols", torch.from_numpy(of_token.astype(np.int32)).to(device))

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew as PyTorch's layers do by default, but from `generator`."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound, generator=generator)
            elif isinstance(module, StepEmbedding):
                scale = 1.0 if module.places == 1 else SMALL_EMBEDDING
                nn.init.normal_(module.weight, std=scale, generator=generator)
            elif isinstance(module, VicinityEmbedding):
                nn.init.zeros_(module.weight)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)
            elif isinstance(module, DecoderBlock) and self.config.shift:
                nn.init.zeros_(module.shift)
            elif isinstance(module, StepHead):
                nn.init.normal_(module.place, std=SMALL_EMBEDDING, generator=generator)
                nn.init.zeros_(module.copy_bias)
                nn.init.zeros_(module.copy_costs)
                nn.init.constant_(module.copy_content, 1 / BIAS_SCALE)
                nn.init.zeros_(module.near)
                nn.init.zeros_(module.near_output.weight)

    @property
    def parameter_count(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.encoder.embedding.weight.device

    @cached_property
    def cutter(self) -> Cutter | None:
        """Cuts sequences of symbols into this network's pieces; None for token networks."""
        if self.config.unit == "token":
            return None
        kinds = self.token_kinds.cpu().numpy()[self.symbols.first_token]
        return Cutter(kinds, self.config.places, self.config.plan_places, self.config.prompt_places)

    @cached_property
    def symbols(self) -> Symbols:
        """What this network tells apart."""
        of_token = self.token_symbols.cpu().numpy() if self.config.symbols else np.arange(self.config.vocabulary)
        return Symbols(of_token.astype(np.int64))

    @cached_property
    def numbers(self) -> Numbers:
        """The numbers of a step network's symbols."""
        kinds, numbers = self.token_kinds.cpu().numpy(), self.token_numbers.cpu().numpy()
        return Numbers.of(kinds, numbers, self.symbols, self.config.near)

    @cached_property
    def vicinity(self) -> Vicinity | None:
        """What the decoder is told of what stands near the node at hand; None where it is told nothing."""
        if self.cutter is None or not self.config.vicinity:
            return None
        return Vicinity(self.config.vicinity, self.config.number_heads, self.numbers.coordinates, self.cutter.kinds)

    @cached_property
    def number_table(self) -> NumberTable:
        """By what the numbers of pieces turn; a token network knows of no numbers."""
        found = self.numbers.coordinates if self.config.unit == "step" else np.empty(0, np.int64)
        return NumberTable(found, self.config, self.device)

    @cached_property
    def beside_VO(self) -> Tensor:
        """`Numbers.beside` on the device."""
        return torch.from_numpy(self.numbers.beside).to(self.device)

    def encode(self, prompt_BSP: Tensor, prompt_lengths_B: Tensor | None = None) -> Features:
        """Read prompts, cut into pieces. `prompt_lengths_B` None says that none is padded."""
        self._check_length(prompt_BSP.shape[1], "prompt")
        mask = prompt_mask(prompt_lengths_B, prompt_BSP.shape[1])
        rotation = self._rotation(prompt_BSP)
        x_BSD = self.encoder.embedding(prompt_BSP)
        for block in self.encoder.layers:
            x_BSD = block(x_BSD, rotation, mask)
        return Features(self.encoder.output(x_BSD), rotation, mask)

    def _rotation(self, pieces_BLP: Tensor) -> Rotation:
        cosines, sines = rotary_table(pieces_BLP.shape[1], self.config, pieces_BLP.device)
        return self.number_table.rotation((cosines[:, None], sines[:, None]), pieces_BLP)

    def hidden(self, inputs_BTP: Tensor, features: Features, near_rows: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The decoder's last residual stream, [B, T, D]; `near_rows` as in `Inputs`."""
        self._check_length(inputs_BTP.shape[1], "response")
        rotation = self._rotation(inputs_BTP)
        x_BTD = self.decoder.embedding(inputs_BTP)
        if self.decoder.vicinity is not None and near_rows is not None:
            x_BTD = x_BTD + self.decoder.vicinity(*near_rows).view_as(x_BTD)
        for block in self.decoder.layers:
            x_BTD = block(x_BTD, features.vectors_BSD, rotation, features.rotation, features.mask)
        return x_BTD

    def read(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """The hidden vectors [B, T, D], and the network's own logits of every token that is to be predicted, [N, V]."""
        features = self.encode(inputs.prompts_BSP, inputs.prompt_lengths_B)
        hidden_BTD = self.hidden(inputs.inputs_BTP, features, inputs.near_rows)
        head, references_BTP, places_N = self.decoder.head, inputs.references_BTP, inputs.places_N
        known_ND = (head.prefixes(hidden_BTD, inputs, self.beside_VO) if head else hidden_BTD).flatten(0, 1)
        if places_N is not None:
            known_ND = known_ND.index_select(0, places_N)
        if head is None or references_BTP is None:
            return hidden_BTD, self.decoder.output(known_ND).float()
        references_N = references_BTP.flatten() if places_N is None else references_BTP.flatten()[places_N]
        return hidden_BTD, self.decoder.step_logits(known_ND, references_N, self.beside_VO)

    def losses(self, inputs: Inputs) -> Tensor:
        """-log of the probability of every target, [N]."""
        hidden_BTD, logits_NV = self.read(inputs)
        losses_N = functional.cross_entropy(logits_NV, inputs.targets_N, reduction="none")
        head = self.decoder.head
        losses_N = head.losses(hidden_BTD, inputs, losses_N) if head else losses_N
        return losses_N if inputs.shared_N is None else losses_N + inputs.shared_N

    def log_probabilities(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of a token of each symbol at every target, [N, V]; [:, symbols.of_token] are all tokens."""
        hidden_BTD, logits_NV = self.read(inputs)
        own_NV = torch.log_softmax(logits_NV, dim=-1)
        head = self.decoder.head
        known_NV = head.log_probabilities(hidden_BTD, inputs, own_NV) if head else own_NV
        return known_NV - torch.from_numpy(self.symbols.log_sizes).to(known_NV) if self.config.symbols else known_NV

    def forward(self, prompt_BS: Tensor, response_BT: Tensor, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """A token network's logits of the token after each response position (ids incl. bos), [B, T, V]."""
        features = self.encode(prompt_BS[:, :, None], prompt_lengths_B)
        return self.decoder.output(self.hidden(response_BT[:, :, None], features))

    def inputs(
        self,
        prompts: np.ndarray,
        prompt_lengths: np.ndarray,
        responses: np.ndarray,
        response_lengths: np.ndarray,
    ) -> Inputs:
        """Padded ids [B, L], bos and eos included, as this network reads them."""
        return make_inputs(
            prompts,
            prompt_lengths,
            responses,
            response_lengths,
            cutter=self.cutter,
            numbers=self.numbers if self.cutter else None,
            symbols=self.symbols,
            vicinity=self.vicinity,
            device=self.device,
        )

    def _check_length(self, length: int, what: str) -> None:
        if length > self.config.positions:
            raise SearchformerError(
                f"a {what} of {length} {self.config.unit}s is longer than the model's limit of {self.config.positions}"
            )


def with_symbols(model: Transformer, symbols: Symbols) -> Transformer:
    """The same network with a symbol for each token that had to share one but no longer does; those begin alike."""
    config, before = model.config, model.symbols
    config = config.model_copy(update={"symbols": symbols.count if symbols.count < config.vocabulary else 0})
    wider = Transformer(config, device="meta", symbols=symbols)
    weights, from_symbol = model.state_dict(), torch.from_numpy(before.of_token[symbols.first_token])
    weights["token_symbols"] = torch.from_numpy(symbols.of_token.astype(np.int32))
    embeddings = {
        f"{name}.weight": each.places for name, each in model.named_modules() if isinstance(each, StepEmbedding)
    }
    for name, places in {**embeddings, "decoder.output.1.weight": 1}.items():
        table, behind = weights[name].tensor_split([places * before.count])
        weights[name] = torch.cat([table.unflatten(0, (places, before.count))[:, from_symbol].flatten(0, 1), behind])
    wider.load_state_dict({name: weights[name] for name in wider.state_dict()}, assign=True)
    return wider


def prompt_mask(prompt_lengths_B: Tensor | None, longest: int) -> Tensor | None:
    """True on each prompt's own positions, [B, 1, 1, S]; None where no lengths are given."""
    if prompt_lengths_B is None:
        return None
    positions_S = torch.arange(longest, device=prompt_lengths_B.device)
    return (positions_S < prompt_lengths_B[:, None])[:, None, None, :]
