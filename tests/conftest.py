"""What every test gets: an own store, one thread per worker, and a skip policy that CI can enforce.

With `KEYSPAN_CI=1`, a run in which anything but a test marked `gpu` was skipped fails.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

CI = os.environ.get("KEYSPAN_CI") == "1"
GPU_ITEM = ("gpu", True)

os.environ.pop("KEYSPAN_STORE", None)
os.environ["MPLBACKEND"] = "Agg"
if not Path("/dev/nvidiactl").exists():  # the fused kernels' programs are then carried out by Triton's interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; said before torch and NumPy are imported
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_variable, "1")

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if CI else "default")


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the test a store of its own: nothing it does reaches the measurements of this checkout."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("KEYSPAN_STORE", url)
    return url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in gpu_items:
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


# --- the skip policy: reports are tagged where the test runs and judged where the session ends ---------------------

_unwanted_skips: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("gpu"):
        report.user_properties.append(GPU_ITEM)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    allowed = hasattr(report, "wasxfail") or GPU_ITEM in {tuple(pair) for pair in report.user_properties}
    if report.skipped and not allowed:
        _unwanted_skips.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _unwanted_skips.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")
    if CI and _unwanted_skips and not is_worker and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CI and _unwanted_skips:
        terminalreporter.section("skipped, and not a GPU test: this run fails", red=True)
        for nodeid in sorted(set(_unwanted_skips)):
            terminalreporter.write_line(nodeid)
