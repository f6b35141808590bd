"""The page in a real browser: draw, drag, run, scrub, inspect, sample, play, paste, disconnect, open runs and links.

Needs Debian's chromium (`apt-get install chromium`) or another one named by CHROMIUM; skipped where there is none.
"""

import json
import os
import re
import shutil
import time

import pytest
from playwright import sync_api
from playwright.sync_api import expect
from web_server import LEVEL, serving, write_run

from searchformer.pretrained import find_model
from searchformer.web.example import read_example
from searchformer.web.models import ModelEntry

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: apt-get install chromium")
SIDES = {"width", "height"}
SLOW = 240_000  # ms: the first answer compiles kernels, on a machine that may be busy
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("runs") / "small")
    with serving("--run", run) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser, address):
    """The page as it opens; whatever goes wrong in it fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True, base_url=address)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto("/")
    expect(where(page)).not_to_have_text("0 / 0")
    yield page
    context.close()
    allowed = "Failed to load resource"  # replies that the page shows to the user
    assert [problem for problem in problems if allowed not in problem] == []


def where(page):
    return page.locator("[data-player=where]")


def counter(page, side, name):
    """A number below a board."""
    number = {"tokens": 0, "closed": 1, "created": 2, "over": 3}[name]
    return page.locator(f".card.{side} .counters dd").nth(number)


def shown_task(page):
    """The task in the address."""
    until(page, "location.hash.includes('task=')")
    page.wait_for_timeout(250)
    return page.evaluate(
        "import('/static/grid.js').then(g => g.decodeTask(new URLSearchParams(location.hash.slice(1)).get('task')))"
    )


def example_cells():
    """Free cells of the opening task, away from its start and goal; those next to each other follow each other."""
    task = read_example().task
    taken = [*task.walls, task.start, task.goal]
    rows = [[x, y] for y in range(task.height) for x in range(task.width)]
    free = [cell for cell in rows if cell not in taken]
    return next([[x, y], [x + 1, y]] for x, y in free if [x + 1, y] in free)


def point_of(page, cell, *, selector="canvas[data-side=left]", size=None):
    """The middle of a cell on the screen."""
    size = size or (read_example().task.width, read_example().task.height)
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return box["x"] + (cell[0] + 0.5) * box["width"] / size[0], box["y"] + (cell[1] + 0.5) * box["height"] / size[1]


def drag(page, *cells):
    page.mouse.move(*point_of(page, cells[0]))
    page.mouse.down()
    for cell in cells[1:]:
        page.mouse.move(*point_of(page, cell), steps=4)
    page.mouse.up()


def until(page, expression):
    """Wait until a JavaScript expression is true. (The page's policy forbids what Playwright's own waiting does.)"""
    deadline = time.monotonic() + SLOW / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)


def wait_for_answer(page):
    """Wait for the model's judged answer, and go to its end."""
    page.locator("h1").click()
    card = "document.querySelector('.card.right')"
    until(page, f"!{card}.matches('.waiting') && !{card}.querySelector('.note').textContent")
    until(page, f"document.querySelector('[data-player=last]').click() || {card}.dataset.verdict !== ''")


def pixels(page, selector="canvas[data-side=left]"):
    return page.locator(selector).evaluate("canvas => canvas.toDataURL()")


# --- watch


def test_the_page_opens_with_a_task_and_both_searches_ready(page):
    example = read_example()
    total = max(len(example.left.steps), len(example.right.steps))
    expect(where(page)).to_have_text(f"0 / {total}")
    page.locator("[data-player=speed]").select_option("200")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#result")).to_contain_text("less search")
    expect(counter(page, "left", "tokens")).to_have_text(str(example.left.trace_tokens))
    expect(counter(page, "right", "closed")).to_have_text(str(example.right.closed))
    expect(page.locator(".card.right .verdict")).to_contain_text("shortest plan")


def test_bars_say_who_will_need_less_before_anything_moves(page):
    widths = [
        page.locator(f".card.{side} .race .whole").evaluate("bar => bar.getBoundingClientRect().width")
        for side in ("left", "right")
    ]
    example = read_example()
    assert widths[1] / widths[0] == pytest.approx(example.right.trace_tokens / example.left.trace_tokens, abs=0.01)
    expect(page.locator("#result")).to_contain_text(f"{example.left.trace_tokens} tokens of search")


