"""`keyspan ui`: the local page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def ui(
    port: int = typer.Option(0, help="Port on 127.0.0.1 (default: any that is free)."),
    audit: Path | None = typer.Option(None, help="A checkpoint's folder, or the JSON of `keyspan audit --json --spectra`."),
    open_browser: bool = typer.Option(False, "--open", help="Open the page in a browser."),
) -> int:
    """Design by sliders, runs as they finish, an audit's heads, the ledger: a page on this machine alone. Only reads."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.views.web.server import Address, serve

    def told(address: Address) -> None:
        if current.json:
            show.print_json(head() | {"url": address.url, "port": address.port})
        else:
            show.console().print(address.url, soft_wrap=True)
        show.flush()
        show.note("Whoever has this address may read the store, from this machine. Ctrl-C ends it.")
        if open_browser:
            _open(address.url)

    serve(current.store, port=port, audit=audit, told=told)
    return 0


def _open(url: str) -> Any:
    import webbrowser

    return webbrowser.open(url)
