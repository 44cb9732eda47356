"""The rules of the house, and proof that each of them can be broken."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
MODULES = sorted((SOURCE / "keyspan").rglob("*.py"))
LINE_LIMIT = 400

# --- imports go one way --------------------------------------------------------------------------------------------


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of `root/pyproject.toml` on the package in `root/src`."""
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "NO_COLOR": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )


def broken_contracts(output: str) -> list[str]:
    return sorted(re.findall(r"^(.+?) BROKEN\b", output, flags=re.MULTILINE))


def test_import_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("room", "bad_import", "contract"),
    [
        ("problems", "keyspan.theory", "1. Rooms import downwards only"),
        ("runners", "keyspan.cli", "1. Rooms import downwards only"),
        ("attention", "keyspan.theory", "1. Rooms import downwards only"),
        ("lab", "keyspan.specs", "1b. Inside the lab, too"),  # an undeclared module of the lab
        ("theory", "keyspan.lab.fleet", "2. Theory and lab do not know each other"),
        ("lab", "keyspan.theory", "2. Theory and lab do not know each other"),
        ("theory", "torch", "3. No torch where nothing is trained"),
        ("advice/checkpoints", "torch", "3. No torch where nothing is trained"),
        ("views", "keyspan.lab.fleet", "3. No torch where nothing is trained"),  # through another module
        ("papers", "keyspan.views", "1. Rooms import downwards only"),
        ("papers", "keyspan.lab.fleet", "3. No torch where nothing is trained"),
    ],
)
def test_import_contracts_bite(tmp_path: Path, room: str, bad_import: str, contract: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src" / "keyspan" / room / "bad_example.py").write_text(f"import {bad_import}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert contract in broken_contracts(done.stdout), done.stdout


# --- one step loop -------------------------------------------------------------------------------------------------

Loop = ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def repeated_parts(loop: Loop) -> Iterator[ast.AST]:
    """The parts of a loop that run once per turn: not what a `for` iterates over, which is evaluated once."""
    match loop:
        case ast.For() | ast.AsyncFor():
            yield from loop.body
        case ast.While():
            yield loop.test
            yield from loop.body
        case _:
            yield from (part for part in ast.iter_child_nodes(loop) if not isinstance(part, ast.comprehension))
            for turn, generator in enumerate(loop.generators):
                yield from generator.ifs
                if turn > 0:
                    yield generator.iter


STEPS = ("value_and_grad", "advance")  # an instrument's, and a whole crew's


def is_step(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (isinstance(called, ast.Attribute) and called.attr in STEPS) or (isinstance(called, ast.Name) and called.id in STEPS)


def step_loops(source: str) -> list[int]:
    """The lines of the loops that take a step themselves; a loop around such a loop is not counted again."""
    lines = []
    for loop in ast.walk(ast.parse(source)):
        if isinstance(loop, Loop):
            inside = [node for part in repeated_parts(loop) for node in ast.walk(part)]
            inner = {step for node in inside if isinstance(node, Loop) for step in steps_of(node)}
            if steps_of(loop) - inner:
                lines.append(loop.lineno)
    return sorted(lines)


def steps_of(loop: Loop) -> set[ast.AST]:
    return {node for part in repeated_parts(loop) for node in ast.walk(part) if is_step(node)}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("value, grad = channel.value_and_grad(params, batch)", []),
        ("for step in range(9):\n    channel.value_and_grad(params, batch)", [1]),
        ("while value_and_grad(params)[0] > 0:\n    pass", [1]),
        ("while crew.runs:\n    crew.advance()", [1]),
        ("for part in value_and_grad(params):\n    print(part)", []),
        ("[c.value_and_grad(p) for p in params]", [1]),
        ("any(value_and_grad(p)[0] > 0 for p in params)", [1]),
        ("[x for x in value_and_grad(p)]", []),
        ("for phase in phases:\n    for step in phase:\n        if step:\n            c.value_and_grad(p)", [2]),
        ("for phase in phases:\n    value_and_grad(p)\n    for step in phase:\n        value_and_grad(p)", [1, 3]),
        ("for a in b:\n    pass\nelse:\n    value_and_grad(p)", []),
        ("for a in b:\n    c.value_and_grad", []),
        ("for a in b:\n    def f():\n        return c.value_and_grad(a)", [1]),
    ],
)
def test_step_loop_finder(source: str, lines: list[int]) -> None:
    assert step_loops(source) == lines


