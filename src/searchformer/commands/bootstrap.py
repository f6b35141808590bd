"""`searchformer bootstrap`: fine-tune a model on its own shorter searches."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.commands.options import Flat, Json
from searchformer.engines.options import EngineOptions, make_engine


def run(
    *,
    options: Annotated[BootstrapOptions, Flat],
    out: Annotated[Path, Parameter(help="Directory of the run; run the same command again to continue.")],
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
) -> None:
    """Sample answers to training tasks, keep the shorter searches with optimal plans, fine-tune, evaluate, repeat.

    Test tasks play no part in the selection. Every round's data and model are kept. If it is interrupted, run the same
    command again to continue.
    """
    from searchformer.addresses import at_hand, working_copy
    from searchformer.bootstrap.rounds import bootstrap
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.pretrained import resolve_model

    with at_hand(options, reads=("model", "data")) as asked, working_copy(out) as here:
        asked = asked.model_copy(update={"model": resolve_model(asked.model)})
        state = bootstrap(asked, here, display=TerminalDisplay(), engine=make_engine(where))
    rounds = "1 round" if options.rounds == 1 else f"{options.rounds} rounds"
    print(json.dumps(state) if as_json else f"{out}: {rounds}; `searchformer report {out}` draws them")
