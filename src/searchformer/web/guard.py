"""What stands before the app: requests under other names, from other sites or too large are refused; headers are added.

A page of another site can make a browser talk to a server on its own machine. A name that it has pointed here shows in
the Host header (only `localhost`, names that were given and plain addresses are let in), a foreign page in the Origin.
"""

import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""For reports: a page without scripts that holds its styles and pictures itself."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: Any, *, names: frozenset[str], max_bytes: int) -> None:
        self.app, self.names, self.max_bytes = app, names, max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal:
            await _refuse(scope, send, 403, refusal)
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            body = await self._body(receive, headers)
            if body is None:
                await _refuse(scope, send, 413, f"a request has at most {self.max_bytes} bytes; this one has more")
            else:
                await self.app(scope, _replayed(body, receive), _with_headers(send))

    def _refusal(self, scope: MutableMapping[str, Any], headers: dict[str, str]) -> str | None:
        """Why the request is refused, or None."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return f"the host {host[:100]!r} is not this server's name; add it with --name"
        origin = headers.get("origin")
        must_say = scope["type"] == "websocket"
        if (origin is None and must_say) or (origin is not None and urlsplit(origin).netloc != host):
            return f"requests from other sites are refused; this one comes from {str(origin)[:100]!r}"
        return None

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def _body(self, receive: Receive, headers: dict[str, str]) -> bytes | None:
        """The whole body; None if it is too large."""
        stated = headers.get("content-length", "0")
        if stated.isdecimal() and int(stated[:20]) > self.max_bytes:
            return None
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.max_bytes:
                return None
        return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", [])}
            extra = {**HEADERS, "content-security-policy": POLICY}
            added = [(name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in given]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return sending


async def _refuse(scope: MutableMapping[str, Any], send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
        return
    sending = _with_headers(send)
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await sending({"type": "http.response.start", "status": status, "headers": headers})
    await sending({"type": "http.response.body", "body": json.dumps({"detail": reason}).encode()})
