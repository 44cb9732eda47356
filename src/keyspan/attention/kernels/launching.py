"""How Triton programs are launched; or only compiled, ahead of the launch and on another thread.

Compiling a step's programs takes seconds, the step microseconds. Inside `compiling()` a launch compiles its program for
the arguments it is given and runs nothing, so tensors without memory will do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_state = threading.local()


def launch(program: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch a program, or compile it if this thread is compiling."""
    if getattr(_state, "compiling", False):
        program.warmup(*arguments, grid=grid, **options)
    else:
        program[grid](*arguments, **options)


@contextmanager
def compiling() -> Iterator[None]:
    """In here, this thread's launches compile and do not run."""
    _state.compiling = True
    try:
        yield
    finally:
        _state.compiling = False
