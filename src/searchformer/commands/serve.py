"""`searchformer serve`: the browser app."""

import contextlib
import importlib.util
import ipaddress
import socket
import sys
from typing import Annotated

from searchformer.commands.options import Flat
from searchformer.errors import SearchformerError
from searchformer.extras import install_command
from searchformer.web.options import ServeOptions
from searchformer.web.records import MAX_REQUEST


def run(*, options: Annotated[ServeOptions, Flat] = ServeOptions()) -> None:
    """Serve the browser app: A* and a Transformer search the same task side by side. Ctrl-C ends it.

    Nothing is sent to the outside, and what visitors upload is never written to disk.
    """
    missing = [name for name in ("fastapi", "uvicorn", "websockets") if not importlib.util.find_spec(name)]
    if missing:
        raise SearchformerError(f"the browser app needs {', '.join(missing)}: {install_command('web')}")
    import uvicorn

    from searchformer.web.app import make_app

    app = make_app(options)
    listening = _listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    if not _is_loopback(host):
        print(
            f"searchformer: warning: listening on {host}, so that everyone who can reach this computer can use the app",
            file=sys.stderr,
        )
    shown = f"[{host}]" if ":" in host else host
    print(f"searchformer: open http://{shown}:{port} (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(app, log_level="warning", ws_max_size=MAX_REQUEST, server_header=False, access_log=False)
    with contextlib.suppress(KeyboardInterrupt):  # how one ends it
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises SearchformerError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise SearchformerError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; --port chooses another"
        ) from error
    return listening


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback
