"""`searchformer bootstrap`: fine-tune a model on its own shorter searches."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def run(
    model: Annotated[Path, typer.Option(help="Directory of the model to begin with.")],
    data: Annotated[Path, typer.Option(help="Directory of its data set.")],
    out: Annotated[Path, typer.Option(help="Directory of the run; the same command goes on there.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of sampling and fine-tuning.")] = 3,
    samples: Annotated[int, typer.Option(min=1, help="Answers per training task.")] = 32,
    tasks: Annotated[int | None, typer.Option(min=1, help="Training tasks used.", show_default="all")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Take other training tasks in every round.")] = False,
    rule: Annotated[str, typer.Option(help="Selection: paper, sound, several or legal.")] = "paper",
    temperature: Annotated[float, typer.Option(help="Of sampling answers to training tasks.")] = 1.0,
    steps: Annotated[int, typer.Option(min=1, help="Fine-tuning steps per round.")] = 10_000,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Sequences per step.", show_default="the paper's")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.", show_default="the paper's")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Warm-up steps.", show_default="a tenth")] = None,
    optimiser: Annotated[
        Literal["adamw", "muon"], typer.Option(help="adamw or muon: see searchformer train.")
    ] = "adamw",
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 0.01,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm.", show_default="none")] = None,
    max_trace_tokens: Annotated[int, typer.Option(help="Leave out longer traces.")] = 10_000,
    eval_tasks: Annotated[int | None, typer.Option(min=1, help="Test tasks.", show_default="all")] = None,
    eval_samples: Annotated[int, typer.Option(min=1, help="Answers per test task.")] = 64,
    control: Annotated[bool, typer.Option("--control", help="Also fine-tune on the original traces.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of sampling and of the order of batches.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Training processes on this machine.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Sample answers to training tasks, keep the shorter searches with optimal plans, fine-tune, evaluate, repeat.

    Only training tasks choose. Every round's data and model are kept; interrupted, the same command goes on.
    """
    from searchformer.bootstrap.rounds import BootstrapOptions, bootstrap
    from searchformer.commands.progress import Lines

    options = BootstrapOptions(
        model=model,
        data=data,
        rounds=rounds,
        samples=samples,
        tasks=tasks,
        fresh=fresh,
        rule=rule,
        temperature=temperature,
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        warmup=warmup,
        optimiser=optimiser,
        weight_decay=weight_decay,
        clip=clip,
        max_trace_tokens=max_trace_tokens,
        eval_tasks=eval_tasks,
        eval_samples=eval_samples,
        control=control,
        seed=seed,
        processes=processes,
        device=device,
    )
    state = bootstrap(options, out, display=Lines())
    if as_json:
        typer.echo(json.dumps(state))
    else:
        typer.echo(f"{out}: {options.rounds} rounds; `searchformer report {out}` draws them")
