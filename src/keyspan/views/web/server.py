"""`keyspan ui`: a page on 127.0.0.1, behind a random token, over a store that is only read."""

from __future__ import annotations

import importlib.util
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, MissingExtra, require
from keyspan.runners.lab import Lab

HOST = "127.0.0.1"


def check_extra() -> None:
    """Refuse where the page's packages are missing, naming the extra that brings them."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"The page needs {' and '.join(missing)}, but they are not installed. Use: pip install 'keyspan[ui]'"
        )


@dataclass(frozen=True)
class Address:
    """Where the page is. token: whoever has it may read"""

    port: int
    token: str

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """Values of the header `Host` that mean this server."""
        return f"{HOST}:{self.port}", f"localhost:{self.port}"


def serve(
    store: str | None = None,
    *,
    port: int = 0,
    audit: Path | None = None,
    told: Callable[[Address], None] = lambda address: None,
    ready: threading.Event | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Show the page until it is interrupted, or until `stop` is set.

    store: URL    port: 0 for any that is free    audit: a folder of a checkpoint, or the JSON of an audit
    told: is given the address before the first request is answered
    """
    check_extra()
    import uvicorn

    from keyspan.views.web.app import make_app
    from keyspan.views.web.guard import Guard
    from keyspan.views.web.state import State, read_audit

    require(0 <= port < 2**16, "`0 <= --port < 65536`", port, "Leave it out for one that is free.")
    lab = Lab(store=store)
    found = None if audit is None else read_audit(audit)
    with closing(State(lab.url, lab.folder, found)) as state, _listening(port) as listener:
        address = Address(listener.getsockname()[1], secrets.token_urlsafe(24))
        threading.Thread(target=state.look, daemon=True).start()  # so that the first page finds the store read
        guarded: Any = Guard(make_app(state), address.token, address.hosts)
        config = uvicorn.Config(guarded, log_level="error", access_log=False, server_header=False, lifespan="off")
        server = uvicorn.Server(config)
        told(address)
        if stop is not None:
            threading.Thread(target=_end, args=(server, stop), daemon=True).start()
        if ready is not None:
            ready.set()
        server.run(sockets=[listener])


def _end(server: Any, stop: threading.Event) -> None:
    stop.wait()
    server.should_exit = True


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # who has the address may knock at once, and is answered as soon as the server is up
    except OSError as error:
        listener.close()
        raise BadInput(f"`--port` must be free, but got {port} ({error.strerror}). Leave it out for one that is.") from None
    return listener
