"""`searchformer train`: a data set in, a trained model out."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def run(
    data: Annotated[Path, typer.Option(help="Directory of the data set.")],
    out: Annotated[Path, typer.Option(help="Directory of the run; the same command resumes it.")],
    model: Annotated[
        str, typer.Option(help="1M, 3M, 15M, 46M, 175M, 747M, or e.g. dim=64,layers=3,heads=4,ffn=192.")
    ] = "15M",
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Learn plans without traces (solution-only).")] = False,
    sequences: Annotated[
        int | None, typer.Option(help="Train on the first so many tasks by task id.", show_default="all")
    ] = None,
    validation: Annotated[
        int, typer.Option(help="Hold the last so many training tasks out and keep the model that is best on them.")
    ] = 0,
    patience: Annotated[
        int, typer.Option(help="Stop after so many evaluations without a better validation loss; 0: never.")
    ] = 0,
    max_trace_tokens: Annotated[int, typer.Option(help="Leave out tasks with longer traces.")] = 10000,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.", show_default="the paper's")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Sequences per step, over all processes.", show_default="the paper's")
    ] = None,
    tokens_per_microbatch: Annotated[
        int, typer.Option(help="Padded tokens computed at once; more are accumulated, same gradient.")
    ] = 16384,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.", show_default="the paper's")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Steps of linear warm-up.", show_default="2000, at most a tenth of the steps")
    ] = None,
    schedule: Annotated[str, typer.Option(help="cosine (down to a tenth of the peak) or constant.")] = "cosine",
    optimiser: Annotated[
        Literal["adamw", "muon"],
        typer.Option(help="adamw (the paper's), or muon on the layers' matrices: about half the steps."),
    ] = "adamw",
    beta1: Annotated[float, typer.Option(help="AdamW's decay of the first moment.")] = 0.9,
    beta2: Annotated[float, typer.Option(help="AdamW's decay of the second moment.")] = 0.99,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 0.01,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm.", show_default="no clipping")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Fine-tune the model in this directory (or of this run).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the first weights and the order of the batches.")] = 0,
    precision: Annotated[
        str, typer.Option(help="Of matrix products: auto (the faster one here), fp32 or bf16.")
    ] = "auto",
    compile: Annotated[
        bool, typer.Option("--compile", help="torch.compile: a minute or two first, faster then.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    eval_every: Annotated[
        int, typer.Option(help="Steps between evaluations (on validation, else test tasks); 0: none.")
    ] = 1000,
    eval_tasks: Annotated[int, typer.Option(help="Test tasks per evaluation.")] = 256,
    exact_every: Annotated[
        int, typer.Option(help="Steps between greedy answers to a few test tasks, at an evaluation; 0 for none.")
    ] = 0,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 500,
    log_every: Annotated[int, typer.Option(help="Steps between lines of metrics.jsonl.")] = 50,
    cache: Annotated[
        Path | None, typer.Option(help="Where the unpacked data set goes.", show_default="beside the data set")
    ] = None,
    tracker: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or trackio; may be given twice.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the run's curves into curves.png at the end.")] = False,
    bootstrap_round: Annotated[int, typer.Option(min=0, hidden=True, help="Noted in the model.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Train an encoder-decoder Transformer on a data set, or go on with an unfinished run."""
    from searchformer.commands.progress import Lines
    from searchformer.commands.train_answers import greedy_match
    from searchformer.train import make_options, train
    from searchformer.train.curves import plot_curves
    from searchformer.train.log import make_trackers
    from searchformer.train.processes import end_process

    options = make_options(
        data=data,
        model=model,
        plan_only=plan_only,
        sequences=sequences,
        validation=validation,
        patience=patience,
        max_trace_tokens=max_trace_tokens,
        steps=steps,
        batch_size=batch_size,
        tokens_per_microbatch=tokens_per_microbatch,
        lr=lr,
        warmup=warmup,
        schedule=schedule,
        optimiser=optimiser,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        clip=clip,
        init_from=init_from,
        seed=seed,
        precision=precision,
        compile=compile,
        device=device,
        eval_every=eval_every,
        eval_tasks=eval_tasks,
        exact_every=exact_every,
        save_every=save_every,
        log_every=log_every,
        cache=cache,
    )
    if int(os.environ.get("RANK", "0")):
        train(options, out, bootstrap_round=bootstrap_round)
        return end_process()
    trackers = make_trackers(tracker or (), out)
    result = train(
        options,
        out,
        display=Lines(),
        listeners=trackers,
        exact_match=greedy_match,
        bootstrap_round=bootstrap_round,
    )
    summary: dict[str, Any] = {"model": str(result.model), "step": result.step, "parameters": result.parameters}
    summary |= result.last
    if plot:
        summary["plot"] = str(plot_curves(out))
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        typer.echo(f"{result.model}: {result.parameters:,} parameters, step {result.step}")
    for listener in trackers:
        listener.close()
    end_process()
