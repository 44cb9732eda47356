"""What was measured, as lines for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def lines(data: dict[str, Any]) -> Iterator[str]:
    """The answer of `suite.bench` as text."""
    top = data["ceilings"]
    where = f"{data['device_name']}, {data['threads']} threads" if data["device"] == "cpu" else data["device_name"]
    load = f", load {data['load']['before']:.1f} to {data['load']['after']:.1f}"
    yield f"on {where}, torch {data['torch']}, {data['arithmetic']}{load if data['device'] == 'cpu' else ''}"
    yield (
        f"ceilings: torch.matmul {top['matmul']['flops'] / 1e9:.0f} GFLOP/s at {top['matmul']['size']}"
        + (f", the same through oneDNN {top['onednn']['flops'] / 1e9:.0f}" if top["onednn"] else "")
        + f", copy {top['copy']['bytes_per_second'] / 1e9:.1f} GB/s"
    )
    yield ""
    for r in data["results"]:
        yield from _case(r, data)
    for g in data["growth"]:
        shown = ", ".join(f"{v}: {1e3 * s:.3g} ms" for v, s in zip(g["values"], g["seconds"], strict=True))
        yield f"time against {g['axis']:8} exponent {g['exponent']:5.2f} (eager {g['baseline_exponent']:5.2f})   {shown}"


def _case(r: dict[str, Any], data: dict[str, Any]) -> Iterator[str]:
    fleet = f"{r['workers']} x {r['members']} members" if data["device"] == "cpu" else f"{r['members']} members"
    yield f"{r['name']}: {r['ratio']:.3g}x the eager loop ({r['ratio_low']:.3g} to {r['ratio_high']:.3g})"
    if r["ratio_cpu_time"]:
        yield f"    {r['ratio_cpu_time']:.3g}x by computing time, one thread a core against one thread, whatever else runs here"
    if r["graphed"]:
        yield f"    {r['graphed']['ratio']:.3g}x the same model in a CUDA graph"
    yield (
        f"    {r['member_steps_per_second']:.4g} member-steps/s (+-{r['spread'] / 2:.0%}, {fleet}) beside"
        f" {r['baseline_member_steps_per_second']:.4g} (+-{r['baseline_spread'] / 2:.0%}, {r['baseline_threads']} threads)"
    )
    other = f", {r['of_onednn']:.0%} of oneDNN's" if r["of_onednn"] else ""
    yield (
        f"    {r['flops_per_second'] / 1e9:.1f} GFLOP/s nominal: {r['of_ceiling']:.0%} of the ceiling{other};"
        f" a step is {r['nominal_flops'] / 1e6:.4g} MFLOP, executed {r['executed_flops'] / 1e6:.4g}"
    )
    for a in r["agreement"]:
        error = "no number" if a["relative_error"] is None else f"{a['relative_error']:.1e}"
        verdict = "agree" if a["agrees"] else "DO NOT AGREE: this ratio means nothing"
        yield f"    {a['baseline']}: weights after {a['steps']} steps in {a['arithmetic']} {verdict} (relative error {error})"
    yield ""
