"""Puts a trained model into the package: weights in fp16 and a model card filled from the model's own records.

    python -m searchformer.pretrained.package --model runs/x/model --metrics runs/x/rollout/metrics.json \
        --made-with "searchformer run maze-small" --out src/searchformer/pretrained/maze-6x6
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from searchformer.errors import SearchformerError
from searchformer.files import read_json, write_text
from searchformer.model import Transformer, load_model, save_model
from searchformer.model.storage import WEIGHTS, read_model_config
from searchformer.tokens.vocabulary import Vocabulary

MOST_BYTES = 8_000_000
CARD = "MODEL_CARD.md"


def package_model(model: Path, out: Path, *, metrics: Path | None = None, made_with: list[str] | None = None) -> None:
    """Write the model in `model` to `out` with half the bytes, and a model card."""
    _, trained = read_model_config(model)
    scores = read_json(metrics, what="evaluation") if metrics else None
    network, vocabulary = load_model(model)
    size = 2 * network.parameter_count
    if size > MOST_BYTES:
        raise SearchformerError(f"{model}: a packaged model has at most {MOST_BYTES:,} bytes; this one takes {size:,}")
    largest = max(float(weight.detach().abs().max()) for weight in network.parameters())
    if not largest <= torch.finfo(torch.float16).max:
        raise SearchformerError(f"{model}: fp16 cannot hold a weight of {largest:g}")
    save_model(network.half(), vocabulary, out, trained=trained)
    stored = "Weights are stored in fp16 and computed with in float32 or bfloat16."
    facts = card_facts(network, vocabulary, trained)
    write_text(out / CARD, write_card(out.name, facts, scores, made_with or [], stored=stored))


def card_facts(network: Transformer, vocabulary: Vocabulary, trained: dict[str, Any]) -> dict[str, str]:
    """What a model card says of a model, in words."""
    config = network.config
    shape = f"dim {config.dim}, {config.layers} + {config.layers} layers, {config.heads} heads, ffn {config.ffn}"
    facts = {"shape": shape, "parameters": f"{network.parameter_count:,}", "vocabulary": f"{len(vocabulary)} tokens"}
    return facts | _facts(trained)


def _facts(trained: dict[str, Any]) -> dict[str, str]:
    """What `config.json` says about the training, in words."""
    settings = trained.get("settings", {})
    facts = {"domain": trained.get("domain", "unknown")}
    facts["tasks"] = ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if value is not None
    )
    if "deterministic" in trained:  # a published checkpoint does not say
        facts["traces"] = f"{'deterministic' if trained.get('deterministic') else 'non-deterministic'} A*"
    for name in ("variant", "sequences", "step", "seed", "bootstrap_round", "data_digest"):
        if name in trained:
            facts[name.replace("_", " ")] = f"{trained[name]:,}" if isinstance(trained[name], int) else trained[name]
    return facts


def write_card(
    name: str, facts: dict[str, str], scores: dict[str, Any] | None, made_with: list[str], *, stored: str
) -> str:
    """The model card as Markdown."""
    lines = [
        f"# {name}",
        "",
        f"A small Transformer that plans in the domain `{facts['domain']}` by imitating A*'s search.",
    ]
    if facts.get("bootstrap round", "0") != "0":
        plural = "" if facts["bootstrap round"] == "1" else "s"
        lines.append(
            f"It then learned from its own shorter searches in {facts['bootstrap round']} bootstrapping round{plural}."
        )
    lines += [stored, "", "## Training", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items() if value]
    if made_with:
        lines += ["", "Made with:", "", "```", *made_with, "```"]
    lines += ["", "## Measured scores", "", *_score_lines(scores)]
    lines += ["", "## Limits", "", *LIMITS]
    return "\n".join(lines) + "\n"


LIMITS = (
    "- Trained on tasks with the settings above, drawn as `searchformer generate` draws them. Coordinates beyond that",
    "  size are not in its vocabulary; other tasks can be written down, but it has not seen any.",
    "- Its answers are samples: some are wrong. Never use one unjudged; `searchformer solve` replays every plan in the",
    "  domain's rules and falls back to A* where none holds.",
    "- A task without a plan was never in its data: it answers with a wrong plan. `searchformer solve` asks A* first.",
)


def _score_lines(scores: dict[str, Any] | None) -> list[str]:
    """A table of the metrics of `searchformer evaluate`."""
    if scores is None:
        return ["Not measured."]
    run = scores.get("run", {})
    head = f"{scores['tasks']:,} {run.get('split', 'test')} tasks, {scores['samples']} answers each"
    rule = f"{scores.get('rule', 'strict')} judge, 95% intervals over tasks."
    lines = [
        f"{head}, temperature {run.get('temperature', 1.0)}, {rule}",
        "",
        "| metric | value | interval |",
        "|---|---|---|",
    ]
    for name, found in scores["metrics"].items():
        if found["value"] is not None:
            lines.append(f"| {name} | {found['value']:.4g} | {found['low']:.4g} to {found['high']:.4g} |")
    return lines


def main() -> None:
    """Write a trained model for the package, with a model card."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True, help="directory of the trained model")
    parser.add_argument("--out", type=Path, required=True, help="directory of the packaged model")
    parser.add_argument("--metrics", type=Path, help="metrics.json that `searchformer evaluate` wrote for it")
    parser.add_argument("--made-with", action="append", help="a command that made it; repeat for several")
    asked = parser.parse_args()
    package_model(asked.model, asked.out, metrics=asked.metrics, made_with=asked.made_with)
    print(f"{asked.out}: {(asked.out / WEIGHTS).stat().st_size:,} bytes of weights, {CARD}")


if __name__ == "__main__":
    try:
        main()
    except SearchformerError as error:
        sys.exit(f"searchformer: {error}")