def test_the_first_paint_waits_for_no_model_and_nothing_from_outside(browser, address):
    context = browser.new_context(base_url=address)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.goto("/")
    expect(where(page)).not_to_have_text("0 / 0")
    assert all(url.startswith(address) for url in asked)
    assert not any("/api/ask" in url or "/api/search" in url for url in asked)
    context.close()


def test_scrubbing_and_stepping_move_both_searches(page):
    before = pixels(page)
    page.locator("[data-player=scrub]").fill("10")
    expect(where(page)).to_have_text(re.compile("^10 /"))
    after_ten = int(counter(page, "left", "tokens").inner_text())
    assert after_ten == read_example().left.steps[10].at
    assert pixels(page) != before
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(where(page)).to_have_text(re.compile("^11 /"))
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(where(page)).to_have_text(re.compile("^9 /"))
    page.keyboard.press("Home")
    expect(counter(page, "right", "created")).to_have_text("0")


def test_play_pauses_and_goes_on(page):
    page.locator("h1").click()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    until(page, "Number(document.querySelector('[data-player=scrub]').value) > 3")
    page.keyboard.press("Space")
    stopped = where(page).inner_text()
    page.wait_for_timeout(300)
    assert where(page).inner_text() == stopped


def test_a_token_shows_its_node_and_a_node_its_tokens(page):
    page.keyboard.press("End")
    before = pixels(page)
    page.locator(".stream.left p").nth(4).hover()
    assert pixels(page) != before
    example = read_example()
    cell = example.left.steps[0].cells[0]
    page.mouse.move(*point_of(page, cell))
    expect(page.locator(".stream.left p.same").first).to_be_visible()
    named = page.locator(".stream.left p.same").all_inner_texts()
    assert all(text.split()[1:3] == [str(number) for number in cell] for text in named)
    page.locator(".stream.left p").nth(6).click()
    expect(where(page)).to_have_text(re.compile("^7 /"))


def test_a_wrong_step_is_marked_with_its_reason(page):
    page.route("**/api/example", lambda route: route.fulfill(body=json.dumps(wrong_example())))
    page.goto("/?again")
    expect(where(page)).not_to_have_text("0 / 0")
    page.keyboard.press("End")
    expect(page.locator(".stream.right p.unsound em").first).to_have_text("unsound: wrong cost")


def wrong_example():
    from searchformer.web.searches import Searches, read_task

    example = read_example()
    tokens = list(example.right.tokens)
    tokens[8] = "c30"
    wrong = Searches().judged(read_task(example.task), tokens, finished=True, who="wrong")
    return example.model_copy(update={"right": wrong}).model_dump()


# --- edit


def test_a_search_that_is_being_written_counts_and_shows_whole_steps_of_search(page):
    written = ["create", "0", "0", "c0", "c1", "close", "0", "0", "c0", "c1", "plan", "0", "0", "plan"]
    steps = [{"kind": kind, "at": at, "cells": [[0, 0]]} for kind, at in (("create", 0), ("close", 5), ("plan", 10))]
    found = page.evaluate(
        "async (live) => { const board = await import('/static/board.js'); const { searchState, stepEnd } = board; "
        "return [searchState(live, 1).tokens, searchState(live, 3).tokens, stepEnd(live, 2)]; }",
        {"tokens": written, "steps": steps},
    )
    assert found == [5, 10, 13]


def test_walls_are_drawn_and_erased_by_dragging(page):
    free = example_cells()
    drag(page, *free)
    assert all(cell in shown_task(page)["walls"] for cell in free)
    wait_for_answer(page)
    drag(page, *free)
    assert not any(cell in shown_task(page)["walls"] for cell in free)


def test_dragging_the_goal_recomputes_astar_at_once(page):
    page.keyboard.press("End")
    task, free = read_example().task, example_cells()[0]
    page.mouse.move(*point_of(page, task.goal))
    page.mouse.down()
    with page.expect_response("**/api/search") as reply:
        page.mouse.move(*point_of(page, free), steps=3)
    assert reply.value.status == 200
    expect(page.locator(".card.left")).to_have_attribute("data-verdict", "optimal")  # while the button is still down
    page.mouse.up()
    wait_for_answer(page)
    assert shown_task(page)["goal"] == free


