"""The page's API, as FastAPI describes it, and its static files, which lie in memory."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Response
from pydantic import BaseModel

import keyspan
from keyspan.views.web.answers import design_answer
from keyspan.views.web.index import Cell
from keyspan.views.web.state import State

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
CELL_ID = r"^c[0-9a-f]{24}$"
RUN_ID = r"^r[0-9a-f]{24}$"
MOST = 2**24
Json = dict[str, Any]


class Problem(BaseModel):
    """What went wrong, in words."""

    detail: str


UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=500)]


def static_files() -> dict[str, tuple[bytes, str]]:
    """Name -> (content, type) of everything in `static`."""
    found = {}
    for entry in files("keyspan.views.web").joinpath("static").iterdir():
        kind = TYPES.get("." + entry.name.rpartition(".")[2])
        if entry.is_file() and kind is not None:
            found[entry.name] = entry.read_bytes(), kind
    return found


def make_app(state: State) -> FastAPI:
    """The application over a state. `Guard` stands before it."""
    app = FastAPI(title="keyspan", version=keyspan.__version__, docs_url=None, redoc_url=None)
    static = static_files()

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response(static["index.html"][0], media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in static:
            raise HTTPException(404, "There is no such file.")
        content, kind = static[name]
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/api/state")
    def about() -> Json:
        """How things stand: the store, how much of it is read, what runs at this moment."""
        return state.about()

    @app.get("/api/design")
    def design(
        items: Annotated[int, Query(ge=2, le=MOST)],
        d_model: Annotated[int, Query(ge=1, le=2**16)],
        edges: Annotated[int | None, Query(ge=1, le=2**40)] = None,
        target: Annotated[float, Query(gt=0, le=1)] = 0.99,
        heads: Annotated[int | None, Query(ge=1, le=2**16)] = None,
    ) -> Json:
        """The design for these sizes, with curves of theory and what was measured near them."""
        return design_answer(items, d_model, edges, target, heads, state.index.relations())

    @app.get("/api/cells")
    def cells(text: Annotated[str, Query(max_length=200)] = "", offset: Offset = 0, limit: Limit = 100) -> Json:
        """Cells, the one that changed last first."""
        return state.cells(text, offset, limit)

    def known(cell_id: str) -> Cell:
        cell = state.index.cell(cell_id)
        if cell is None:
            raise HTTPException(404, "There is no such cell.")
        return cell

    @app.get("/api/cells/{cell_id}", responses=UNKNOWN)
    def cell(cell_id: Annotated[str, Path(pattern=CELL_ID)]) -> Json:
        """A cell with its curve."""
        return known(cell_id).whole()

    @app.get("/api/cells/{cell_id}/runs", responses=UNKNOWN)
    def runs(cell_id: Annotated[str, Path(pattern=CELL_ID)], offset: Offset = 0, limit: Limit = 50) -> Json:
        """The runs of a cell, the newest first."""
        return state.runs(known(cell_id), offset, limit)

    @app.get("/api/runs/{run_id}", responses=UNKNOWN)
    def run(run_id: Annotated[str, Path(pattern=RUN_ID)]) -> Json:
        """One record, whole."""
        record = state.store.get(run_id)
        if record is None:
            raise HTTPException(404, "There is no such run.")
        return record.to_json()

    @app.get("/api/ledger")
    def ledger() -> Json:
        """Every claim with what the store says of it; `run_ids` are counts here."""
        return state.ledger()

    @app.get("/api/audit", responses=UNKNOWN)
    def audit() -> Json:
        """The audit that was given, without its spectra."""
        found = state.audit_layers()
        if found is None:
            raise HTTPException(404, "No audit was given: keyspan ui --audit FOLDER.")
        return found

    @app.get("/api/audit/{layer}/{head}", responses=UNKNOWN)
    def spectrum(layer: Annotated[int, Path(ge=0, le=10**6)], head: Annotated[int, Path(ge=0, le=10**6)]) -> Json:
        """The spectrum of one head."""
        found = state.spectrum(layer, head)
        if found is None:
            raise HTTPException(404, "There is no such head, or no audit was given.")
        return found

    return app
