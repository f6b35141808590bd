"""The encoder-decoder Transformer: prompt ids and response ids in, logits of every next token out.

Shape suffixes as in `layers.py`. Prompts are padded on the right with any id; `prompt_lengths_B` says where they end,
and nothing behind that end changes a logit. (The published code does not mask prompt padding in the encoder; we do.)
"""

import torch
from torch import Tensor, nn

from searchformer.errors import SearchformerError
from searchformer.model.config import ModelConfig
from searchformer.model.layers import DecoderBlock, EncoderBlock, Linear, RMSNorm, rotary_table


def unset_embedding(config: ModelConfig) -> nn.Embedding:
    """An embedding to be drawn or loaded; nn.Embedding's own draw, on "meta", would import torch's compiler."""
    return nn.Embedding.from_pretrained(torch.empty(config.vocabulary, config.dim), freeze=False)


class Encoder(nn.Module):
    """Embedding, blocks, RMSNorm, linear map."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = unset_embedding(config)
        self.layers = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.output = nn.Sequential(RMSNorm(config.dim, eps=config.norm_eps), Linear(config.dim, config.dim))


class Decoder(nn.Module):
    """Embedding, blocks, RMSNorm, map to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = unset_embedding(config)
        self.layers = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.output = nn.Sequential(RMSNorm(config.dim, eps=config.norm_eps), Linear(config.dim, config.vocabulary))


class Transformer(nn.Module):
    """The network of the paper's appendix B. Weights are drawn from `generator`, or from torch's global one.

    On the device "meta" it has no weights yet: they are to be loaded.
    """

    def __init__(
        self, config: ModelConfig, *, generator: torch.Generator | None = None, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.encoder = Encoder(config)
            self.decoder = Decoder(config)
        if torch.device(device).type != "meta":
            self.to_empty(device=device)
            self.initialise(generator)

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew as PyTorch's layers do by default, but from `generator`."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound, generator=generator)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, generator=generator)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)

    @property
    def parameter_count(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.encoder.embedding.weight.device

    def encode(self, prompt_BS: Tensor, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """Features of the prompts (ids incl. bos and eos), [B, S, D]; those behind a prompt's end mean nothing.

        `prompt_lengths_B` None says that no prompt is padded.
        """
        self._check_length(prompt_BS.shape[1], "prompt")
        mask = prompt_mask(prompt_lengths_B, prompt_BS.shape[1])
        rotary = rotary_table(prompt_BS.shape[1], self.config, prompt_BS.device)
        x_BSD = self.encoder.embedding(prompt_BS)
        for block in self.encoder.layers:
            x_BSD = block(x_BSD, rotary, mask)
        return self.encoder.output(x_BSD)

    def decode(self, response_BT: Tensor, features_BSD: Tensor, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """Logits of the token after each response position (ids incl. bos), [B, T, V]."""
        return self.decoder.output(self.hidden(response_BT, features_BSD, prompt_lengths_B))

    def hidden(self, response_BT: Tensor, features_BSD: Tensor, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """The decoder's last residual stream, [B, T, D]: logits are `decoder.output` of it."""
        self._check_length(response_BT.shape[1], "response")
        mask = prompt_mask(prompt_lengths_B, features_BSD.shape[1])
        rotary = rotary_table(response_BT.shape[1], self.config, response_BT.device)
        x_BTD = self.decoder.embedding(response_BT)
        for block in self.decoder.layers:
            x_BTD = block(x_BTD, features_BSD, rotary, mask)
        return x_BTD

    def forward(self, prompt_BS: Tensor, response_BT: Tensor, prompt_lengths_B: Tensor | None = None) -> Tensor:
        """Logits of the token after each response position, [B, T, V]."""
        return self.decode(response_BT, self.encode(prompt_BS, prompt_lengths_B), prompt_lengths_B)

    def _check_length(self, length: int, what: str) -> None:
        if length > self.config.positions:
            raise SearchformerError(
                f"a {what} of {length} tokens is longer than the model's limit of {self.config.positions}"
            )


def prompt_mask(prompt_lengths_B: Tensor | None, longest: int) -> Tensor | None:
    """True on each prompt's own positions, [B, 1, 1, S]; None where no lengths are given."""
    if prompt_lengths_B is None:
        return None
    positions_S = torch.arange(longest, device=prompt_lengths_B.device)
    return (positions_S < prompt_lengths_B[:, None])[:, None, None, :]
