"""Global options, taken from before or after the verb."""

from __future__ import annotations

import os
from dataclasses import dataclass

from keyspan.errors import BadInput, shown

DEFAULT_STORE = "sqlite:///.keyspan/store.db"  # as in runners/lab.py, which is not imported here: `--help` must be quick
FLAGS = ("--json", "--quiet", "--dry-run")
VALUES = ("--store", "--device", "--seed")


@dataclass
class Options:
    """What holds for every verb."""

    json: bool = False
    quiet: bool = False
    dry_run: bool = False
    store: str = DEFAULT_STORE
    device: str = "auto"
    seed: int = 0


current = Options()  # set once per call of `main`, read by the verbs


def split(argv: list[str]) -> tuple[Options, list[str]]:
    """Take the global options out of the arguments, wherever they stand. returns: options, the other arguments"""
    options = Options(store=os.environ.get("KEYSPAN_STORE") or DEFAULT_STORE)
    rest: list[str] = []
    tokens = iter(argv)
    for token in tokens:
        name, equals, value = token.partition("=")
        if token == "--":
            rest += [token, *tokens]
        elif token in FLAGS:
            setattr(options, token[2:].replace("-", "_"), True)
        elif name in FLAGS:
            raise BadInput(f"`{name}` must stand alone, but got {shown(token)}. Leave the value out.")
        elif name in VALUES:
            given = value if equals else next(tokens, None)
            if given is None:
                raise BadInput(f"`{name}` must have a value, but got none. Give one after it.")
            _set(options, name, given)
        else:
            rest.append(token)
    if options.device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"`--device` must be auto|cpu|cuda, but got {shown(options.device)}. Choose one.")
    return options, rest


def _set(options: Options, name: str, value: str) -> None:
    if name != "--seed":
        setattr(options, name[2:], value)
        return
    try:
        options.seed = int(value)
    except ValueError:
        raise BadInput(f"`--seed` must be a whole number, but got {shown(value)}. Seeds count from 0.") from None
    if not 0 <= options.seed < 2**31:
        raise BadInput(f"`0 <= --seed < 2^31` must hold, but got {shown(options.seed)}. Seeds count from 0.")
