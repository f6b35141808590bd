"""`searchformer rollout`: a model and a data set in, a directory of answers out."""

import json
from pathlib import Path
from typing import Annotated

import typer


def run(
    model: Annotated[Path, typer.Option(help="Directory of the model.")],
    data: Annotated[Path, typer.Option(help="Directory of the data set.")],
    out: Annotated[Path, typer.Option(help="Directory for the answers; the same command goes on there.")],
    split: Annotated[str, typer.Option(help="test or train.")] = "test",
    tasks: Annotated[int | None, typer.Option(min=1, help="The first so many by task id.", show_default="all")] = None,
    skip: Annotated[int, typer.Option(min=0, help="Leave out the first so many before.")] = 0,
    samples: Annotated[int, typer.Option(min=1, help="Answers per task.")] = 64,
    seed: Annotated[int, typer.Option(help="Same seed, same answers, for any batch or number of workers.")] = 0,
    temperature: Annotated[float, typer.Option(help="Divides the logits; 0 takes the most probable token.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Only the k most probable tokens; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only the most probable tokens with this share together.")] = 1.0,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longer answers are cut.", show_default="twice the data set's longest response"),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Tokens every answer begins with, separated by spaces.")] = "",
    constrain: Annotated[bool, typer.Option("--constrain", help="Only tokens that the grammar allows next.")] = False,
    precision: Annotated[
        str, typer.Option(help="fp32, bf16, int8 (CPU: an 8-bit cache), or auto: bf16, except on GPUs without it.")
    ] = "auto",
    slots: Annotated[int, typer.Option(min=1, help="Sequences at a time, per worker.")] = 128,
    cache_gb: Annotated[float, typer.Option(help="Most memory for keys and values, all workers together.")] = 4.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes.", show_default="one per core on the CPU")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Which of several machines this is.")] = 0,
    world_size: Annotated[int, typer.Option(min=1, help="How many machines share the tasks.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compile: Annotated[bool, typer.Option("--compile", help="Run the network through torch.compile.")] = False,
    save_seconds: Annotated[float, typer.Option(min=0, help="Time between two files of finished answers.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Sample many answers per task with a trained model; interrupted, the same command goes on."""
    from searchformer.commands.progress import Lines
    from searchformer.rollout import RolloutOptions, roll_out

    options = RolloutOptions(
        model=model,
        data=data,
        out=out,
        split=split,
        tasks=tasks,
        skip=skip,
        samples=samples,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        max_tokens=max_tokens,
        prefix=prefix,
        constrain=constrain,
        precision=precision,
        slots=slots,
        cache_gb=cache_gb,
        workers=workers,
        rank=rank,
        world_size=world_size,
        device=device,
        compile=compile,
        save_seconds=save_seconds,
    )
    summary = roll_out(options, display=Lines())
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        state = "complete" if summary["complete"] else "waiting for other ranks"
        typer.echo(
            f"{out}: {summary['answers']:,} answers ({summary['answers_before']:,} were there), "
            f"{summary['tokens']:,} tokens, {summary['tokens_per_second']:,.0f} tokens/s, "
            f"{summary['peak_memory_gb']:.2f} GB; {state}"
        )
