"""What is timed: cells, their members, and the floating-point operations of a step."""

from __future__ import annotations

import re
from dataclasses import dataclass

from keyspan.attention.instrument import ALIGN, next_power_of_two, round_up
from keyspan.errors import BadInput, require
from keyspan.lab import recipes
from keyspan.lab.pack import flops
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, Run, Stopping

BLOCK = 1_000_000  # seeds of one `--seed` do not meet those of another
# Members in one fleet, by device: enough that a member more costs what a member costs. On a CPU, of every worker process.
SCORES = {"cpu": 1 << 21, "cuda": 1 << 30}
MOST = {"cpu": 32, "cuda": 2048}


@dataclass(frozen=True)
class Case:
    """One cell. members: in a fleet, which is one worker process on a CPU and the whole device on a GPU"""

    items: int
    d_model: int
    heads: int
    d_key: int
    members: int

    def name(self, device: str) -> str:
        """relations-128x32x4x8-cpu: items, d_model, heads, d_key, device"""
        return f"relations-{self.items}x{self.d_model}x{self.heads}x{self.d_key}-{device}"

    def run(self, replicate: int = 0, *, arithmetic: str = "fp32", steps: int = 2000) -> Run:
        """One member, with the recipe `gradient`; with fewer steps it is the start of a shorter cycle."""
        return Run(
            problem=Relations(items=self.items, d_model=self.d_model),
            replicate=replicate,
            instrument=Channel(heads=self.heads, d_key=self.d_key),
            recipe=recipes.gradient(steps=steps),
            stopping=Stopping(retire_exact=False),
            arithmetic=arithmetic,
        )

    def runs(self, seed: int = 0, *, first: int = 0, arithmetic: str = "fp32") -> list[Run]:
        """The members of one fleet, each on an instance of its own, the `first` and those after it."""
        return [self.run(seed * BLOCK + first + i, arithmetic=arithmetic) for i in range(self.members)]

    @property
    def nominal_flops(self) -> float:
        """Of one step of one member, matrix products only, unpadded: 6 m^2 D_K + 8 m d D_K."""
        return flops(self.run())

    @property
    def executed_flops(self) -> float:
        """The same with the padding that is computed along: m and d to whole slots, H and d_k to powers of 2."""
        m, d = round_up(self.items, ALIGN), round_up(self.d_model, ALIGN)
        budget = next_power_of_two(self.heads) * next_power_of_two(self.d_key)
        return 6.0 * m * m * budget + 8.0 * m * d * budget


def case_of(text: str, device: str, members: int | None = None) -> Case:
    """`128x32x4x8` -> the case. members: default as many as keep the device busy"""
    if not re.fullmatch(r"\d{1,8}x\d{1,6}x\d{1,6}x\d{1,6}", text):
        raise BadInput(f"A case must be ITEMSxD_MODELxHEADSxD_KEY, but got {text!r}. Try 128x32x4x8.")
    items, d_model, heads, d_key = (int(n) for n in text.split("x"))
    if members is not None:
        require(members >= 1, "`--members >= 1`", members, "A fleet has members.")
    Relations(items=items, d_model=d_model), Channel(heads=heads, d_key=d_key)  # refused here, if they make no sense
    fit = max(1, SCORES[device] // (items * items * heads))
    return Case(items, d_model, heads, d_key, members or min(MOST[device], fit))


STANDARD = ("128x32x4x8", "128x16x8x8", "512x64x8x8", "1024x128x16x16")
