"""A model in memory, ready to answer: loaded from a directory, a packaged model's name, or the Hugging Face Hub.

In: a path or a Hub id. Out: answers as text. With the extra `hub` it also has `save_pretrained` and `push_to_hub`.

    model = load("maze-6x6")
    model.sample([{"width": 6, "height": 6, "start": [0, 0], "goal": [5, 5], "walls": []}], samples=4)
"""

import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.extras import require
from searchformer.model import Transformer, load_model, read_model_config
from searchformer.pretrained import packaged_models, resolve_model
from searchformer.rollout import Engine
from searchformer.search.world import World
from searchformer.solve import make_task
from searchformer.solve.planning import size_warnings
from searchformer.tokens.vocabulary import Vocabulary

HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
FILES = ("model.safetensors", "config.json", "vocabulary.json", "*.md")
"""What is downloaded of a model on the Hub."""


class Model:
    """A network with its vocabulary."""

    def __init__(self, network: Transformer, vocabulary: Vocabulary, trained: dict[str, Any], name: str) -> None:
        self.network, self.vocabulary, self.trained, self.name = network, vocabulary, trained, name

    @cached_property
    def domain(self) -> Domain:
        """The domain that the model was trained for."""
        if "domain" not in self.trained:
            raise SearchformerError(f"the model {self.name} does not say which domain it is for; give it prompts")
        return make_domain(self.trained["domain"], self.trained.get("settings", {}))

    @cached_property
    def engine(self) -> Engine:
        """The sampler, with its memory."""
        return Engine(self.network, self.vocabulary)

    def sample(
        self,
        tasks: Sequence[dict[str, Any] | str],
        *,
        samples: int = 1,
        seed: int = 0,
        temperature: float = 1.0,
        max_tokens: int | None = None,
    ) -> list[list[str]]:
        """`samples` answers to each task, as text; a task is a JSON object, or its prompt as text.

        Warns of tasks of another size than the model was trained for.
        """
        prompts = [task.split() if isinstance(task, str) else self._prompt(task) for task in tasks]
        answers = self.engine.sample_all(
            prompts, samples=samples, seed=seed, temperature=temperature, max_tokens=max_tokens
        )
        texts = [" ".join(self.vocabulary.decode(answer.tokens)) for answer in answers]
        return [texts[first : first + samples] for first in range(0, len(texts), samples)]

    def _prompt(self, record: dict[str, Any]) -> list[str]:
        task = make_task(record, name=self.domain.name).as_domain(self.domain)
        for text in size_warnings(self.trained, task):
            warnings.warn(text, stacklevel=4)
        return list(World(task.domain, task.problem).prompt_tokens())


def load(path_or_hub_id: str | Path, *, revision: str | None = None, **download: Any) -> Model:
    """The model of a directory, a training run, a packaged model's name, or a repository `owner/name` on the Hub."""
    name = str(path_or_hub_id)
    local = Path(name).exists() or name in {model.name for model in packaged_models()}
    if not local and HUB_ID.fullmatch(name):
        hub = require("huggingface_hub", extra="hub")
        try:
            found = hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES), **download)
        except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise SearchformerError(f"{name} is no directory here, and not to be had from the Hub: {reason}") from None
        return load_directory(Path(found), name=name)
    return load_directory(resolve_model(name), name=name)


def load_directory(directory: Path, *, name: str) -> Model:
    """The model of a directory; with the Hub's methods where huggingface_hub is installed."""
    network, vocabulary = load_model(directory)
    _, trained = read_model_config(directory)
    if find_spec("huggingface_hub") is None:
        return Model(network, vocabulary, trained, name)
    from searchformer.interop.hub import HubModel

    return HubModel(network, vocabulary, trained, name)
