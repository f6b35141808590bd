"""The browser app: a JSON interface to searches, models and runs, and the page that uses it.

In: `ServeOptions`. Out: an ASGI application. Searches and judging run in worker threads, models in the sampler's own.
Nothing that is sent here is ever written to disk. Try: `searchformer serve`, then open /api for the interface.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request, WebSocket, WebSocketDisconnect
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError

from searchformer import __version__
from searchformer.domains.formats import levels_from_text
from searchformer.domains.formats.slc import levels_from_slc
from searchformer.errors import SearchformerError
from searchformer.options import error_message
from searchformer.rollout.requests import Sampling
from searchformer.search.world import World
from searchformer.solve import Task
from searchformer.solve.planning import LONGEST_ANSWER
from searchformer.web import page, records
from searchformer.web.example import opening
from searchformer.web.guard import REPORT_POLICY, Guard
from searchformer.web.mazes import new_task
from searchformer.web.models import Models
from searchformer.web.options import ServeOptions
from searchformer.web.runs import Runs
from searchformer.web.sampler import BusyError, Failed, Sampler, Tokens, Waiting, settings_of
from searchformer.web.searches import Follower, Searches, read_task

STATIC = Path(__file__).parent / "static"
THREADS = 4
"""Requests that compute at a time; the others wait."""
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": records.Problem, "description": text}
    for status, text in {
        400: "The request is not readable",
        403: "The request comes from another site",
        404: "There is no such thing",
        405: "Another method is expected",
        413: "The request is too large",
        422: "The request asks for something impossible; `detail` says what",
    }.items()
}
REFUSED_AS_JSON: dict[int | str, dict[str, Any]] = {
    status: {"content": {"application/json": {"schema": records.Problem.model_json_schema()}}, **about}
    for status, about in REFUSED.items()
}
"""The same, where the reply itself is not JSON."""
RunName = Annotated[str, InPath(max_length=200)]

Result = TypeVar("Result")


def make_app(options: ServeOptions) -> Guard:
    """The application."""
    runs = Runs(options.run)
    models, searches = Models(runs.directories, model=options.model), Searches()
    sampler, computing = Sampler(**settings_of(options)), asyncio.Semaphore(THREADS)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sampler.start(warm=tuple(entry.directory for entry in models.first_asked(opening(models))))
        yield
        sampler.stop()

    app = FastAPI(
        title="searchformer",
        version=__version__,
        description="Searches by A* and by Transformers. `WS /api/ask` streams a model's answers: see docs/web.md.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=REFUSED,
    )
    _add_errors(app)

    async def compute(function: Callable[[], Result]) -> Result:
        async with computing:
            return await asyncio.to_thread(function)

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/api", include_in_schema=False)
    async def documentation() -> FileResponse:
        return FileResponse(STATIC / "api.html")

    @app.get("/api/models")
    async def list_models() -> list[records.ModelView]:
        """The models that can be asked."""
        return models.views()

    @app.get("/api/example")
    async def example() -> records.Example:
        """The task that the page opens with, and two searches of it."""
        return await compute(lambda: opening(models))

    @app.get("/api/gallery")
    async def gallery() -> list[records.LevelView]:
        """Sokoban levels to begin with."""
        return gallery_levels()

    @app.post("/api/levels")
    async def read_levels(asked: records.LevelsText) -> list[records.LevelView]:
        """The levels in a text. It is read in memory and not kept."""
        return await compute(lambda: parse_levels(asked.text))

    @app.post("/api/task")
    async def draw_task(asked: records.NewTask) -> records.TaskRecord:
        """A new task."""
        return await compute(lambda: new_task(asked))  # type: ignore[arg-type,return-value]

    @app.post("/api/search")
    async def search(asked: records.SearchRequest) -> records.Search:
        """A search by A* or one of its kin."""
        return await compute(lambda: searches.run(read_task(asked.task), asked))

    @app.post("/api/plan")
    async def plan(asked: records.PlanRequest) -> records.Plan:
        """A shortest plan, for hints and comparison."""
        return await compute(lambda: searches.plan(read_task(asked.task)))

    @app.post("/api/lengths")
    async def lengths(asked: records.PlanRequest) -> records.Lengths:
        """How long A*'s searches are, over 64 runs with random ties."""
        return await compute(lambda: searches.lengths(read_task(asked.task)))

    @app.post("/api/inside")
    async def inside(asked: records.InsideRequest) -> records.InsideView:
        """The probabilities of the next token, and where the decoder looks."""

        def look() -> records.InsideView:
            from searchformer.web.inside import view_inside

            return view_inside(sampler, *models.prepare(read_task(asked.task), asked.model), asked.tokens)

        return await compute(look)

    @app.post("/api/replay", response_class=HTMLResponse, responses=REFUSED_AS_JSON)
    async def replay(asked: records.ReplayRequest) -> HTMLResponse:
        """Two searches as one HTML file that plays without a server."""

        def make() -> str:
            task = read_task(asked.task)
            left = stored(asked.left, task) if asked.left else searches.run(task, asked)
            right = stored(asked.right, task) if asked.right else answered(asked, task)
            return page.replay_page(asked.task.model_dump(), left.model_dump(), right.model_dump())

        name = {"content-disposition": 'attachment; filename="searchformer-replay.html"'}
        return HTMLResponse(await compute(make), headers=name)

    def answered(asked: records.ReplayRequest, task: Task) -> records.Search:
        fitting = models.prepare(task, asked.model)[1].task
        return searches.judged(fitting, asked.tokens, finished=asked.finished, who=asked.model or "Transformer")

    def stored(place: records.StoredPlace, task: Task) -> records.Search:
        found = runs.run(place.run)
        return locked(lambda: found.answer(place.evaluation, place.task_id, place.sample, searches, of=task))

    # --- runs

    @app.get("/api/runs")
    async def list_runs() -> list[records.RunView]:
        """The runs that the server was started with."""
        return runs.views()

    @app.get("/api/runs/{run}")
    async def show_run(run: RunName) -> records.RunDetail:
        """A run's models and test tasks."""
        return await compute(lambda: locked(lambda: runs.run(run).detail()))

    @app.get("/api/runs/{run}/tasks/{task_id}")
    async def show_task(run: RunName, task_id: RunName) -> records.TaskDetail:
        """A test task, A*'s search of it, and every model's stored answers."""
        return await compute(lambda: locked(lambda: runs.run(run).task(task_id, searches, models.name_of)))

    @app.get("/api/runs/{run}/tasks/{task_id}/answer")
    async def show_answer(
        run: RunName,
        task_id: RunName,
        evaluation: Annotated[str, Query(max_length=400)],
        sample: Annotated[int, Query(ge=0, lt=100_000)] = 0,
    ) -> records.Search:
        """One stored answer as a search."""
        return await compute(lambda: locked(lambda: runs.run(run).answer(evaluation, task_id, sample, searches)))

    @app.get("/runs/{run}/report", include_in_schema=False)
    async def report(run: RunName) -> FileResponse:
        found = runs.run(run).report
        if found is None:
            raise HTTPException(404, f"the run {run} has no report: `searchformer report {run}` writes one")
        return FileResponse(found, headers={"content-security-policy": REPORT_POLICY})

    def locked(function: Callable[[], Result]) -> Result:
        with runs.lock:
            return function()

    # --- a model's answers

    @app.websocket("/api/ask")
    async def ask(socket: WebSocket) -> None:
        """One question per connection; closing it stops the work."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # gone while we were speaking
            await socket.accept()
            try:
                question = records.Question.model_validate_json(await socket.receive_text())
                answering = _answer(
                    socket, question, models=models, searches=searches, sampler=sampler, compute=compute
                )
                await _until_gone(socket, answering)
            except KeyError:
                await _say(socket, {"type": "error", "reason": "expected a text; found bytes"})
            except ValidationError as error:
                await _say(socket, {"type": "error", "reason": _validation_line(error.errors())})
            except SearchformerError as error:
                await _say(socket, {"type": "error", "reason": str(error)})
            await socket.close()

    @app.get("/api/load")
    async def load() -> records.Load:
        """How many questions are under way."""
        return records.Load(questions=sampler.under_way, slots=options.slots)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    names = {"localhost", options.host, *options.name}
    return Guard(app, names=frozenset(names), max_bytes=records.MAX_REQUEST)


async def _answer(
    socket: WebSocket,
    question: records.Question,
    *,
    models: Models,
    searches: Searches,
    sampler: Sampler,
    compute: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> None:
    """Stream a model's answers to a question: steps as they are written, then each answer judged."""
    task = await compute(lambda: read_task(question.task))
    entry, asked = await compute(lambda: models.prepare(task, question.model))
    plan = await compute(lambda: searches.run(task, records.SearchRequest(task=question.task, deterministic=True)))
    if plan.verdict == "unsolvable":
        raise SearchformerError("no plan exists: the goal cannot be reached")
    limit = min(LONGEST_ANSWER * len(plan.tokens), sampler.max_tokens)
    await _say(socket, {"type": "begin", "model": entry.name, "notes": list(asked.warnings()), "limit": limit})
    world = World(asked.task.domain, asked.task.problem)
    numbers = range(question.first, question.first + question.samples)
    followers = {number: Follower(world) for number in numbers}
    tokens: dict[int, list[str]] = {number: [] for number in numbers}
    settings: dict[str, Any] = {"samples": question.samples, "first": question.first, "seed": question.seed}
    sampling = Sampling(temperature=question.temperature)
    async with sampler.asked(entry.directory, asked.prompt, sampling=sampling, max_tokens=limit, **settings) as batches:
        async for batch in batches:
            told: dict[int, dict[str, list[Any]]] = {}
            for event in batch:
                if isinstance(event, Failed):
                    raise SearchformerError(event.reason)
                if isinstance(event, Waiting):
                    await _say(socket, {"type": "queue", "place": event.place})
                    continue
                tokens[event.sample] += event.tokens
                steps = followers[event.sample].feed(event.tokens, last=event.finish is not None)
                of_sample = told.setdefault(event.sample, {"tokens": [], "steps": []})
                of_sample["tokens"] += event.tokens
                of_sample["steps"] += [step.model_dump(exclude_defaults=True) for step in steps]
            if told:
                await _say(socket, {"type": "tokens", "answers": told})
            for event in batch:
                if isinstance(event, Tokens) and event.finish:
                    judge = partial(
                        searches.judged,
                        asked.task,
                        tokens[event.sample],
                        finished=event.finish == "eos",
                        who=entry.name,
                        sample=event.sample,
                    )
                    search = (await compute(judge)).model_dump()
                    await _say(socket, {"type": "answer", "search": search, "finished": event.finish == "eos"})
    await _say(socket, {"type": "done"})


