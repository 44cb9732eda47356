"""keyspan: a capacity laboratory for self-attention.

    import keyspan

    cell = keyspan.Relations(items=128, d_model=32, graph=keyspan.graphs.permutation())
    print(keyspan.design(items=128, d_model=32).to_dict()["key_budget"])    # at once, from theory
    print(keyspan.measure(cell, seeds=3).to_dict()["key_budget"])           # in half a minute, by training

Nothing is computed on import, and torch is not imported: names are looked up when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Dichotomies": "keyspan.problems.dichotomies",
    "KeyspanError": "keyspan.errors",
    "Lab": "keyspan.runners.lab",
    "Labels": "keyspan.problems.contexts",
    "Record": "keyspan.evidence.record",
    "Relations": "keyspan.problems.relations",
    "Sequences": "keyspan.problems.sequences",
    "TypedRelations": "keyspan.problems.typed",
    "Verdict": "keyspan.verdict",
    "audit": "keyspan.advice.audit",
    "calibrate": "keyspan.runners.measure",
    "certify": "keyspan.advice.certify",
    "construct": "keyspan.advice.construct",
    "design": "keyspan.advice.design",
    "fit": "keyspan.runners.cells",
    "ledger": "keyspan.papers.ledger",
    "measure": "keyspan.runners.measure",
    "open_store": "keyspan.evidence.store",
    "report": "keyspan.views.report",
    "reproduce": "keyspan.views.reproduce",
}
_MODULES = {"embeddings": "keyspan.problems.embeddings", "graphs": "keyspan.problems.graphs"}

__all__ = ["__version__", *_WHERE, *_MODULES]

if TYPE_CHECKING:
    from keyspan.advice.audit import audit as audit
    from keyspan.advice.certify import certify as certify
    from keyspan.advice.construct import construct as construct
    from keyspan.advice.design import design as design
    from keyspan.errors import KeyspanError as KeyspanError
    from keyspan.evidence.record import Record as Record
    from keyspan.evidence.store import open_store as open_store
    from keyspan.papers.ledger import ledger as ledger
    from keyspan.problems import embeddings as embeddings
    from keyspan.problems import graphs as graphs
    from keyspan.problems.contexts import Labels as Labels
    from keyspan.problems.dichotomies import Dichotomies as Dichotomies
    from keyspan.problems.relations import Relations as Relations
    from keyspan.problems.sequences import Sequences as Sequences
    from keyspan.problems.typed import TypedRelations as TypedRelations
    from keyspan.runners.cells import fit as fit
    from keyspan.runners.lab import Lab as Lab
    from keyspan.runners.measure import calibrate as calibrate
    from keyspan.runners.measure import measure as measure
    from keyspan.verdict import Verdict as Verdict
    from keyspan.views.report import report as report
    from keyspan.views.reproduce import reproduce as reproduce


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'keyspan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
