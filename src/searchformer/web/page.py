"""A replay as one HTML file that plays without a server: the page's own modules and styles, and two searches, inside.

In: a task, two searches. Out: the text of the file. Its content security policy allows its own script and nothing else.
"""

import base64
import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
MODULES = ("grid.js", "board.js", "player.js", "stream.js", "duel.js", "replay.js")
"""The modules that a replay needs, each after those that it imports."""


@cache
def bundle() -> str:
    """The modules as one script: what they import from each other is already there."""
    texts = [(STATIC / name).read_text(encoding="utf-8") for name in MODULES]
    return "\n".join(_without_imports(text) for text in texts)


def _without_imports(text: str) -> str:
    text = re.sub(r'^import\s[^;]*?from\s+"\./[\w.]+";\n', "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^export\s+", "", text, flags=re.MULTILINE)


def replay_page(task: dict[str, Any], left: dict[str, Any], right: dict[str, Any]) -> str:
    """The file."""
    style, script = (STATIC / "style.css").read_text(encoding="utf-8"), bundle()
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    data = json.dumps({"task": task, "left": left, "right": right}, separators=(",", ":"))
    data = data.replace("<", "\\u003c")  # nothing in it can end its element
    title = html.escape(f"{left['who']} and {right['who']} search the same task")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body class="replay">
<main id="replay"></main>
<script type="application/json" id="replay-data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""
