"""What `make docs` does besides mkdocs: README.md is the home page, and what does not exist is left out.

The Markdown in the root links to `docs/data.md`; on the site, where docs/ is the root, that is `data.md`.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages in the root, with their names on the site."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Keep the menu's entries whose page exists."""
    config.nav = [entry for entry in map(_existing, config.nav or []) if entry]
    return config


def _existing(entry: dict[str, Any]) -> dict[str, Any] | None:
    ((title, target),) = entry.items()
    if isinstance(target, list):
        kept = [each for each in map(_existing, target) if each]
        return {title: kept} if kept else None
    return entry if target in FROM_ROOT.values() or (ROOT / "docs" / target).is_file() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages in the root."""
    for source, name in FROM_ROOT.items():
        files.append(File.generated(config, name, content=_site_text((ROOT / source).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Two `A*` in a paragraph would put what is between them in italics, unlike on GitHub."""
    code_or_name = re.compile(r"(^```.*?^```|`[^`\n]+`)|\bA\*", re.M | re.S)
    return code_or_name.sub(lambda found: found[1] or r"A\*", markdown)


def _site_text(text: str) -> str:
    """The text with links as they are on the site; pictures that do not exist yet, and links off the site, go."""
    text = re.sub(r"^!\[[^\]]*\]\(([^)]+)\)\n", lambda found: found[0] * (ROOT / found[1]).is_file(), text, flags=re.M)
    text = re.sub(r"\[([^\]]+)\]\((?!https?:|docs/|CONTRIBUTING|CHANGELOG)[^)]+\)", r"\1", text)
    return text.replace("](docs/", "](")
