"""The certificate's bench: what it makes is what it says, and what it prints is what was proven."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from keyspan.bench import certify, construct
from keyspan.lab.channels import judge_channel
from keyspan.problems.relations import RelationInstance


def small(*more: str) -> list[str]:
    fixed = {"items": 300, "d-model": 64, "device": "cpu", "tile": 128, "seconds": 0.01, "levels": "fp32,fp64"}
    return [*(word for name, value in fixed.items() for word in (f"--{name}", str(value))), *more]


def test_blocks_are_exact_on_their_own_items() -> None:
    made = construct.make(150, 32, 12, 5, "cpu", seed=3)
    x, target = made.x.double(), torch.from_numpy(made.edges[:, 1])
    for head in range(13):
        mine = slice(head * 12, min((head + 1) * 12, 150))
        q, k = x[mine] @ made.w_query[head], x[target[mine]] @ made.w_key[head]
        assert torch.allclose(q, k, atol=1e-9) and torch.allclose((q * q).sum(1), torch.ones(len(q), dtype=torch.float64))
    assert np.array_equal(np.sort(made.edges[:, 1]), np.arange(150))
    again = construct.make(150, 32, 12, 5, "cpu", seed=3)
    assert torch.equal(again.w_query, made.w_query) and not torch.equal(construct.make(150, 32, 12, 5, "cpu", 4).x, made.x)


@pytest.mark.parametrize("items, d_model", [(300, 64), (600, 128), (900, 128)])
def test_what_is_expected_to_be_exact_is(items: int, d_model: int) -> None:
    block, d_key = construct.choose(items, d_model)
    made = construct.make(items, d_model, block, d_key, "cpu", seed=0)
    instance = RelationInstance(None, made.edges, made.x.double().numpy())
    verdict = judge_channel(instance, made.w_query.numpy(), made.w_key.numpy(), -0.985)
    assert verdict.exact and verdict.scores["margin"] > 0.015
    assert made.w_query.shape[0] * d_key < items
    assert construct.failures(items, d_model, block, d_key, 0.97) < 0.02
    assert construct.failures(items, d_model, block, d_key // 2, 0.97) > 0.02


@pytest.mark.parametrize("block, d_key, top", [(16, 3, 0.7), (48, 8, 0.7), (64, 8, 0.7)])
def test_tails_are_not_lighter_than_expected(block: int, d_key: int, top: float) -> None:
    """Non-edges that score too high in constructions that are far too narrow, and how many were expected at most."""
    items, d_model = 700, 192
    made = construct.make(items, d_model, block, d_key, "cpu", seed=1)
    x = made.x.double()
    s = torch.full((items, items), -1.0, dtype=torch.float64)
    for query, key in zip(made.w_query, made.w_key, strict=True):
        s = torch.maximum(s, (x @ query) @ (x @ key).T)
    s[torch.arange(items), torch.from_numpy(made.edges[:, 1])] = -1.0
    same = torch.arange(items)[:, None] // block == torch.from_numpy(np.argsort(made.edges[:, 1]))[None, :] // block
    found = int((s[~same] > top).sum())  # those of one block are the code's affair
    expected = construct.failures(items, d_model, block, d_key, top)
    assert 0 < found < 1.5 * expected and expected < 100 * found


def test_codes_keep_apart() -> None:
    code = construct.spherical_code(40, 6, torch.Generator("cpu").manual_seed(0))
    gram = code @ code.T - 2 * torch.eye(40, dtype=torch.float64)
    assert torch.allclose((code * code).sum(1), torch.ones(40, dtype=torch.float64))
    assert float(gram.max()) < 0.65  # 40 random ones come within 0.85 or so


def test_it_proves_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert certify.main(small()) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["proof"]["exact"] is True and data["proof"]["max_nonedge"]["at_most"] <= 0.985
    assert data["key_budget"] == data["heads"] * data["d_key"] and sum(data["proof"]["tiles"].values()) == 9
    assert data["flops"] > 2 * 300**2 * data["key_budget"] and 0 < data["of_ceiling"] < 10 and not data["fused"]
    assert data["law"] == pytest.approx(300 * np.log(300) / 64, rel=1e-5) and data["peak_bytes"] > 0
    assert certify.main(small("--block", "30", "--d-key", "3", "--locate")) == 1
    assert json.loads(capsys.readouterr().out)["proof"]["exact"] is False


@pytest.mark.parametrize(
    "more, mentions",
    [
        (("--levels", "fp32"), "levels end with fp64"),
        (("--block", "65", "--d-key", "3"), "block <= d_model"),
        (("--items", "1"), "--items >= 2"),
        (("--d-model", "3"), "d_key that suffice"),
        (("--device", "tpu"), "auto|cpu|cuda"),
    ],
)
def test_bad_input_is_one_line(more: tuple[str, ...], mentions: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify.main(small(*more)) == 2
    assert mentions in capsys.readouterr().err.splitlines()[-1]
