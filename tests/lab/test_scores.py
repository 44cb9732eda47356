"""Every source of scores under one contract: NumPy, torch on this machine and on a GPU, and the Triton program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.contracts.scores_contract import ScoresContract
from tests.lab.test_proof import blocks

from keyspan.errors import BadInput
from keyspan.lab import channels
from keyspan.lab.device import DeviceScores, _rounded
from keyspan.lab.proof import prove
from keyspan.lab.scorer import Scorer
from keyspan.lab.tiles import Tiles
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]


class TestOfNumpy(ScoresContract):
    def scores(self, instance: RelationInstance, w_query: Float, w_key: Float) -> Scorer:
        return Scorer(Tiles(instance, w_query, w_key, self.tile))


class OfTorch(ScoresContract):
    device = "cpu"
    levels: tuple[str, ...] = ("fp32", "fp64")
    fused: bool = False

    def scores(self, instance: RelationInstance, w_query: Float, w_key: Float) -> DeviceScores:
        x, wq, wk = (torch.from_numpy(np.array(a)).to(self.device) for a in (instance.embeddings, w_query, w_key))
        return DeviceScores(x, wq, wk, instance.edges, levels=self.levels, tile=self.tile, fused=self.fused)


class TestOfTorch(OfTorch):
    pass


class TestOfTorchInBfloat(OfTorch):
    levels = ("bf16", "fp32", "fp64")


class TestOfTorchInTensorFloat(OfTorch):
    levels = ("tf32", "fp64")


class TestOfTriton(OfTorch):
    """Through the interpreter, unless there is a GPU."""

    levels, fused, tile = ("bf16", "fp32", "fp64"), True, 128

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("triton")
        from keyspan.attention.kernels import peaks

        if torch.cuda.is_available():
            self.device = "cuda"
        else:
            monkeypatch.setattr(peaks, "BLOCK", 64)
            monkeypatch.setattr(peaks.block_peaks, "__defaults__", (64,))


@pytest.mark.gpu
class TestOfTorchOnGpu(OfTorch):
    device, levels = "cuda", ("fp32", "fp64")


@pytest.mark.gpu
class TestOfTorchOnGpuInBfloat(OfTorch):
    device, levels = "cuda", ("bf16", "fp32", "fp64")


@pytest.mark.gpu
class TestOfTritonInTensorFloat(OfTorch):
    device, levels, fused = "cuda", ("tf32", "fp32", "fp64"), True


@pytest.mark.parametrize("level, bits", [("bf16", 8), ("tf32", 11), ("fp32", 24)])
def test_a_level_keeps_so_many_bits(level: str, bits: int) -> None:
    t = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    moved = (_rounded(t, level).double() - t).abs()
    assert float((moved / t.abs().clamp_min(1e-9)).max()) <= 2.0**-bits
    mantissa = torch.frexp(_rounded(t, level).double())[0] * 2.0**bits
    assert torch.equal(mantissa, mantissa.round())


def test_most_tiles_are_settled_at_the_first_level() -> None:
    instance, wq, wk = blocks(640, 2, 11)
    x, q, k = (torch.from_numpy(a) for a in (instance.embeddings, wq, wk))
    made = DeviceScores(x.float(), q, k, instance.edges, tile=64)
    proof = prove(made, 0.99, locate=False)
    assert proof.exact and proof.tiles["bf16"] > 80 and proof.tiles["fp64"] < 5
    located = prove(made, 0.99)
    assert located.exact and located.tiles["fp32"] + located.tiles["fp64"] > 0


def test_the_judge_hands_a_channel_to_a_device() -> None:
    instance, wq, wk = blocks(330, 3, 7)
    made = channels._on_device(instance, wq, wk, "cpu")
    proof, (verdict, ours) = prove(made, 0.999), channels.certify_channel(instance, wq, wk, -0.999)
    assert ours is not None and proof.exact is ours.exact is verdict.exact is True
    assert proof.min_edge == ours.min_edge or abs(proof.min_edge.score - ours.min_edge.score) < 1e-13


@pytest.mark.gpu
def test_the_judge_on_a_gpu() -> None:
    instance, wq, wk = blocks(330, 3, 7)
    verdict, proof = channels.certify_channel(instance, wq, wk, -0.999, device="cuda")
    plain, ours = channels.certify_channel(instance, wq, wk, -0.999)
    assert verdict.exact is True and verdict == plain and proof is not None and ours is not None and proof.exact is True


def test_levels_that_make_no_sense() -> None:
    x, w = torch.ones(3, 2), torch.ones(1, 2, 1)
    for levels in ((), ("fp32",), ("fp8", "fp64")):
        with pytest.raises(BadInput, match="levels"):
            DeviceScores(x, w, w, np.array([[0, 1]]), levels=levels)


def test_rows_that_ask_may_be_others_than_those_that_are_asked() -> None:
    """Half of the sources, given as rows of their own, against the same channel on all items."""
    instance, wq, wk = blocks(200, 2, 7)
    x, q, k = (torch.from_numpy(a) for a in (instance.embeddings, wq, wk))
    few = instance.edges[:100]
    made = DeviceScores(x, q, k, few, levels=("fp32", "fp64"), tile=64, asks=x[:100])
    proof, whole = prove(made, 0.9999), prove(DeviceScores(x, q, k, instance.edges, levels=("fp64",), tile=64), 0.9999)
    assert proof.exact and made.pairs == 20_000 and proof.max_nonedge is not None and whole.max_nonedge is not None
    assert proof.max_nonedge.source < 100 and proof.max_nonedge.score <= whole.max_nonedge.score + 1e-12
    scores = (x[:100] @ q) @ (x @ k).transpose(1, 2)
    best = scores.amax(0)
    best[few[:, 0], few[:, 1]] = -1.0
    assert proof.max_nonedge.score == pytest.approx(float(best.max()), abs=1e-12)
