"""The batched linear unit: the contract on every device, and what it refuses."""

from __future__ import annotations

import pytest
from tests.contracts.attention_contract import LinearContract, refused, run_of

from keyspan.attention.linear import LinearBucket
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.specs import LinearUnit


class TestLinearOnCpuInDouble(LinearContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-12


class TestLinearOnCpuInSingle(LinearContract):
    device, arithmetic, tolerance = "cpu", "fp32", 1e-5


@pytest.mark.gpu
class TestLinearOnGpuInDouble(LinearContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-12


@pytest.mark.gpu
class TestLinearOnGpuInSingle(LinearContract):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-5


def test_what_a_linear_unit_cannot_do_is_refused() -> None:
    labels = Dichotomies(dimension=3, examples=5)
    assert "relations" in refused(run_of(Relations(items=7, d_model=5), LinearUnit()), LinearBucket)
    assert "hinge" in refused(run_of(labels, LinearUnit()), LinearBucket, loss="hinge")
    assert "bf16" in refused(run_of(labels, LinearUnit(), "bf16"), LinearBucket)
