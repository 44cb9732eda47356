"""Who may ask: this machine's own browser with the address that was printed, by reading alone.

A page of another site can make a browser send requests to 127.0.0.1, and can point a name of its own there. So the `Host`
must be ours, the address must begin with the token, and nothing but reading is answered. No part of an address is ever a path
of the disk: static files lie in memory, by name.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

READING = ("GET", "HEAD")
HEADERS = (
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)  # fmt: skip


class Guard:
    """Stands before the application. hosts: values of `Host` that are ours    token: the first part of every address"""

    def __init__(self, app: App, token: str, hosts: Iterable[str]) -> None:
        self.app, self.token, self.hosts = app, token.encode(), {host.encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope)
        if refused is not None:
            await _answer(send, *refused)
            return
        scope = dict(scope) | {"root_path": "/" + self.token.decode()}
        await self.app(scope, receive, _with_headers(send))

    def _refused(self, scope: Scope) -> tuple[int, str, tuple[tuple[bytes, bytes], ...]] | None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 or given[0].lower() not in self.hosts:
            return 421, "This server answers to 127.0.0.1 alone.", ()
        first = scope["path"].encode("utf-8", "surrogatepass").lstrip(b"/").partition(b"/")[0]
        if not hmac.compare_digest(first, self.token):
            return 403, "Use the address that `keyspan ui` printed: it holds the token.", ()
        if scope["method"] not in READING:
            return 405, "This page only reads.", ((b"allow", b"GET, HEAD"),)
        return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = dict(message) | {"headers": [*message["headers"], *HEADERS]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, more: tuple[tuple[bytes, bytes], ...]) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode()), *HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