def test_there_is_one_step_loop() -> None:
    found = [module.relative_to(SOURCE).as_posix() for module in MODULES for _ in step_loops(module.read_text("utf-8"))]
    assert found == ["keyspan/lab/fleet.py"]


# --- heavy things live at the rim ----------------------------------------------------------------------------------

IMPORT_WALK = """
import importlib, pkgutil, sys

def walk(name):
    module = importlib.import_module(name)
    yield name
    for child in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if child.name != "__main__":
            yield from walk(f"{name}.{child.name}")
"""

WITHOUT_TORCH = [
    "keyspan",
    "keyspan.errors",
    "keyspan.seeds",
    "keyspan.specs",
    "keyspan.verdict",
    "keyspan.files",
    "keyspan.problems",
    "keyspan.theory",
    "keyspan.evidence",
    "keyspan.lab.search",
    "keyspan.advice.audit",
    "keyspan.advice.checkpoints",
    "keyspan.advice.design",
    "keyspan.papers",
    "keyspan.views",
    "keyspan.cli",
]
NUMPY_AND_TORCH_ONLY = [
    "keyspan.specs",
    "keyspan.seeds",
    "keyspan.verdict",
    "keyspan.problems",
    "keyspan.attention",
    "keyspan.theory",
    "keyspan.lab",
    "keyspan.bench",
    "keyspan.evidence.record",
]
RIM = ["sqlalchemy", "psycopg", "pydantic", "typer", "rich", "matplotlib", "ray"]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_torch_is_not_imported_where_nothing_is_trained() -> None:
    done = run_python(
        f"{IMPORT_WALK}\n"
        f"for room in {WITHOUT_TORCH!r}:\n"
        "    # the package itself is only its shop window; its rooms are walked by name\n"
        "    for name in [room] if room == 'keyspan' else walk(room):\n"
        "        importlib.import_module(name)\n"
        "        assert 'torch' not in sys.modules, f'{name} imports torch'\n"
    )
    assert done.returncode == 0, done.stderr


def blocked_walk(rooms: list[str], blocked: list[str]) -> subprocess.CompletedProcess[str]:
    return run_python(
        f"{IMPORT_WALK}\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked!r}:\n"
        "            raise ModuleNotFoundError(f'{name} is blocked', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        f"for room in {rooms!r}:\n"
        "    list(walk(room))\n"
    )


def test_the_core_needs_torch_and_numpy_only() -> None:
    done = blocked_walk(NUMPY_AND_TORCH_ONLY, RIM)
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks() -> None:
    done = blocked_walk(["keyspan.specs"], ["json"])
    assert done.returncode != 0
    assert "json is blocked" in done.stderr


# --- a module stays a room -----------------------------------------------------------------------------------------


def test_modules_stay_rooms() -> None:
    lengths = {module.relative_to(SOURCE).as_posix(): len(module.read_text("utf-8").splitlines()) for module in MODULES}
    assert MODULES
    assert {name: length for name, length in lengths.items() if length > LINE_LIMIT} == {}


# --- the pinned environment ----------------------------------------------------------------------------------------

NOT_PINNED = re.compile(r"keyspan|pip|setuptools|wheel|colorama|triton|nvidia-.*|cuda-.*")  # ours, pip's, or a platform's


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()]
    pairs = [line.split("==") for line in lines if line]
    assert all(len(pair) == 2 and re.fullmatch(r"[\w.!-]+", pair[1]) for pair in pairs), "name==version, nothing else"
    return {normalized(name): version for name, version in pairs}


def test_constraints_pin_the_environment() -> None:
    pinned = pins()
    assert pinned["torch"] == "2.13.0"
    if Path(sys.prefix).resolve() != ROOT / ".venv":
        return  # another environment than make's: its versions are its own affair
    here = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]  # Ray, once imported, shows what it carries along
    found = importlib.metadata.distributions(path=list(dict.fromkeys(here)))
    installed = {normalized(d.metadata["Name"]): d.version.partition("+")[0] for d in found}
    unpinned = {
        name: version for name, version in installed.items() if not NOT_PINNED.fullmatch(name) and pinned.get(name) != version
    }
    assert unpinned == {}
