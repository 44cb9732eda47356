"""`keyspan doctor`: what this machine can do, what is missing and how to get it."""

from __future__ import annotations

from typing import Any

from keyspan.cli.options import current

EXTRAS = {
    "networkx": ("graph", "graphs from networkx"),
    "psycopg": ("postgres", "a store in PostgreSQL"),
    "ray": ("ray", "sweeps on a cluster"),
    "fastapi": ("ui", "the local page"),
    "duckdb": ("data", "exports as Parquet"),
}


def doctor() -> int:
    """What this machine can do, what is missing, and how to get it."""
    import importlib.util
    import platform

    from keyspan.cli import show
    from keyspan.errors import KeyspanError
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.runners.local import cores

    data: dict[str, Any] = head() | {"python": platform.python_version()}
    data |= {"device": "cpu", "gpu": None, "threads": cores(), "torch": None}
    if importlib.util.find_spec("torch"):
        import torch

        data["torch"] = torch.__version__
        if torch.cuda.is_available():
            data |= {"device": "cuda", "gpu": torch.cuda.get_device_name(0)}
    data["extras"] = {
        extra: {
            "for": purpose,
            "installed": importlib.util.find_spec(package) is not None,
            "get": f"pip install 'keyspan[{extra}]'",
        }
        for package, (extra, purpose) in EXTRAS.items()
    }
    try:
        with open_store(current.store, read_only=True, missing_ok=True) as store:
            data["store"] = {"url": current.store, "ok": True, "runs": store.count(), "problem": None}
    except KeyspanError as error:
        data["store"] = {"url": current.store, "ok": False, "runs": None, "problem": str(error)}
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    if not data["store"]["ok"]:
        return 2  # `--store` names what cannot be one
    return 0 if data["torch"] else 1


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    out.print(f"keyspan {data['keyspan']}, python {data['python']}, torch {data['torch'] or 'MISSING: pip install torch'}")
    out.print(f"device  {data['gpu'] or 'cpu'}, {data['threads']} cores")
    for extra, about in data["extras"].items():
        state = "installed" if about["installed"] else f"missing: {about['get']}"
        out.print(f"extra   {extra} ({about['for']}): {state}")
    store = data["store"]
    out.print(f"store   {store['url']}: " + (f"{store['runs']} runs" if store["ok"] else store["problem"]))