def test_space_plays_after_drawing_with_the_pointer_and_after_scrubbing(page):
    drag(page, *example_cells())
    drawn = shown_task(page)["walls"]
    toggle = page.locator("[data-player=toggle]")
    page.keyboard.press("Space")
    expect(toggle).to_have_attribute("data-playing", "true")
    page.locator("[data-player=scrub]").fill("2")
    expect(toggle).to_have_attribute("data-playing", "false")
    page.keyboard.press("Space")
    expect(toggle).to_have_attribute("data-playing", "true")
    assert shown_task(page)["walls"] == drawn


def test_the_board_is_edited_with_the_keyboard(page):
    page.locator("canvas[data-side=left]").focus()
    (x, y), beside = example_cells()
    for key in ("ArrowRight",) * x + ("ArrowDown",) * y + ("Space",):
        page.keyboard.press(key)
    assert [x, y] in shown_task(page)["walls"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("g")
    assert shown_task(page)["goal"] == beside


@pytest.mark.parametrize(("kind", "size"), [("perfect", "10"), ("empty", "8"), ("random", "20")])
def test_generators_make_new_mazes_in_any_size(page, kind, size):
    page.locator("[name=kind]").select_option(kind)
    page.locator("[name=size]").select_option(size)
    until(page, "document.querySelector('canvas[data-side=left]').getAttribute('aria-label').includes('A*')")
    page.wait_for_timeout(400)
    assert shown_task(page)["width"] == int(size)
    page.keyboard.press("End")
    expect(page.locator(".card.left")).to_have_attribute("data-verdict", "optimal")


def test_algorithms_and_ties_can_be_chosen(page):
    page.locator("[name=algorithm]").select_option("dijkstra")
    expect(page.locator(".card.left .who")).to_have_text("Dijkstra")
    expect(page.locator("h1")).to_have_text("Dijkstra and a Transformer search the same maze")
    page.locator("[name=ties]").check()
    until(page, "location.hash.includes('ties=true') && location.hash.includes('algorithm=dijkstra')")


# --- the model


def test_another_answer_streams_in(page):
    page.get_by_role("button", name="Ask for another answer").click()
    wait_for_answer(page)
    assert int(counter(page, "right", "tokens").inner_text()) > 0


def test_sixteen_answers_are_shown_against_astar_and_one_is_watched(page):
    page.locator("#tab-samples").click()
    page.locator("[data-do=sample]").click()
    expect(page.locator("#panel-samples .chip")).to_have_count(16, timeout=SLOW)
    expect(page.locator("#panel-samples .summary")).to_contain_text("16 of 16 answers")
    expect(page.locator("#panel-samples .limit")).to_be_visible()
    chip = page.locator("#panel-samples .chip").first
    tokens = chip.inner_text()
    chip.click()
    page.locator("h1").click()
    page.keyboard.press("End")
    expect(counter(page, "right", "tokens")).to_have_text(tokens)


def test_a_look_inside_shows_probabilities_and_attention(page):
    page.locator("#tab-inside").click()
    expect(page.locator("#panel-inside .next .bar")).to_have_count(5, timeout=SLOW)
    shape = ModelEntry.read("", find_model("maze", read_example().task.model_dump(include=SIDES)).directory).shape
    expect(page.locator("#panel-inside .heads button")).to_have_count(1 + shape["layers"] * shape["heads"])
    before = pixels(page, "canvas[data-side=right]")
    page.locator("#panel-inside .heads button").nth(7).click()
    expect(page.locator("#panel-inside .heads button").nth(7)).to_have_attribute("aria-pressed", "true")
    assert pixels(page, "canvas[data-side=right]") != before
    note = page.locator("#panel-inside .note")
    told = note.inner_text()
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(note).not_to_have_text(told)
    page.locator("#panel-inside .step-tokens button").nth(3).click()
    expect(page.locator("#panel-inside .step-tokens button").nth(3)).to_have_attribute("aria-pressed", "true")


def test_a_lost_connection_is_said_and_the_page_goes_on(page):
    page.route_web_socket("**/api/ask", lambda socket: socket.close())
    page.get_by_role("button", name="Ask for another answer").click()
    expect(page.locator(".card.right .note")).to_contain_text("connection to the server was lost")
    page.get_by_role("button", name="Run again with other ties").click()
    page.keyboard.press("End")
    expect(page.locator(".card.left")).to_have_attribute("data-verdict", "optimal")


def test_leaving_in_the_middle_stops_the_work(page, address):
    page.locator("#tab-samples").click()
    page.locator("[name=samples]").fill("64")
    page.locator("[data-do=sample]").click()
    until(page, "fetch('/api/load').then(r => r.json()).then(load => load.questions > 0)")
    page.goto("/static/icon.svg")
    until(page, "fetch('/api/load').then(r => r.json()).then(load => load.questions === 0)")


# --- Sokoban


def open_level(page, rows):
    page.locator("[data-domain=sokoban]").click()
    page.locator("[data-do=paste]").click()
    page.locator("#paste [name=text]").fill("\n".join(rows))
    page.locator("[data-do=read-levels]").click()


def test_a_level_is_pasted_and_played_to_its_end(page):
    open_level(page, LEVEL)
    expect(page.locator("#toast")).to_contain_text("One level")
    page.locator("#tab-play").click()
    expect(page.locator("#panel-play [data-out=best]")).to_have_text("3")
    for key in ("ArrowLeft", "ArrowDown", "u"):  # a wall; a move; undone
        page.keyboard.press(key)
    expect(page.locator("#panel-play [data-out=moves]")).to_have_text("0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("h")
    expect(page.locator("#panel-play [data-out=moves]")).to_have_text("2")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-play .status")).to_have_text("Solved in 3 moves (1 of them hints), the optimum.")


def test_a_click_walks_there(page):
    open_level(page, LEVEL)
    page.locator("#tab-play").click()
    page.mouse.click(*point_of(page, [4, 2], selector="#panel-play canvas", size=(7, 4)))
    expect(page.locator("#panel-play [data-out=moves]")).to_have_text("4")
    page.get_by_role("button", name="Restart").click()
    expect(page.locator("#panel-play [data-out=moves]")).to_have_text("0")


def test_a_bad_level_is_refused_with_a_reason(page):
    open_level(page, ["#####", "#@$ #", "#####"])
    expect(page.locator("#paste .note")).to_contain_text("boxes and docks differ in number: 1 and 0")
    page.locator("[data-do=close-paste]").click()


def test_a_level_file_is_uploaded(page):
    page.locator("[data-domain=sokoban]").click()
    page.locator("[data-do=paste]").click()
    text = "\n".join(LEVEL) + "\n\n" + "\n".join(LEVEL)
    page.locator("#paste [name=file]").set_input_files(
        {"name": "two.xsb", "mimeType": "text/plain", "buffer": text.encode()}
    )
    until(page, "document.querySelector('#paste [name=text]').value.length > 0")
    page.locator("[data-do=read-levels]").click()
    expect(page.locator("[name=gallery] option")).to_have_count(2)


def test_levels_are_edited_and_searched(page):
    open_level(page, LEVEL)
    page.locator("[data-tool=wall]").click()
    page.mouse.click(*point_of(page, [2, 2], size=(7, 4)))
    assert shown_task(page)["level"][2] == "# #   #"
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("End")
    expect(page.locator(".card.left")).to_have_attribute("data-verdict", "optimal")


def test_the_gallery_opens_levels(page):
    page.locator("[data-domain=sokoban]").click()
    page.locator("[name=gallery]").select_option(index=2)
    expect(page.locator("h1")).to_contain_text("Sokoban level")
    wait_for_answer(page)


# --- links, replays, runs


def test_a_link_brings_back_what_was_shown(page, browser, address):
    page.locator("[name=algorithm]").select_option("greedy")
    page.locator("[data-player=scrub]").fill("5")
    page.locator("#tab-inside").click()
    page.wait_for_timeout(300)
    other = browser.new_context(base_url=address).new_page()
    other.goto(page.url)
    expect(where(other)).to_have_text(re.compile("^5 /"), timeout=SLOW)
    expect(other.locator(".card.left .who")).to_have_text("greedy search")
    expect(other.locator("#tab-inside")).to_have_attribute("aria-selected", "true")
    assert shown_task(other) == shown_task(page)
    other.context.close()


@pytest.mark.parametrize("rows", [LEVEL, ["########", "#  +$  #", "# *$.  #", "########"]])
def test_every_task_survives_its_link(page, rows):
    task = page.evaluate("rows => import('/static/grid.js').then(g => g.decodeTask(g.encodeTask({level: rows})))", rows)
    assert task == {"level": rows}


def test_a_broken_link_is_said_and_the_page_opens(page):
    page.goto("/?again#task=m6.6.broken")
    expect(page.locator("#toast")).to_contain_text("this link holds no task")
    expect(where(page)).not_to_have_text("0 / 0")


def test_a_downloaded_replay_plays_from_disk(page, browser, tmp_path):
    with page.expect_download() as download:
        page.locator("[data-do=download]").click()
    path = tmp_path / "replay.html"
    download.value.save_as(path)
    assert path.stat().st_size < 1_000_000
    context = browser.new_context(offline=True)
    replay, problems, asked = context.new_page(), [], []
    replay.on("pageerror", lambda error: problems.append(str(error)))
    replay.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    replay.on("request", lambda request: asked.append(request.url))
    replay.goto(path.as_uri())
    replay.locator("[data-player=last]").click()
    expect(replay.locator(".card.right .verdict")).to_contain_text("shortest plan")
    assert (problems, asked) == ([], [path.as_uri()])
    context.close()


def test_a_run_is_opened_and_its_models_are_compared_on_one_task(page):
    open_run(page)
    expect(page.locator(".card.right .who")).to_have_text("1M Searchformer, round 1")
    page.get_by_role("button", name="Watch 1M search-augmented on the left").click()
    expect(page.locator(".card.left .who")).to_have_text("1M search-augmented")
    page.locator("[data-player=last]").click()
    expect(page.locator(".entry[data-verdict=optimal]")).to_have_count(4)  # A*, base, round, control
    expect(page.locator(".card.left")).to_have_attribute("data-verdict", "optimal")
    expect(page.locator("#result")).to_contain_text("1M Searchformer, round 1 with")
    page.locator("[name=stored-task]").select_option(index=2)
    expect(page.locator(".entry .chip[aria-pressed=true]")).to_have_count(3)
    with page.context.expect_page() as opened:
        page.locator(".report").click()
    expect(opened.value.locator("h1")).to_have_text("The report")


def open_run(page):
    page.locator("#tab-runs").click()
    expect(page.locator(".entry .chip[aria-pressed=true]")).to_have_count(3, timeout=SLOW)
    expect(page.locator(".card.right .who")).not_to_have_text("Transformer")


def test_a_task_that_is_chosen_while_a_run_is_being_opened_stays(page):
    held = []
    page.route("**/api/runs/small/tasks/*", lambda route: held.append(route))
    page.locator("#tab-runs").click()
    expect(page.locator("#panel-runs .note")).to_have_text("opening…")
    while not held:
        page.wait_for_timeout(50)
    page.locator("[data-domain=sokoban]").click()
    expect(page.locator("h1")).to_contain_text("Sokoban level")
    held[0].continue_()
    expect(page.locator("#panel-runs .note")).to_have_text("")
    expect(page.locator("h1")).to_contain_text("Sokoban level")
    assert page.locator(".entry").count() == 0


def test_everyone_in_a_run_follows_the_timeline(page):
    open_run(page)
    page.locator("[data-player=scrub]").fill("4")
    told = page.locator(".entry .tokens").all_inner_texts()
    assert told == ["20 tokens"] * 4  # four steps of five tokens
    page.locator("[data-player=last]").click()
    chosen = page.locator(".entry .chip[aria-pressed=true]").all_inner_texts()
    assert page.locator(".entry .tokens").all_inner_texts()[1:] == [f"{tokens} tokens" for tokens in chosen]


def test_a_link_to_stored_answers_replays_them_and_asks_no_model(page, browser, address):
    open_run(page)
    page.get_by_role("button", name="Watch 1M control, round 1 on the left").click()
    page.get_by_role("button", name=re.compile("^Watch answer 1 of 1M search-augmented")).click()
    expect(page.locator(".card.right .who")).to_have_text("1M search-augmented")
    page.locator("[data-player=last]").click()
    page.wait_for_timeout(400)
    other, asked = browser.new_context(base_url=address).new_page(), []
    other.on("websocket", lambda socket: asked.append(socket.url))
    other.goto(page.url)
    expect(other.locator(".card.right .who")).to_have_text("1M search-augmented", timeout=SLOW)
    expect(other.locator(".card.left .who")).to_have_text("1M control, round 1")
    expect(where(other)).to_have_text(where(page).inner_text())
    for side in ("left", "right"):
        expect(counter(other, side, "tokens")).to_have_text(counter(page, side, "tokens").inner_text())
    assert asked == []
    other.locator("#tab-inside").click()  # the base is a model that can be asked
    expect(other.locator("#panel-inside .next .bar")).to_have_count(5, timeout=SLOW)
    other.context.close()


def test_a_link_into_a_run_that_is_not_open_says_so(page):
    open_run(page)
    page.wait_for_timeout(400)
    page.goto(page.url.replace("run=small", "run=elsewhere").replace("/#", "/?again#"))
    expect(page.locator(".card.right .note")).to_contain_text("there is no run 'elsewhere'")
    expect(page.locator(".card.left .who")).to_have_text("A*")


def test_a_drawn_wall_leaves_the_run(page):
    open_run(page)
    page.locator("canvas[data-side=left]").focus()
    page.keyboard.press("Space")
    expect(page.locator(".entry")).to_have_count(0)
    shown_task(page)
    assert "run=" not in page.url


def test_a_game_and_a_sample_of_answers_have_links_too(page):
    open_level(page, LEVEL)
    page.locator("#tab-play").click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.includes('moves=dr')")
    page.goto(page.url.replace("/#", "/?again#") + "&samples=2")
    expect(page.locator("#panel-play [data-out=moves]")).to_have_text("2")
    expect(page.locator("#panel-samples .chip")).to_have_count(2, timeout=SLOW)


# --- looks


@pytest.mark.parametrize("width", [360, 768, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_in_any_width_or_theme(browser, address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, base_url=address)
    page = context.new_page()
    page.goto("/")
    until(page, "document.querySelector('[data-player=scrub]').max > 0")
    page.keyboard.press("End")  # the longest texts and numbers
    for tab in range(1, 6):
        page.keyboard.press(str(tab))
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), tab
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    context.close()


def test_the_page_is_used_with_the_keyboard_alone(page):
    page.keyboard.press("2")
    expect(page.locator("#tab-samples")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#panel-tokens")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".stream.left")).to_be_focused()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(where(page)).to_have_text(re.compile("^2 /"))
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_everything_that_has_the_focus_shows_it(page):
    page.locator("#tab-runs").click()
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        name, style = page.evaluate(
            """() => { const at = document.activeElement;
                 return [at.tagName + (at.name ?? at.dataset.do ?? ''), getComputedStyle(at).outlineStyle]; }"""
        )
        assert style != "none" or name.startswith("BODY"), name
        seen.add(name)
    assert len(seen) > 10


def test_nothing_moves_by_itself_where_motion_is_not_wanted(browser, address):
    context = browser.new_context(reduced_motion="reduce", base_url=address)
    page = context.new_page()
    page.goto("/")
    page.locator("#tab-samples").click()
    page.locator("[name=samples]").fill("1")
    page.locator("[data-do=sample]").click()
    page.locator("#panel-samples .chip").click(timeout=SLOW)
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(page.locator(".card.right")).not_to_have_attribute("data-verdict", "")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).transitionDuration)).length"
    )
    assert moving == 0
    context.close()


def test_everything_that_can_be_pressed_has_a_name(page):
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, canvas, textarea')]
             .filter(each => !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length))
             .map(each => each.outerHTML)"""
    )
    assert nameless == []
