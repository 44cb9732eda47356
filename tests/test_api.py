"""The shop window: what `import keyspan` costs and offers, and that the examples run."""

import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.advice.made import llama, save

import keyspan
from keyspan.cli import main
from keyspan.errors import BadInput, KeyspanError, MissingExtra, StoreError
from keyspan.files.weights import ChannelWeights, write_weights
from keyspan.runners.questions import relations_question

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def python(code: str, *argv: str, cwd: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the import ----------------------------------------------------------------------------------------------------


def test_importing_costs_nothing() -> None:
    code = """
        import json, sys
        before = set(sys.modules)
        import keyspan
        dir(keyspan)
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    added = json.loads(python(textwrap.dedent(code)))
    assert [name for name in added if name.partition(".")[0] not in sys.stdlib_module_names] == ["keyspan"]
    assert len(added) < 20, added  # a few of the standard library


def test_what_needs_no_torch_imports_none() -> None:
    code = """
        import sys
        import keyspan
        for name in keyspan.__all__:
            if name not in ("certify",):
                getattr(keyspan, name)
        assert "torch" not in sys.modules, "torch"
        assert "matplotlib" not in sys.modules, "matplotlib"
        keyspan.design(items=128, d_model=16).to_dict()
        assert "torch" not in sys.modules, "torch"
    """
    python(textwrap.dedent(code))


# --- the names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", keyspan.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(keyspan, name)
    assert value is getattr(keyspan, name)
    assert name == "__version__" or (value.__doc__ or "").strip()


def test_about_twenty_names_each_once() -> None:
    assert len(keyspan.__all__) == len(set(keyspan.__all__)) <= 25
    assert sorted(keyspan.__all__) == dir(keyspan)
    for name in (
        "audit",
        "design",
        "certify",
        "measure",
        "calibrate",
        "reproduce",
        "fit",
        "open_store",
        "Relations",
        "graphs",
        "embeddings",
    ):
        assert name in keyspan.__all__


def test_the_checker_knows_the_same_names() -> None:
    """The names for the type checker are written out by hand, so they are compared with the ones that are looked up."""
    text = (ROOT / "src" / "keyspan" / "__init__.py").read_text()
    typed = set(re.findall(r"^    from [\w.]+ import (\w+) as \1$", text, flags=re.MULTILINE))
    assert typed == set(keyspan.__all__) - {"__version__"}


def test_a_star_import_brings_them_all() -> None:
    space: dict[str, Any] = {}
    exec("from keyspan import *", space)
    assert set(keyspan.__all__) <= set(space)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'measured'"):
        keyspan.measured  # noqa: B018
    assert not hasattr(keyspan, "torch")


def test_one_root_for_every_error() -> None:
    for error in (BadInput, StoreError, MissingExtra):
        assert issubclass(error, keyspan.KeyspanError) and error.exit_code == 2
    assert issubclass(BadInput, ValueError) and issubclass(MissingExtra, ImportError)
    assert keyspan.KeyspanError is KeyspanError


# --- the calls -----------------------------------------------------------------------------------------------------


def test_keyword_only_after_the_first_argument() -> None:
    calls: list[Callable[..., object]] = [keyspan.measure, keyspan.design, keyspan.calibrate, keyspan.certify]
    calls += [keyspan.reproduce, keyspan.fit, keyspan.audit]
    for call in calls:
        with pytest.raises(TypeError, match="positional"):
            call(16, 3)


def test_specs_and_results_are_frozen() -> None:
    cell = keyspan.Relations(items=16, d_model=16)
    with pytest.raises(AttributeError):
        cell.items = 17  # type: ignore[misc]
    design = keyspan.design(items=16, d_model=16)
    with pytest.raises(AttributeError):
        design.heads = 3  # type: ignore[misc]
    assert json.loads(json.dumps(design.to_dict())) == json.loads(json.dumps(keyspan.design(items=16, d_model=16).to_dict()))


@pytest.mark.parametrize(
    "wrong, mentions",
    [
        ({"heads": [0]}, "--heads"),
        ({"seeds": 0}, "--seeds"),
        ({"target": 0}, "--target"),
        ({"recipe": "magic"}, "--recipe"),
        ({"key_budgets": [3], "heads": [2]}, "divide"),
        ({"heads": []}, "`--heads` has a number in it must hold, but got none"),
        ({"heads": np.array([], dtype=int)}, "`--heads` has a number in it"),
        ({"heads": "4"}, "`--heads` must be a whole number, but got '4'"),
        ({"heads": [4, None]}, "`--heads` must be a whole number, but got None"),
        ({"heads": [1.5]}, "got 1.5"),
        ({"heads": True}, "got True"),
        ({"heads": {"a": 1}}, "got {'a': 1}"),
        ({"key_budgets": []}, "`--key-budgets` has a number in it"),
        ({"key_budgets": np.array([2.5])}, "`--key-budgets` must be a whole number, but got 2.5"),
        ({"seeds": "3"}, "`--seeds` must be a whole number, but got '3'"),
        ({"seeds": None}, "`--seeds` must be a whole number, but got None"),
        ({"seed": None}, "`--seed` must be a whole number, but got None"),
        ({"seed": 0.5}, "got 0.5"),
        ({"target": "x"}, "target <= 1` must hold, but got 'x'"),
        ({"target": True}, "target"),
        ({"threshold": []}, "--threshold"),
        ({"threshold": ""}, "--threshold"),
        ({"criterion": ""}, "--criterion"),
        ({"criterion": ["mean"]}, "--criterion"),
        ({"recipe": None}, "--recipe"),
        ({"steps": "x"}, "`--steps` must be a whole number, but got 'x'"),
        ({"steps": 1.5}, "got 1.5"),
        ({"lab": 3}, "`lab` must be a Lab, but got 3"),
    ],
)
def test_bad_input_is_refused_before_a_store_is_made(wrong: dict[str, Any], mentions: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape(mentions)):
        keyspan.measure(keyspan.Relations(items=16, d_model=16), **wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given, plain",
    [
        ({"heads": 4}, {"heads": [4]}),
        ({"heads": np.array([2, 1, 2])}, {"heads": [1, 2]}),
        ({"heads": range(1, 3)}, {"heads": [1, 2]}),
        ({"heads": {2.0, 1.0}}, {"heads": [1, 2]}),
        ({"heads": 1, "key_budgets": np.array([[3], [4]])}, {"heads": [1], "key_budgets": [3, 4]}),
        ({"seeds": 2.0, "seed": np.int64(1), "steps": 50.0}, {"seeds": 2, "seed": 1, "steps": 50}),
        ({"target": np.float64(0.5)}, {"target": 0.5}),
    ],
)
def test_numbers_of_any_type_ask_the_same_question(given: dict[str, Any], plain: dict[str, Any]) -> None:
    cell = keyspan.Relations(items=16, d_model=16)
    assert relations_question(cell, **given) == relations_question(cell, **plain)


@pytest.mark.parametrize(
    "wrong, mentions",
    [
        ({"jobs": "2"}, "`--jobs` must be a whole number, but got '2'"),
        ({"jobs": 1.5}, "got 1.5"),
        ({"jobs": 0}, "`--jobs >= 1`"),
        ({"store": 3}, "`store` of a Lab must be a str"),
        ({"device": None}, "--device"),
        ({"device": ["cpu"]}, "`device` of a Lab must be a str"),
        ({"device": "tpu"}, "`--device` must be auto|cpu|cuda"),
        ({"weights": 3}, "`weights` of a Lab must be a str or Path"),
        ({"watcher": print}, "`watcher` of a Lab must be a Watcher"),
    ],
)
def test_a_laboratory_that_makes_no_sense_is_refused(wrong: dict[str, Any], mentions: str) -> None:
    with pytest.raises(BadInput, match=re.escape(mentions)):
        keyspan.Lab(**wrong)


@pytest.mark.parametrize("dimension", ["16", None, 2.5, [16], 0, -3, True])
def test_a_dimension_that_is_none_is_refused(dimension: Any) -> None:
    with pytest.raises(BadInput, match="--dimension"):
        keyspan.calibrate(dimension)
    with pytest.raises(BadInput, match="--seeds"):
        keyspan.calibrate(4, seeds="many")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 3, b"w.safetensors", ["w.safetensors"]])
def test_a_path_that_is_none_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="`weights` must be the path of a file"):
        keyspan.certify(wrong)
    if wrong is not None:
        for name in ("graph", "embeddings"):
            with pytest.raises(BadInput, match=f"`{name}` must be the path of a file"):
                keyspan.certify(tmp_path / "w.safetensors", **{name: wrong})


def test_what_is_printed_is_what_the_result_says(tmp_path: Path) -> None:
    """`.to_dict()` is the JSON of the command line, head and all."""
    eye = np.eye(4)[:, :, None]
    edges = np.array([[i, (i + 1) % 4] for i in range(4)])
    path = tmp_path / "w.safetensors"
    write_weights(path, ChannelWeights(w_query=eye, w_key=eye[edges[:, 1]], bias=-0.5, embeddings=np.eye(4), edges=edges))
    cell = keyspan.Relations(items=13, d_model=11)
    asked = "--items 13 --d-model 11 --heads 1 --key-budgets 2 --seeds 1 --steps 20 --device cpu --jobs 1"
    answers: list[tuple[Any, str]] = [
        (keyspan.design(items=128, d_model=16), "design --items 128 --d-model 16"),
        (keyspan.certify(path), f"certify {path}"),
        (keyspan.measure(cell, heads=1, key_budgets=2, seeds=1, steps=20), f"measure relations {asked}"),
    ]
    for result, command in answers:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            assert main([*command.split(), "--json"]) == 0
        assert json.loads(json.dumps(result.to_dict())) | {"trained_now": 0} == json.loads(out.getvalue()) | {"trained_now": 0}
        assert result.to_dict()["schema"] == 1 and result.to_dict()["keyspan"] == keyspan.__version__


def test_what_cannot_be_measured_so_is_refused() -> None:
    with pytest.raises(BadInput, match="calibrate"):
        keyspan.measure(keyspan.Dichotomies(dimension=4, examples=8))  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="--jobs"):
        keyspan.measure(keyspan.Relations(items=16, d_model=16), lab=keyspan.Lab(jobs=0))


def test_the_example_of_the_docstring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, on a smaller cell; records go to `.keyspan` in the current folder."""
    assert keyspan.__doc__ is not None
    (example,) = re.findall(r"(?:^    .*\n|^\n)+", keyspan.__doc__, flags=re.MULTILINE)
    small = (
        textwrap.dedent(example).replace("128", "16").replace("32", "16").replace("seeds=3", "seeds=1, heads=[1], steps=300")
    )
    assert small.count("16") == 4 and "steps=300" in small
    monkeypatch.delenv("KEYSPAN_STORE")
    designed, measured = python(small, cwd=tmp_path).splitlines()
    assert "'construction': 16" in designed and re.fullmatch(r"\{'estimate': \d+, 'low': \d+, 'high': \d+\}", measured)
    assert (tmp_path / ".keyspan" / "store.db").exists()


# --- the examples --------------------------------------------------------------------------------------------------


def test_there_is_an_example_for_each_user() -> None:
    assert [path.stem for path in EXAMPLES] == ["architect", "auditor", "theorist"]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("theorist", [r"d_model +D_K\*", r"\n +24 +\d+ +\[\d+, \d+\] +\d+ +3\.2 +[01]\.\d\d +0\.\d\d\n"]),
        ("architect", [r"50,000 facts", r"heads x d_key \d+ = D_K \d+", r"the 43 relations of organisation\.csv, among 40"]),
        (
            "auditor",
            [
                r"2 heads x d_key 4, 16 edges on 16 items",
                r"exact True, F1 1\.000",
                r"at 2 bits: exact False",
                r"known to layer 1 head [23]: F1",
                r"the heads of layer 1 together: F1 1\.00",
            ],
        ),
    ],
)
def test_the_examples_run(name: str, expected: list[str], tmp_path: Path) -> None:
    path = ROOT / "examples" / f"{name}.py"
    out = python("import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')", str(path), cwd=tmp_path)
    for pattern in expected:
        assert re.search(pattern, out), (pattern, out)
    assert "None" not in out and list(tmp_path.iterdir()) == []  # nothing is left behind


def test_the_auditor_takes_a_file_of_the_user(tmp_path: Path) -> None:
    eye = np.eye(4)[:, :, None]
    edges = np.array([[i, (i + 1) % 4] for i in range(4)])
    weights = ChannelWeights(w_query=eye, w_key=eye[edges[:, 1]], bias=-0.5, embeddings=np.eye(4), edges=edges)
    write_weights(tmp_path / "mine.safetensors", weights)
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    out = python(code, str(ROOT / "examples" / "auditor.py"), str(tmp_path / "mine.safetensors"))
    assert "mine.safetensors: 4 heads x d_key 1, 4 edges on 4 items" in out and "margin 1.000" in out


def test_the_auditor_takes_a_checkpoint_of_the_user(tmp_path: Path) -> None:
    save(tmp_path / "mine", *llama())
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    out = python(code, str(ROOT / "examples" / "auditor.py"), str(tmp_path / "mine"))
    assert out.startswith("mine: a checkpoint of the family llama\n") and out.count("has a key budget of 32 and uses") == 3


def test_the_architect_takes_a_graph_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    out = python(code, str(ROOT / "examples" / "architect.py"), str(tmp_path / "mine.csv"))
    assert "the 3 relations of mine.csv, among 3 items" in out
