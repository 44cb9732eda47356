"""The whole bench on a tiny case: the document's fields, its arithmetic, and both ways of calling it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import keyspan
from keyspan.bench import __main__, suite
from keyspan.bench.cases import case_of
from keyspan.bench.ceilings import best_of, ceilings, onednn
from keyspan.bench.growth import growth
from keyspan.bench.show import lines
from keyspan.bench.timing import Repeats, Step
from keyspan.bench.workers import crowd
from keyspan.errors import BadInput, RunnerError

CASE = case_of("16x8x2x4", "cpu", 2)
TINY = suite.Plan((CASE,), "cpu", seconds=0.02, rounds=2, workers=2, growth=False, matmul_sizes=(32, 64))


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    patched = pytest.MonkeyPatch()
    patched.setitem(sys.modules["keyspan.bench.ceilings"].COPY_BYTES, "cpu", 1 << 16)
    try:
        return suite.bench(TINY)
    finally:
        patched.undo()


def test_the_document(measured: dict[str, Any]) -> None:
    json.dumps(measured, allow_nan=False)
    assert measured["schema"] == 1 and measured["keyspan"] == keyspan.__version__
    assert measured["agrees"] is True and measured["workers"] == 2 and measured["growth"] == []
    (found,) = measured["results"]
    assert found["name"] == "relations-16x8x2x4-cpu"
    for field in ("ratio", "ratio_cpu_time", "of_ceiling", "member_steps_per_second", "baseline_member_steps_per_second"):
        assert found[field] > 0
    assert found["ratio_low"] <= found["ratio"] <= found["ratio_high"]
    assert found["executed_flops"] >= found["nominal_flops"] == CASE.nominal_flops
    assert [(a["baseline"], a["arithmetic"]) for a in found["agreement"]] == [("eager", "fp64"), ("eager", "fp32")]
    assert found["baseline_member_steps_per_second"] == max(found["baseline_by_threads"].values())
    assert set(measured["ceilings"]["matmul"]["by_size"]) == {"32", "64"}
    assert measured["ceilings"]["copy"]["bytes_per_second"] > 0


def test_the_text(measured: dict[str, Any]) -> None:
    text = "\n".join(lines(measured))
    assert "relations-16x8x2x4-cpu" in text and "x the eager loop" in text and "GB/s" in text and "DO NOT" not in text
    (found,) = measured["results"]
    wrong = found | {"agreement": [found["agreement"][0] | {"agrees": False, "relative_error": None}]}
    assert "DO NOT AGREE" in "\n".join(lines(measured | {"results": [wrong]}))


def test_a_ratio_means_something_or_the_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules["keyspan.bench.agreement"].TOLERANCE, "fp64", -1.0)
    monkeypatch.setattr(suite, "ceilings", lambda *args: {})
    monkeypatch.setattr(suite, "_on_cpu", lambda *args: {})
    assert suite.bench(TINY)["agrees"] is False


def test_the_arithmetic_of_a_result() -> None:
    ours, eager, ceiling = Repeats((100.0, 50.0)), Repeats((10.0, 5.0)), Repeats((4 * CASE.nominal_flops * 100,) * 2)
    found = suite.result(CASE, "cuda", ours, eager, ceiling, graphed=Repeats((20.0, 10.0)))
    assert found["ratio"] == found["ratio_low"] == found["ratio_high"] == pytest.approx(10.0)
    assert found["member_steps_per_second"] == 75.0 and found["baseline_member_steps_per_second"] == 7.5
    assert found["of_ceiling"] == pytest.approx((0.25 + 0.125) / 2) and found["of_onednn"] is None
    assert found["graphed"]["ratio"] == pytest.approx(5.0) and found["name"] == "relations-16x8x2x4-cuda"
    assert found["flops_per_second"] == pytest.approx(75 * CASE.nominal_flops)
    twice = suite.result(CASE, "cpu", ours, eager, ceiling, onednn=Repeats((8 * CASE.nominal_flops * 100,) * 2))
    assert twice["of_onednn"] == pytest.approx(found["of_ceiling"] / 2) and twice["graphed"] is None
    assert suite.result(CASE, "cpu", ours, eager, ceiling, onednn=Repeats((0.0, 0.0)))["of_onednn"] is None


def test_more_workers_more_members() -> None:
    with crowd(CASE, 2, 0.02) as two:
        assert len(two.processes) == 2 and two.rate("fleet") > 0 and two.rate("matmul") > 1e6
    assert all(p.poll() is not None for p in two.processes)


def test_a_worker_that_dies_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunnerError, match="must answer"), crowd(replace(CASE, items=1), 1, 0.02):
        pass
    assert "items >= 2" in capfd.readouterr().err


def test_growth_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["keyspan.bench.growth"], "AXES", {"items": (8, 16, 64), "members": (1, 2)})
    told: list[str] = []
    one, other = growth("cpu", 0.003, points=2, tell=told.append)
    assert (one["axis"], one["values"], other["axis"], other["values"]) == ("items", [16, 64], "members", [1, 2])
    assert len(one["seconds"]) == len(one["baseline_seconds"]) == 2 and told == ["growth with items", "growth with members"]
    assert all(isinstance(curve["exponent"], float) for curve in (one, other))


def test_the_best_size_is_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["keyspan.bench.ceilings"], "rate", lambda step, count: 1.0)
    assert best_of(lambda n: Step(lambda: None), (2, 4), 1e-9) == (4, {2: 16.0, 4: 128.0})
    assert best_of(lambda n: None, (2, 4), 1e-9) == (0, {})


def test_a_ceiling_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["keyspan.bench.ceilings"]
    monkeypatch.setattr(module, "onednn", lambda size: None)
    monkeypatch.setattr(module, "copy_rate", lambda device, seconds: 1.0)
    assert ceilings("cpu", "fp32", 1e-3, (16,))["onednn"] is None
    assert ceilings("cpu", "fp64", 1e-3, (16,))["matmul"]["size"] == 16


def test_onednn_multiplies() -> None:
    step = onednn(16)
    if step is not None:
        step.call()


def test_plans() -> None:
    quick, slow = suite.plan(device="cpu", quick=True), suite.plan(device="cpu")
    assert len(quick.cases) == len(slow.cases) == 4 and quick.seconds * quick.rounds < slow.seconds * slow.rounds
    assert suite.plan(["8x8x1x1"], "cpu", workers=3, seed=5).workers == 3
    for wrong in ({"seconds": 0.0}, {"rounds": 0}, {"workers": 0}, {"members": 0}):
        with pytest.raises(BadInput):
            suite.plan(device="cpu", **wrong)


def test_without_a_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[suite.Plan] = []

    def answer(plan: suite.Plan, tell: suite.Tell) -> dict[str, Any]:
        given.append(plan)
        return {"agrees": plan.seed == 0}

    monkeypatch.setattr(__main__, "bench", answer)
    argv = ["--device", "cpu", "--case", "8x8x1x1", "--rounds", "1", "--seconds", "0.5", "--no-growth", "--json"]
    assert __main__.main(argv) == 0 and json.loads(capsys.readouterr().out) == {"agrees": True}
    assert given[0] == suite.plan(["8x8x1x1"], "cpu", rounds=1, seconds=0.5, growth=False)
    assert __main__.main([*argv, "--seed", "1"]) == 1
    assert __main__.main(["--case", "8"]) == 2
    assert "keyspan: A case must be" in capsys.readouterr().err
    assert __main__.main([*argv, "--dry-run"]) == 0 and len(given) == 2


def test_it_needs_neither_store_nor_command_line() -> None:
    code = (
        "import sys, keyspan.bench.__main__, keyspan.bench.worker\n"
        "print([n for n in ('sqlalchemy', 'typer', 'rich', 'matplotlib', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert Path(__main__.__file__ or "").name == "__main__.py"