async def _until_gone(socket: WebSocket, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, but no longer than the viewer stays."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_wait_until_gone(socket))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _wait_until_gone(socket: WebSocket) -> None:
    """Returns when the viewer closes the connection; what it says is not listened to."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass


async def _say(socket: WebSocket, message: dict[str, Any]) -> None:
    await socket.send_text(json.dumps(message, separators=(",", ":")))


# --- levels


@cache
def gallery_levels() -> list[records.LevelView]:
    """The levels in `gallery.xsb`."""
    return parse_levels((Path(__file__).parent / "gallery.xsb").read_text(encoding="utf-8"))


def parse_levels(text: str) -> list[records.LevelView]:
    """The levels in a text; raises FormatError with line and column."""
    is_xml = text.lstrip("\ufeff \t\r\n").startswith("<")
    levels = levels_from_slc(text.encode(), name="text") if is_xml else levels_from_text(text, name="text")
    drawable = [level for level in levels if max(len(level.rows), len(level.rows[0])) <= records.MAX_SIDE]
    if not drawable:
        raise SearchformerError(f"no level in this text fits into {records.MAX_SIDE} x {records.MAX_SIDE} cells")
    return [
        records.LevelView(title=level.title or f"level {number}", level=list(level.rows))
        for number, level in enumerate(drawable[: records.MAX_LEVELS], start=1)
    ]


# --- errors


def _add_errors(app: FastAPI) -> None:
    """Whatever is wrong with a request is said in one line."""

    @app.exception_handler(SearchformerError)
    async def wrong(request: Request, error: SearchformerError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503 if isinstance(error, BusyError) else 422)

    @app.exception_handler(LookupError)
    async def missing(request: Request, error: LookupError) -> JSONResponse:
        return JSONResponse({"detail": str(error.args[0])}, 404)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": _validation_line(error.errors())}, 422)


def _validation_line(errors: Any) -> str:
    """The first mistake: `task.width: input should be less than or equal to 40`."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "maze", "sokoban"))
    return f"{place}: {error_message(first)}" if place else error_message(first)
