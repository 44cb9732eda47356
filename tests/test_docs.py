"""The documents keep their word: what they show runs, what they name exists, what they link to is there.

A block of `sh` below the comment `<!-- runs in the tests -->` is run, line by line, in a folder of its own. In every other
block, verbs and options are looked up in the help, and what would train is tried with `--dry-run`. Every block of
`python` is run.
"""

import glob
import importlib
import inspect
import io
import json
import math
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.advice.made import llama, save
from tests.cli.asked import Oracle

from keyspan.cli import main
from keyspan.evidence.shipped import cells_of, rows_effect, shipped_law
from keyspan.runners import local
from keyspan.runners.questions import relations_question
from keyspan.studies.held_out import by_blocks, by_split, summary
from keyspan.theory.bounds import TRAINED_OVER_LAW

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CITATION.cff", ROOT / "zensical.toml"]
DRAWN = {DOCS / "figures" / "demo.svg"}  # made by `make demo`, not by hand

MARK = "<!-- runs in the tests -->"
TUTORIAL = "tutorial-"  # their blocks need those before: tests/test_tutorials.py runs them
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAME = re.compile(
    r"`((?:advice|attention|bench|evidence|files|lab|papers|problems|runners|seeds|specs|studies|theory|verdict|views)(?:\.\w+)+)"
)
MODULE = re.compile(r"`([\w/]+\.py)`")
FIELD_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)
# Absolute paths, and folders beside the repository, are of one machine and mean nothing to a reader.
FOREIGN = re.compile(r"(?<![\w.:/<>)}*#])/(?!/)\w|\.\./|\b[s]hared/")
QUICK = {  # where a section's own commands take long, or need more
    "audit": "keyspan audit model",
    "construct": "keyspan construct --items 16 --d-model 16 --method quiet",
    "bench": "keyspan bench --device cpu --case 16x8x2x4 --members 2 --rounds 1 --seconds 0.02 --workers 1 --no-growth",
    "calibrate": "keyspan calibrate --dimension 2 --seeds 10",
    "fit law": "keyspan fit law --from cells.csv",
    "fit ecm": "keyspan fit ecm --from decoders.csv",
    "predict ecm": "keyspan predict ecm --heads 2 --length 8 --d-model 12 --from decoders.csv",
    "measure sequences": "keyspan measure sequences --heads 1 --length 4 --d-model 4 --vocab 8 --steps 8 --seeds 1 --jobs 1",
    "reproduce": "keyspan reproduce adler:fig1",
    "sweep": "keyspan sweep law.toml",
    "measure labels": "keyspan measure labels --heads 2 --d-head 4 --context 4 --d-model 8 --recipe explicit --seeds 1",
    "measure relations": "keyspan measure relations --items 16 --d-model 16 --heads 1 --key-budgets 4 --seeds 1",
}


@dataclass(frozen=True)
class Block:
    """A fenced block. runs: marked to be run"""

    page: Path
    line: int
    language: str
    text: str
    runs: bool

    @property
    def lines(self) -> list[list[str]]:
        """The words of every line that holds a command."""
        words = [shlex.split(line, comments=True) for line in self.text.splitlines()]
        return [w for w in words if w]


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    fence: int | None = None
    lines = page.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("```") and fence is None:
            fence = number
        elif line == "```" and fence is not None:
            marked = lines[fence - 1].strip() == MARK
            found.append(Block(page, fence + 1, lines[fence][3:], "\n".join(lines[fence + 1 : number]), marked))
            fence = None
    assert fence is None, f"{page.name}:{fence} opens a block that nothing closes"
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(language: str, *, runs: bool | None = None) -> list[Any]:
    """Blocks of a language as parameters of a test."""
    chosen = [b for b in BLOCKS if b.language == language and (runs is None or b.runs == runs)]
    return [pytest.param(block, id=f"{block.page.name}:{block.line}") for block in chosen]


def keyspan(words: list[str]) -> tuple[int, str, str]:
    """Run a command line here. returns: exit code, standard output, standard error"""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a newcomer has it: no store, no variables."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("KEYSPAN_STORE")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))  # for workers: one that is relative would not survive `chdir`
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    return folder


