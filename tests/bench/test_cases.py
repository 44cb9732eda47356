"""Cells to time: their names, their sizes, the work of a step."""

import pytest

from keyspan.bench.cases import STANDARD, Case, case_of
from keyspan.errors import BadInput
from keyspan.lab.fleet import make_bucket


def test_names_and_members() -> None:
    case = case_of("128x32x4x8", "cpu")
    assert case.name("cpu") == "relations-128x32x4x8-cpu" and case.name("cuda") == "relations-128x32x4x8-cuda"
    assert case == Case(128, 32, 4, 8, members=32)
    assert [case_of(t, "cpu").members for t in STANDARD] == [32, 16, 1, 1]
    assert case_of("128x32x4x8", "cuda").members > 1000 and case_of("8x8x1x1", "cpu", 3).members == 3
    runs = case.runs(seed=2)
    assert len({r.run_id for r in runs}) == 32 and {r.run_id for r in runs}.isdisjoint(r.run_id for r in case.runs())


def test_the_work_of_a_step() -> None:
    case = case_of("128x32x4x8", "cpu")
    assert case.nominal_flops == 6 * 128**2 * 32 + 8 * 128 * 32 * 32
    assert case.executed_flops == case.nominal_flops  # nothing to pad
    assert case_of("100x20x3x5", "cpu").executed_flops == 6 * 128**2 * 32 + 8 * 128 * 32 * 32


@pytest.mark.parametrize("text", ["5x3x1x1", "33x1x3x3", "64x64x8x8", "100x16x5x7"])
def test_executed_is_what_the_channel_is_padded_to(text: str) -> None:
    import torch

    case = case_of(text, "cpu")
    bucket = make_bucket([case.run()], torch.device("cpu"))
    m, d, budget = bucket.items, bucket.width, bucket.heads * bucket.d_key  # type: ignore[attr-defined]
    assert case.executed_flops == 6 * m * m * budget + 8 * m * d * budget >= case.nominal_flops


@pytest.mark.parametrize(
    "text", ["", "128", "128x32x4", "128x32x4x8x2", "ax1x1x1", "1x1x1x1", "8x0x1x1", "-8x1x1x1", "8x8x0x1"]
)
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        case_of(text, "cpu")


def test_a_fleet_has_members() -> None:
    with pytest.raises(BadInput, match="--members >= 1"):
        case_of("8x8x1x1", "cpu", 0)
