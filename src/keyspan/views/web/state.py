"""What the page shows, behind its API: the index of a store, the ledger, an audit. Nothing here is written to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keyspan
from keyspan.errors import BadInput
from keyspan.evidence.bits import bits_table
from keyspan.evidence.following import Position, numbered, position
from keyspan.evidence.store import open_store
from keyspan.evidence.transfer import row
from keyspan.files.paths import name_of, reading
from keyspan.papers import claims
from keyspan.papers.ledger import Book, Ledger
from keyspan.runners import live
from keyspan.views.web.index import Cell, Index

LARGEST_AUDIT = 2**28  # bytes of a kept audit
PATIENCE = 20.0  # a ledger is made anew at most so many times its own seconds after it was made


class State:
    """Everything the page may ask for. url: of the store, which may come into being later    folder: where running processes
    say what they do    audit: the JSON of `keyspan audit`"""

    def __init__(self, url: str, folder: Path | None, audit: Mapping[str, Any] | None = None) -> None:
        self.url, self.folder, self.audit = url, folder, audit
        self.store = open_store(url, read_only=True, missing_ok=True)
        self.index = Index(self.store)
        self._looking = threading.Lock()
        self._ledger_lock = threading.Lock()
        self._ledger: tuple[Position, float, dict[str, Any]] | None = None

    def look(self) -> bool:
        """Take in what is new, unless somebody is at it. returns: whether somebody else was"""
        if not self._looking.acquire(blocking=False):
            return True
        try:
            if not self.index.refresh() and self.index.progress == (0, 0):
                self._open_again()
        finally:
            self._looking.release()
        return False

    def _open_again(self) -> None:
        """An empty store may be one that was not there yet."""
        store = open_store(self.url, read_only=True, missing_ok=True)
        self.store.close()
        self.store, self.index = store, Index(store)
        self.index.refresh()

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def about(self) -> dict[str, Any]:
        """How things stand at this moment."""
        reading_now = self.look()
        read, rows = self.index.progress
        return {
            "keyspan": keyspan.__version__,
            "store": self.url,
            "version": self.index.version,
            "runs": read,
            "rows": rows,
            "reading": reading_now,
            "running": live.running(self.folder),
            "audit": None if self.audit is None else str(self.audit.get("folder", "audit")),
        }

    def cells(self, text: str, offset: int, limit: int) -> dict[str, Any]:
        """Cells whose words hold all of these, the one that changed last first."""
        words = text.lower().split()
        found = [
            c for c in self.index.cells() if all(w in f"{c.title} {c.recipe} {c.arithmetic} {c.kind}".lower() for w in words)
        ]
        shown = [cell.brief() for cell in found[offset : offset + limit]]
        return {"total": len(found), "offset": offset, "version": self.index.version, "cells": shown}

    def runs(self, cell: Cell, offset: int, limit: int) -> dict[str, Any]:
        """Records of a cell as flat rows, the newest first."""
        seqs = cell.seqs[::-1][offset : offset + limit]
        return {"total": cell.runs, "offset": offset, "runs": [row(record) for _, record in numbered(self.store, seqs)]}

    def ledger(self) -> dict[str, Any]:
        """The ledger with its bits; made anew when the store has changed, but not all the time."""
        with self._ledger_lock:
            now = position(self.store)
            if self._ledger is not None and (now == self._ledger[0] or time.monotonic() < self._ledger[1]):
                return self._ledger[2]
            start = time.monotonic()
            book = Book(self.store)
            entries = tuple(book.entry(claim) for claim in claims.every())
            made = Ledger(entries, self.store.where, tuple(bits_table(self.store.records()))).to_dict()
            for claim in made["claims"]:
                claim["runs"] = len(claim.pop("run_ids"))
            made["run_ids"] = len(made["run_ids"])
            taken = time.monotonic() - start
            self._ledger = now, start + taken + PATIENCE * taken, made
            return made

    def audit_layers(self) -> dict[str, Any] | None:
        """The audit without its spectra."""
        if self.audit is None:
            return None
        layers = [{k: v for k, v in layer.items() if k != "spectrum"} for layer in self.audit["layers"]]
        return dict(self.audit) | {"layers": layers}

    def spectrum(self, layer: int, head: int) -> dict[str, Any] | None:
        """The singular values of one head, and what is known of it."""
        for found in self.audit["layers"] if self.audit is not None else ():
            if found["layer"] == layer and 0 <= head < found["heads"]:
                values = found["spectrum"][head] if found.get("spectrum") else None
                names = ("effective_rank", "stable_rank", "symmetry")
                each = {name: found[name][head] for name in names if isinstance(found.get(name), list)}
                return {"layer": layer, "head": head, "d_key": found["d_key"], "values": values} | each
        return None


def read_audit(path: Path) -> dict[str, Any]:
    """An audit kept as JSON (`keyspan audit FOLDER --json --spectra`), checked; or one made now of a folder."""
    if path.is_dir():
        from keyspan.advice.audit import audit

        return audit(path, spectra=True).to_dict()
    with reading(path, LARGEST_AUDIT) as (handle, _):
        raw = handle.read()
    fix = "Make it with `keyspan audit FOLDER --json --spectra`."
    try:
        told = json.loads(raw)
        layers = told["layers"]
        good = all(_is_layer(layer) for layer in layers) and len(layers) > 0
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise BadInput(f"`--audit` must be a folder or the JSON of an audit, but got {name_of(path)!r}. {fix}")
    return dict(told)


def _is_layer(layer: Any) -> bool:
    """Whether it has what the page draws."""
    heads = layer["heads"]
    sizes = all(type(layer[name]) is int and layer[name] >= 0 for name in ("layer", "heads", "d_key"))
    ranks = [layer["effective_rank"], layer["stable_rank"]]
    numbers = all(len(r) == heads and all(isinstance(v, int | float) for v in r) for r in ranks)
    spectrum = layer.get("spectrum")
    return sizes and numbers and (spectrum is None or len(spectrum) == heads)