# --- what they show runs -------------------------------------------------------------------------------------------


def run_line(words: list[str], folder: Path) -> str:
    """Run one line of a block. returns: its standard output"""
    words = [match for word in words for match in (sorted(glob.glob(word)) if "*" in word else [word])]
    if words[0] == "keyspan":
        code, out, err = keyspan(words[1:])
    else:
        assert words[:2] == ["python", "-m"], f"a block that runs has only keyspan and python -m, not {words[0]}"
        done = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    assert code == 0, f"{shlex.join(words)}\n{out}\n{err}"
    return out


@pytest.mark.parametrize("block", of("sh", runs=True))
def test_marked_blocks_run(block: Block, empty_folder: Path) -> None:
    for words in block.lines:
        out = run_line(words, empty_folder)
        if "--json" in words:
            assert json.loads(out)["schema"] == 1


@pytest.mark.parametrize("block", [p for p in of("python") if not p.values[0].page.name.startswith(TUTORIAL)])
def test_python_blocks_run(block: Block, empty_folder: Path) -> None:
    exec(compile(block.text, f"{block.page.name}:{block.line}", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", of("sh", runs=False))
def test_other_blocks_can_be_typed(block: Block, empty_folder: Path) -> None:
    for words in block.lines:
        if words[0] == "keyspan":
            check_command(words[1:])
        elif words[0] == "make":
            targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
            assert {w for w in words[1:] if "=" not in w} <= targets
        else:
            assert words[0] == "pip", f"nobody checks `{words[0]}`"


def check_command(words: list[str]) -> None:
    """Verb and options exist; what would train can be asked what it would cost, if it needs no file."""
    verb = words[: next((i for i, word in enumerate(words) if word.startswith("-")), len(words))]
    while verb:  # the words before the first option are the verb and its arguments
        code, out, _ = keyspan([*verb, "--help"])
        if code == 0 and f"Usage: keyspan {' '.join(verb)} " in out:
            break
        verb = verb[:-1]
    assert verb, f"`keyspan {' '.join(words)}` names no verb"
    known = set(OPTION.findall(out)) | set(OPTION.findall(keyspan(["--help"])[1]))
    asked = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert asked <= known, f"{' '.join(verb)} has no {sorted(asked - known)}"
    needs_file = any(word.endswith((".csv", ".npy", ".npz", ".safetensors")) for word in words)
    slow = "paper" in words or "--hand-out" in words  # thousands of members are counted, or a file is written
    if verb[0] in ("measure", "calibrate", "reproduce", "bench") and not needs_file and not slow:
        code, _, err = keyspan([*words, "--dry-run"])
        assert code == 0, err


def test_a_wrong_command_is_found(empty_folder: Path) -> None:
    check_command(["design", "--items", "8", "--d-model", "4"])
    with pytest.raises(AssertionError, match="names no verb"):
        check_command(["conquer", "--items", "8"])
    with pytest.raises(AssertionError, match="has no"):
        check_command(["design", "--itens", "8"])
    with pytest.raises(AssertionError, match="must divide"):
        check_command(["measure", "relations", "--items", "8", "--d-model", "4", "--heads", "3", "--key-budgets", "4"])


# --- the fields of the JSON ----------------------------------------------------------------------------------------


def sections_of(page: Path) -> dict[str, str]:
    """The text under every heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


WITH_FIELDS = {title: text for title, text in sections_of(DOCS / "commands.md").items() if "\n| field | is |" in text}


@pytest.mark.parametrize("title", WITH_FIELDS)
def test_fields_are_those_of_the_json(title: str, empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = WITH_FIELDS[title].split("\n| field | is |", 1)[1].split("\n\n", 1)[0]
    told = {name for cell in FIELD_ROW.findall(table) for name in re.findall(r"\w+", cell)}
    shown = [line for line in WITH_FIELDS[title].splitlines() if line.startswith(f"keyspan {title} ")]
    before = [line for line in WITH_FIELDS[title].splitlines() if line.startswith("keyspan measure ")]
    if title == "certify":
        run_line(shlex.split(before[0]), empty_folder)
    if title == "audit":
        save(empty_folder / "model", *llama())
    if title == "reproduce":
        monkeypatch.setattr("keyspan.runners.lab.LocalRunner", Oracle())  # a figure has too many members to train here
    grid = "[[grid]]\nitems = 16\nd_model = 16\nheads = [1]\nkey_budgets = [4]\nseeds = 1\n"
    (empty_folder / "law.toml").write_text(grid)
    (empty_folder / "cells.csv").write_text("items,d_model,key_budget\n128,32,24\n128,16,72\n512,64,48\n")
    decoders = [f"{h},{n},{b},{b * b // n}\n" for h in (1, 2) for n in (4, 8) for b in (8, 16)]
    (empty_folder / "decoders.csv").write_text("heads,length,d_model,capacity\n" + "".join(decoders))
    words = shlex.split(QUICK.get(title, shown[0]))
    given = json.loads(run_line([*words, "--json"], empty_folder))
    assert told == set(given) - {"schema", "keyspan"}


# --- what they name exists -----------------------------------------------------------------------------------------


def resolve(name: str) -> object:
    """`theory.bounds.law` -> the function."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["keyspan", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in NAME.findall(text):
        resolve(name)
    for module in MODULE.findall(text):
        base = ROOT if module.startswith("tests/") else ROOT / "src" / "keyspan"
        assert (base / module).is_file(), module


def test_calls_take_what_the_page_says() -> None:
    import keyspan as window

    page = (DOCS / "api.md").read_text("utf-8")
    for name, arguments in re.findall(r"^(?:\| )?`(\w+)\(([^`]*)\)`", page, flags=re.MULTILINE):
        taken = inspect.signature(getattr(window, name)).parameters.values()
        known = {f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in taken}
        assert set(arguments.split(", ")) <= known, f"{name} takes {sorted(known)}"


def test_every_formula_names_its_function() -> None:
    page = DOCS / "mathematics.md"
    rows = re.findall(r"^\| \[(.+)\]\(#.+\) \|.*\|(.*)\|$", page.read_text("utf-8"), flags=re.MULTILINE)
    assert [title for title, _ in rows] == [t for t in sections_of(page) if t not in ("Symbols", "Sources")]
    assert all(NAME.search(functions) for _, functions in rows)


# --- the numbers they repeat are those of the code -----------------------------------------------------------------


def said(page: str, pattern: str) -> list[tuple[str, ...]]:
    """The groups of a pattern wherever a page has it, line ends or not."""
    text = " ".join((DOCS / page).read_text("utf-8").split())
    return [match.groups() for match in re.finditer(pattern, text)]


def test_the_padding() -> None:
    from keyspan.attention.instrument import ALIGN

    assert said("identity.md", r"every other axis to a multiple of (\d+)\.") == [(str(ALIGN),)]


def test_what_trained_channels_needed() -> None:
    shares = [c.ratio for c in cells_of("fit", "held-out") if c.ratio is not None]
    plain = [c.ratio for c in cells_of("fit") if c.ratio is not None and c.graph == "permutation"]
    least, most = (f"{share:.2f}" for share in TRAINED_OVER_LAW)
    assert TRAINED_OVER_LAW[0] <= min(plain) + 0.005 and max(plain) <= TRAINED_OVER_LAW[1]
    pattern = r"needed (\S+) to (\S+) times the law \(.*?\), and down to (\S+) times for"
    assert said("mathematics.md", pattern) == [(least, most, f"{min(shares):.2f}")]
    assert said("limits.md", r"Trained channels needed (\S+) to (\S+) times as much") == [(least, most)]


def test_what_the_design_law_was_seen_to_keep() -> None:
    """The figures of docs/design-law.md against the study."""
    law, page = shipped_law(), "design-law.md"
    assert said(page, r"fitted to (\d+) cells of (\d+) sizes") == [(str(law.cells), str(law.sizes))]
    c, a, b = math.exp(law.theta[0]), 1 + law.theta[1], law.theta[2] / 4
    assert said(page, r"D_K = min over h of (\S+) G_h\^(\S+) \(1 \+ \(m / 2.5 d\)\^4\)\^(\S+)")[0] == (
        f"{c:.2f}",
        f"{a:.2f}",
        f"{b:.2f}",
    )
    for how, found in (("split", summary(by_split())), ("blocks", summary(by_blocks()))):
        ends = f"{found.covered:.0%} [{found.covered_low:.0%}, {found.covered_high:.0%}]"
        expected = (str(found.cells), ends, f"{found.error:.0%}", f"{found.mean_error:.1%}", f"{found.width:.2f}")
        assert said(page, rf"\| {how} \| (\d+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|") == [expected]
    effect = rows_effect()
    assert said(page, r"kappa = (\S+), and leaves a scatter of (\S+)%") == [
        (f"{effect.kappa:.2f}", f"{100 * effect.deviation:.0f}")
    ]


def test_the_defaults_of_the_options() -> None:
    """The table of `measure relations` against the question that is asked when nothing else is said."""
    from keyspan.problems.relations import Relations

    question = relations_question(Relations(items=16, d_model=16))
    assert said("commands.md", r"`--seeds N` \| instances per point, default (\d+)") == [(str(len(question.replicates)),)]
    options = said("commands.md", r"Default (\S+) and `(\w+)`; with the other recipes (\d+) and `(\w+)`: exact")
    other = relations_question(Relations(items=16, d_model=16), recipe="hinge")
    assert options == [(f"{question.target}", question.criterion, f"{other.target:.0f}", other.criterion)]
    steps = said("commands.md", r"`gradient` \(default\), (\d+) steps; \[`hinge`\]\(gradient-training.md\), at most (\d+),")
    assert steps == [(str(question.recipe.steps), str(other.recipe.steps))]  # type: ignore[attr-defined]
    solvers = [relations_question(Relations(items=16, d_model=16), recipe=name) for name in ("solver", "solver-fixed")]
    most = said("commands.md", r"\[`solver`, `solver-fixed`\]\(solver.md\), at most (\d+),")
    assert most == [(str(steps),) for steps in {q.recipe.steps for q in solvers}]  # type: ignore[attr-defined]
    assert {(q.target, q.criterion) for q in solvers} == {(other.target, other.criterion)}
    starts = said("commands.md", r"until one meets the target; default (\d+), with `solver` (\d+) \|")
    assert starts == [(str(question.starts), str(solvers[0].starts))] and solvers[1].starts == question.starts
    assert local.workers_on("cuda") == 1 and local.workers_on("cpu") == local.cores()
    jobs = r"`--jobs N` \| worker processes, default one a core, and one where members train on a GPU"
    assert said("commands.md", jobs) == [()]


# --- what they link to is there ------------------------------------------------------------------------------------


def anchors_of(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        there = target.is_file() or target in DRAWN
        if not there or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One title\n[a](page.md#one-title) [b](#two) ![c](none.svg) [d](https://example.org) [e](page.md)\n")
    assert broken_links(page) == ["#two", "none.svg"]


def listed(nav: list[Any]) -> list[str]:
    """The pages of a navigation, in its groups or not."""
    values = [value for entry in nav for value in entry.values()]
    return [page for value in values for page in (listed(value) if isinstance(value, list) else [value])]


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(listed(nav)) == sorted(page.name for page in DOCS.glob("*.md"))


# --- and they are for every reader ---------------------------------------------------------------------------------


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_no_path_of_one_machine(page: Path) -> None:
    found = [line for line in page.read_text("utf-8").splitlines() if FOREIGN.search(line)]
    assert found == []


@pytest.mark.parametrize("line", ["see /home/me/notes", "in `/opt/x`", "from ../beside/it", "(/srv/data)"])
def test_a_path_of_one_machine_is_found(line: str) -> None:
    assert FOREIGN.search(line)


@pytest.mark.parametrize(
    "line", ["m' ln m' / d", "src/keyspan/lab", "https://a.org/b/c", "`#/runs`", "W.csv, items/8", "|W|/|x|"]
)
def test_other_strokes_are_no_paths(line: str) -> None:
    assert not FOREIGN.search(line)
