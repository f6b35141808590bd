"""Takes the pictures of the browser app in `docs/images/`, from the page itself as it opens.

    python tests/take_pictures.py     # needs the extras `web` and `dev`, and chromium

watch.gif: both searches, a frame every few steps. watch.png, watch-dark.png: their end. many-answers.png: sixteen
answers. Run it again when the page or a packaged model has changed; the GIF stays under `MOST_BYTES`.
"""

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from web_server import serving

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FRAME_MS, END_MS = 110, 3000
MOST_FRAMES, MOST_BYTES = 60, 600_000
ONLY_THE_RACE = """
  .top, .aside, .toolbar, .controls, .transport, .legend, .more, footer { display: none !important; }
  main { padding-top: .8rem; padding-bottom: 1rem; }
"""


def open_page(browser: Browser, address: str, *, width: int, height: int, theme: str = "light") -> Page:
    """The page as it opens, with both searches there."""
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=theme, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("document.querySelector('[data-player=scrub]').max > 0")
    return page


def record_race(page: Page, path: Path) -> None:
    """Both searches, a frame every few steps."""
    page.add_style_tag(content=ONLY_THE_RACE)
    box = page.locator("main").bounding_box()
    last, frames = int(page.locator("[data-player=scrub]").get_attribute("max") or 0), []
    for step in [*range(0, last, -(-last // MOST_FRAMES)), last]:
        page.locator("[data-player=scrub]").evaluate(
            "(scrub, step) => { scrub.value = step; scrub.dispatchEvent(new Event('input')); }", step
        )
        frames.append(Image.open(io.BytesIO(page.screenshot(clip=box))))  # type: ignore[arg-type]
    both = Image.new("RGB", (frames[0].width, 2 * frames[0].height))  # colours of the middle and of the end
    both.paste(frames[len(frames) // 3], (0, 0))
    both.paste(frames[-1], (0, frames[0].height))
    palette = palette_of(both)
    first, *others = [frame.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [4 * FRAME_MS, *[FRAME_MS] * (len(others) - 1), END_MS]
    first.save(path, save_all=True, append_images=others, duration=times, loop=0, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are allowed")


def palette_of(image: Image.Image) -> Image.Image:
    """Half of it are the commonest colours as they are, for large areas; in the other half, rare ones count, too."""
    counted = image.getcolors(image.width * image.height) or []
    common = [channel for _, colour in sorted(counted, reverse=True)[:128] for channel in colour]
    palette = Image.new("P", (1, 1))
    palette.putpalette(common + (image.quantize(128, Image.Quantize.MAXCOVERAGE).getpalette() or [])[: 3 * 128])
    return palette


def main() -> None:
    """All pictures."""
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        record_race(open_page(browser, address, width=860, height=700), IMAGES / "watch.gif")
        for theme, name in (("light", "watch.png"), ("dark", "watch-dark.png")):
            page = open_page(browser, address, width=1600, height=900, theme=theme)
            page.locator("[data-player=last]").click()
            page.screenshot(path=IMAGES / name)
        page = open_page(browser, address, width=1200, height=900)
        page.locator("#tab-samples").click()
        page.locator("[data-do=sample]").click()
        page.locator("#panel-samples .summary", has_text="16 of 16 answers").wait_for(timeout=600_000)
        page.add_style_tag(content="#panel-samples { padding: 1rem; }")
        page.locator("#panel-samples").screenshot(path=IMAGES / "many-answers.png")
        browser.close()


if __name__ == "__main__":
    main()
