"""Bad input, kind by kind: exit code 2 and one line on stderr that says the rule, the value and the fix."""

import errno
import json
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.advice.made import llama, save
from tests.cli.asked import Oracle, Ran, ask, call

from keyspan.evidence.store import open_store

CELL = "measure relations --items 16 --d-model 16"
GOOD = {"w_query": np.ones((1, 4, 1)), "w_key": np.ones((1, 4, 1)), "bias": np.array(-0.5)}

# what is asked ({} is a folder of bad files)  ->  words that the line must have: the rule, the value, the fix
TABLE: dict[str, tuple[str, ...]] = {
    # sizes
    "measure relations --items 0 --d-model 16": ("--items >= 2", "got 0"),
    "measure relations --items -5 --d-model 16": ("--items >= 2", "got -5"),
    "measure relations --items 16 --d-model 0": ("--d-model >= 1", "got 0"),
    "measure relations --items 16 --d-model -3": ("--d-model >= 1", "got -3"),
    "measure relations --items 99999999999 --d-model 16": ("--items <= 16777216", "99999999999", "fewer"),
    "measure relations --items many --d-model 16": ("--items", "whole number", "'many'", "measure relations --help"),
    "measure relations --items=1.5 --d-model 16": ("--items", "whole number", "'1.5'"),
    "design --items 1 --d-model 16": ("--items >= 2", "got 1"),
    "design --items 16 --d-model 0": ("--d-model >= 1", "got 0"),
    "design --items 16 --d-model 99999999999": ("--d-model <= 16777216", "99999999999"),
    "calibrate --dimension 0": ("--dimension", "got 0", "Try 16"),
    "calibrate --dimension -1": ("--dimension", "got -1"),
    # heads and budgets
    f"{CELL} --heads 0": ("--heads >= 1", "got 0", "at least one"),
    f"{CELL} --heads -2,4": ("--heads >= 1", "got -2"),
    f"{CELL} --heads two": ("--heads", "'two'", "1,2,4"),
    f"{CELL} --heads 1,,2": ("--heads", "'1,,2'"),
    f"{CELL} --heads 3 --key-budgets 16": ("--heads", "heads=3", "key-budget=16", "15 or 18"),
    f"{CELL} --heads 20 --key-budgets 16": ("heads=20", "Nearest budgets: 20"),
    f"{CELL} --heads 99999999999999999999": ("--heads <= 16777216", "99999999999999999999", "fewer"),
    f"{CELL} --heads 2,16777217 --key-budgets 33554434": ("--heads <= 16777216", "got 16777217"),
    f"{CELL} --heads 2 --key-budgets 99999999999999999999": ("--key-budget <= 33554432", "with 2 heads", "fewer"),
    f"{CELL} --heads {'9' * 5000}": ("--heads", "whole numbers", "..."),
    f"{CELL} --seed {'9' * 5000}": ("--seed", "whole number", "..."),
    f"measure relations --d-model 16 --items {'9' * 400}": ("items", "64 bits", "999...999", "smaller"),
    f"measure relations --d-model 16 --items {'9' * 5000}": ("--items", "whole number", "..."),
    f"{CELL} --key-budgets 0": ("--key-budgets >= 1", "got 0"),
    f"{CELL} --key-budgets 3;4": ("--key-budgets", "'3;4'"),
    # names
    f"{CELL} --graph lattice": ("--graph", "permutation|functional", "'lattice'"),
    f"{CELL} --embeddings fourier": ("--embeddings", "one-hot|gaussian", "'fourier'"),
    f"{CELL} --criterion median": ("--criterion", "mean|all|any", "'median'"),
    f"{CELL} --threshold fixed": ("--threshold", "own|best", "'fixed'"),
    f"{CELL} --recipe newton": ("--recipe", "gradient|hinge|solver", "'newton'"),
    f"{CELL} --recipe solver --starts 0": ("--starts", "0"),
    f"{CELL} --recipe solver --contexts 8": ("--contexts", "gradient or hinge", "solver"),
    f"{CELL} --starts 1.5": ("--starts", "1.5"),
    f"{CELL} --device tpu": ("--device", "auto|cpu|cuda", "'tpu'"),
    "runs list --status lost": ("status", "measured|unconverged", "'lost'"),
    # numbers
    f"{CELL} --seeds 0": ("--seeds", "got 0", "Try 3"),
    f"{CELL} --seeds -1": ("--seeds", "got -1"),
    f"{CELL} --target 0": ("--target", "got 0.0", "0.99"),
    f"{CELL} --target 2": ("--target", "got 2.0"),
    f"{CELL} --target nan": ("--target", "got nan"),
    f"{CELL} --target high": ("--target", "a number", "'high'"),
    f"{CELL} --steps 0": ("--steps", "got 0", "2000"),
    f"{CELL} --jobs 0": ("--jobs >= 1", "got 0"),
    f"{CELL} --jobs 0 --dry-run": ("--jobs >= 1", "got 0"),
    f"{CELL} --seed -1": ("--seed", "got -1", "from 0"),
    f"{CELL} --seed 4294967296": ("--seed", "2^31", "4294967296"),
    f"{CELL} --seed one": ("--seed", "whole number", "'one'"),
    "design --items 16 --d-model 16 --target 0": ("--target", "got 0.0"),
    "calibrate --seeds 1": ("--seeds >= 10", "got 1"),
    "runs list --limit 0": ("--limit >= 1", "got 0"),
    # options that do not go together
    f"{CELL} --edges 20": ("permutation", "--edges", "20", "erdos-renyi"),
    f"{CELL} --graph erdos-renyi --edges 256": ("--edges < 256", "got 256"),
    f"{CELL} --graph erdos-renyi --edges 0": ("edges >= 1", "got 0"),
    f"{CELL} --degree 2": ("--degree", "regular|out-regular", "permutation"),
    f"{CELL} --graph regular --degree 9": ("--degree <= 8", "got 9", "Lower"),
    f"{CELL} --exponent 1": ("exponent", "power-law", "permutation"),
    f"{CELL} --graph power-law --exponent 99": ("exponent", "99"),
    f"{CELL} --graph power-law --exponent nan": ("exponent", "finite", "nan"),
    f"{CELL} --ones 3": ("ones", "sparse", "got 3"),
    f"{CELL} --embeddings sparse --ones 17": ("ones <= d_model", "ones=17"),
    f"{CELL} --types 1": ("--types >= 2", "got 1", "leave it out"),
    f"{CELL} --types 2 --heads 3": ("--types", "divides", "got 3", "Use 4 heads"),
    f"{CELL} --types 2 --sharing mine": ("--sharing", "partitioned|shared|leaning", "'mine'"),
    f"{CELL} --sharing shared": ("--sharing", "--types", "'shared'"),
    f"{CELL} --types 2 --contexts 5": ("--contexts", "--types", "Leave one out"),
    f"{CELL} --types 2 --graph {{}}/good.csv": ("--types", "a file"),
    f"{CELL} --contexts 17": ("--contexts <= 16", "got 17"),
    f"{CELL} --contexts 1": ("--contexts >= 2", "got 1"),
    f"{CELL} --batches 1": ("--batches >= 2", "got 1"),
    f"{CELL} --batches 17": ("--batches <= 16", "got 17"),
    f"{CELL} --batches 2 --contexts 4": ("--contexts", "--batches", "Choose one"),
    f"{CELL} --replay": ("--replay", "--batches"),
    f"{CELL} --clusters 3": ("clusters", "clustered", "got (3, None)"),
    f"{CELL} --embeddings clustered --clusters 17": ("clusters <= items", "clusters=17"),
    f"{CELL} --embeddings clustered --correlation 1": ("correlation < 1", "got 1.0"),
    f"{CELL} --embeddings {{}}/good.npy --correlation 0.5": ("--correlation", "left out", "0.5"),
    "measure relations --items 17 --d-model 16 --embeddings one-hot": ("one-hot", "items=17", "d_model=16", "Raise"),
    "measure relations --items 17 --d-model 4 --embeddings sign": ("2^d_model", "items=17"),
    f"{CELL} --graph {{}}/good.csv --edges 16": ("--edges", "left out", "16"),
    f"{CELL} --embeddings {{}}/good.npy --ones 2": ("--ones", "left out", "2"),
    "design --items 16 --d-model 16 --edges 20 --graph {}/good.csv": ("--edges", "both", "Drop"),
    "design --items 16 --d-model 16 --degree 3": ("--degree", "family", "got 3"),
    "design --items 16 --d-model 16 --edges 256": ("--edges < 256", "got 256"),
    # graph files
    f"{CELL} --graph {{}}/missing.csv": ("missing.csv", "exists"),
    f"{CELL} --graph {{}}": ("must be a file", "folder"),
    f"{CELL} --graph {{}}/empty.csv": ("empty.csv", "empty file"),
    f"{CELL} --graph {{}}/header.csv": ("header.csv", "at least one edge"),
    f"{CELL} --graph {{}}/ragged.csv": ("ragged.csv", "two fields", "got 3", "line 2"),
    f"{CELL} --graph {{}}/loops.csv --no-loops": ("--no-loops", "2,2"),
    f"{CELL} --graph {{}}/twice.csv": ("twice.csv", "(0, 1)", "lines 1 and 3", "Remove"),
    f"{CELL} --graph {{}}/range.csv": ("--items", "got 16", "--items 17"),
    f"{CELL} --graph {{}}/negative.csv": ("negative.csv", "'-2'", "line 2"),
    f"{CELL} --graph {{}}/words.csv": ("words.csv", "integers", "'c'"),
    f"{CELL} --graph {{}}/bytes.csv": ("bytes.csv", "text", "line 1"),
    f"{CELL} --graph {{}}/corrupt.npz": ("corrupt.npz", "npz"),
    "design --items 16 --d-model 16 --graph {}/ragged.csv": ("ragged.csv", "two fields"),
    # embedding files
    f"{CELL} --embeddings {{}}/missing.npy": ("missing.npy", "exists"),
    f"{CELL} --embeddings {{}}/rows.txt": (".npy or .safetensors", "rows.txt"),
    f"{CELL} --embeddings {{}}/nan.npy": ("nan.npy", "finite", "nan", "(3, 4)"),
    f"{CELL} --embeddings {{}}/narrow.npy": ("(16, 16)", "(16, 8)", "--d-model 8"),
    f"{CELL} --embeddings {{}}/line.npy": ("line.npy", "shape", "(16,)"),
    f"{CELL} --embeddings {{}}/complex.npy": ("complex.npy", "plain numbers", "c16"),
    f"{CELL} --embeddings {{}}/bool.npy": ("bool.npy", "numbers", "bool"),
    f"{CELL} --embeddings {{}}/object.npy": ("object.npy", "plain numbers", "O", "pickle"),
    f"{CELL} --embeddings {{}}/cut.npy": ("cut.npy", "cut or corrupt"),
    f"{CELL} --embeddings {{}}/corrupt.safetensors": ("corrupt.safetensors", "header"),
    f"{CELL} --embeddings {{}}/two.safetensors": ("two.safetensors", "one matrix", "#NAME"),
    f"{CELL} --embeddings {{}}/two.safetensors#c": ("two.safetensors", "'c'", "a, b"),
    # weights files
    "certify {}/missing.safetensors": ("missing.safetensors", "exists"),
    "certify {}": ("must be a file", "folder"),
    "certify {}/corrupt.safetensors": ("corrupt.safetensors", "header"),
    "certify {}/no-bias.safetensors": ("tensor `bias`", "w_key"),
    "certify {}/no-edges.safetensors": ("no `edges`", "--graph"),
    "certify {}/no-rows.safetensors": ("no `embeddings`", "--embeddings"),
    "certify {}/weights.safetensors --graph {}/range.csv": ("got 16",),
    "certify {}/weights.safetensors --embeddings {}/nan.npy": ("nan.npy", "finite"),
    "certify {}/weights.safetensors --embeddings {}/narrow.npy": ("8", "4"),
    # checkpoints
    "audit {}/nowhere": ("nowhere", "folder", "No such file"),
    "audit {}/rows.txt": ("rows.txt", "folder", "Not a directory"),
    "audit {}/none": ("config.json", "[]"),
    "audit": ("folder", "Missing", "keyspan audit --help"),
    "audit {}/model --relations {}/missing.csv": ("missing.csv", "exists"),
    "audit {}/model --relations {}/ragged.csv": ("ragged.csv", "two fields", "line 2"),
    "audit {}/model --relations {}/words.csv": ("words.csv", "token ids", "tokenizer.json"),
    "audit {}/model --relations {}/far.csv": ("far.csv", "below 64", "'99'"),
    "audit {}/model --mapping {}/missing.toml": ("missing.toml", "exists"),
    "audit {}/model --mapping {}/words.csv": ("words.csv", "TOML"),
    "audit {}/model --layers 3": ("--layers", "0 to 2", "got 3"),
    "audit {}/model --layers 2-1": ("--layers", "'2-1'", "0-3"),
    "audit {}/model --layers first": ("--layers", "'first'"),
    "audit {}/model --merge-loss 1": ("--merge-loss", "got 1.0"),
    "audit {}/model --merge-loss much": ("--merge-loss", "a number", "'much'"),
    "audit {}/model --reach 0": ("--reach", "got 0"),
    "audit {}/model --out {}/rows.txt": ("--out", "folder", "rows.txt"),
    "audit {}/model --out /proc/there": ("--out", "can write", "/proc/there"),
    "audit {}/model --dry-run": ("--dry-run", "`audit "),
    "audit {}/bad-json": ("config.json", "JSON"),
    "audit {}/bad-type": ("model_type", "'new'", "--mapping"),
    "audit {}/bad-heads": ("num_attention_heads", "'four'"),
    "audit {}/bad-shape": ("embed_tokens", "(any, 48)", "(64, 32)"),
    "audit {}/bad-index": ("model.safetensors.index.json", "weight_map"),
    "audit {}/bad-path": ("names of .safetensors beside it", "'../up.safetensors'"),
    "audit {}/bad-shard": ("gone.safetensors", "exists"),
    "audit {}/bad-header": ("model.safetensors", "header"),
    "audit {}/pickled": ("pytorch_model.bin", "unpickled"),
    # stores
    "--store sqlite:///{} runs list": ("must be a file", "folder"),
    f"--store sqlite:///{{}} {CELL}": ("must be a file", "folder"),
    "--store sqlite:///{}/text.db runs list": ("SQLite", "text.db", "--store"),
    f"--store sqlite:///{{}}/foreign.db {CELL}": ("keyspan made", "foreign.db"),
    f"--store sqlite:///{{}}/foreign.db {CELL} --dry-run": ("keyspan made", "foreign.db"),
    "--store sqlite:///{}/newer.db runs list": ("version", "newer.db", "newer keyspan"),
    f"--store sqlite:///{{}}/newer.db {CELL}": ("version", "newer.db", "newer keyspan"),
    f"--store sqlite:///{{}}/text.db/store.db {CELL}": ("folder", "store.db"),
    "--store oracle://me:secret@there/db runs list": ("SQLite file", "***"),
    "--store lab.db runs list": ("URL", "'lab.db'", "sqlite:///"),
    f"{CELL} --store": ("--store", "none"),
    "--store": ("--store", "none"),
    f"{CELL} --seed": ("--seed", "none"),
    f"{CELL} --criterion=": ("--criterion", "mean|all|any", "got ''"),
    f"{CELL} --threshold=": ("--threshold", "own|best", "got ''"),
    f"{CELL} --graph file": ("file", "a file that exists"),
    f"{CELL} --embeddings file": (".npy or .safetensors", "`file`"),
    "design --items 16 --d-model 16 --graph file": ("file", "a file that exists"),
    f"{CELL} --dry-run --weights {{}}/rows.txt": ("--weights", "rows.txt", "folder"),
    # a dry run of what trains nothing
    "runs remove r0 --dry-run": ("--dry-run", "measure|calibrate", "`runs remove`", "Drop it"),
    "--dry-run runs import {}/words.jsonl": ("--dry-run", "`runs import`"),
    "--dry-run runs list": ("--dry-run", "`runs list`"),
    "design --items 16 --d-model 16 --dry-run": ("--dry-run", "`design --items`"),
    "certify {}/weights.safetensors --dry-run": ("--dry-run", "`certify "),
    "doctor --dry-run": ("--dry-run", "`doctor`"),
    # verbs and what they are given
    "ponder": ("'ponder'", "keyspan --help"),
    "measure sequence": ("'sequence'", "keyspan measure --help"),
    "measure relations --d-model 16": ("--items", "Missing", "keyspan measure relations --help"),
    "--json=false runs list": ("--json", "alone", "'--json=false'", "Leave the value out"),
    f"{CELL} --quiet=1": ("--quiet", "alone", "'--quiet=1'"),
    f"{CELL} --dry-run=": ("--dry-run", "alone"),
    f"{CELL} --wat 3": ("--wat", "keyspan measure relations --help"),
    f"{CELL} more": ("more", "keyspan measure relations --help"),
    "runs show": ("run_id", "Missing", "keyspan runs show --help"),
    "runs show r0123": ("run id", "'r0123'", "keyspan runs list"),
    "runs remove r0123": ("run id", "'r0123'", "keyspan runs list"),
    # places to write to, and files of records
    f"{CELL} --figure {{}}": ("--figure", "folder", "Name a file"),
    f"{CELL} --figure {{}}/rows.txt/fig": ("--figure", "can write", "rows.txt", "Choose another"),
    f"{CELL} --figure /proc/there/fig": ("--figure", "can write", "/proc/there", "Choose another"),
    f"{CELL} --weights /proc/there": ("--weights", "can write", "/proc/there", "Choose another"),
    "reproduce adler:fig4 --out /proc/there": ("--out", "can write", "/proc/there", "Choose another"),
    f"{CELL} --weights {{}}/rows.txt": ("--weights", "rows.txt", "folder"),
    f"{CELL} --hand-out {{}}": ("--hand-out", "folder", "Name a file"),
    f"{CELL} --hand-out {{}}/rows.txt/q.jsonl": ("disk", "rows.txt", "Check the path"),
    "runs export {}/all.xlsx": (".jsonl, .csv", "all.xlsx", "ending"),
    "runs export {}": (".jsonl, .csv", "ending"),
    "runs import {}/rows.txt": (".jsonl", "rows.txt"),
    "runs import {}/none": ("*.jsonl", "none"),
    "runs import {}/missing.jsonl": ("missing.jsonl", "read"),
    "runs import {}/words.jsonl": ("words.jsonl:2", "JSON", "hello"),
    "runs import {}/unlike.jsonl": ("unlike.jsonl:1", "run_id"),
    "runs export {}/none/there/all.csv": ("all.csv", "write"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bad files of every kind, and a few good ones."""
    root = tmp_path_factory.mktemp("bad")
    texts = {
        "empty.csv": "",
        "header.csv": "source,target\n",
        "ragged.csv": "0,1\n1,2,3\n",
        "loops.csv": "0,1\n2,2\n",
        "twice.csv": "0,1\n1,2\n0,1\n",
        "range.csv": "0,1\n1,16\n",
        "negative.csv": "0,1\n1,-2\n",
        "words.csv": "a,b\nc,d\n",
        "good.csv": "".join(f"{i},{(i + 1) % 16}\n" for i in range(16)),
        "rows.txt": "1 2 3\n",
        "text.db": "hello " * 1000,
        "words.jsonl": "\nhello\n",
        "unlike.jsonl": '{"schema": 1}\n',
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "none").mkdir()
    (root / "bytes.csv").write_bytes(bytes(range(256)))
    (root / "corrupt.npz").write_bytes(b"PK\x03\x04 and then nothing of the kind")
    (root / "corrupt.safetensors").write_bytes(b"\xff" * 64)
    arrays = {
        "good": np.eye(16),
        "nan": np.where(np.arange(256).reshape(16, 16) == 52, np.nan, 1.0),
        "narrow": np.ones((16, 8)),
        "line": np.ones(16),
        "complex": np.ones((16, 16), dtype=np.complex128),
        "bool": np.ones((16, 16), dtype=np.bool_),
        "object": np.array([[1, None]], dtype=object),
    }
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    (root / "cut.npy").write_bytes((root / "good.npy").read_bytes()[:200])
    save_file({"a": np.eye(16), "b": np.eye(16)}, root / "two.safetensors")
    edges, rows = np.array([[0, 1]]), np.eye(4)
    save_file({k: v for k, v in GOOD.items() if k != "bias"}, root / "no-bias.safetensors")
    save_file(GOOD | {"embeddings": rows}, root / "no-edges.safetensors")
    save_file(GOOD | {"edges": edges}, root / "no-rows.safetensors")
    save_file(GOOD | {"edges": edges, "embeddings": rows}, root / "weights.safetensors")
    (root / "far.csv").write_text("0,99\n1,2\n")
    write_checkpoints(root)
    foreign = sqlite3.connect(root / "foreign.db")
    foreign.execute("CREATE TABLE cats (name TEXT)")
    foreign.close()
    open_store(f"sqlite:///{root / 'newer.db'}").close()
    newer = sqlite3.connect(root / "newer.db")
    newer.execute("INSERT INTO meta VALUES (99, 'keyspan', 'tomorrow')")
    newer.commit()
    newer.close()
    return root


def write_checkpoints(root: Path) -> None:
    """A good checkpoint, and some of which one thing is wrong."""
    config, tensors = llama()
    save(root / "model", config, tensors)
    changes: dict[str, dict[str, Any]] = {"bad-type": {"model_type": "new"}, "bad-shape": {"hidden_size": 48}}
    changes["bad-heads"] = {"num_attention_heads": "four"}
    for name, change in changes.items():
        save(root / name, config | change, tensors)
    for name in ("bad-json", "bad-index", "bad-path", "bad-shard", "bad-header"):
        save(root / name, config, tensors)
    (root / "bad-json" / "config.json").write_text('{"model_type": ')
    indices: dict[str, dict[str, str]] = {"bad-index": {}, "bad-path": {"a": "../up.safetensors"}}
    indices["bad-shard"] = dict.fromkeys(tensors, "gone.safetensors")
    for name, files in indices.items():
        (root / name / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (root / "bad-header" / "model.safetensors").write_bytes(b"\xff" * 64)
    (root / "pickled").mkdir()
    (root / "pickled" / "config.json").write_text(json.dumps(config))
    (root / "pickled" / "pytorch_model.bin").write_bytes(b"\x80\x04N.")


def check_line(ran: Ran, mentions: tuple[str, ...]) -> None:
    """One line on stderr and nothing else; it has the words, a value and a second sentence that says what to do."""
    assert ran.code == 2 and ran.out == "", ran
    assert ran.err.startswith("keyspan: ") and ran.err.endswith(".\n") and ran.err.count("\n") == 1, ran.err
    line = ran.err.rstrip("\n")
    assert len(line) < 400, line
    assert line.isprintable() and "Traceback" not in line and "Error(" not in line, line
    for word in mentions:
        assert word in line, (word, line)
    assert re.search(r" must | needs |^keyspan: (Missing|No such|Got unexpected)", line), line
    assert re.search(r"[^.]\. `?[A-Z`][^.]*.*\.$", line), f"says what to do? {line}"


def words(text: str, folder: Path) -> list[str]:
    return [word.replace("{}", str(folder)) for word in text.split()]


@pytest.mark.parametrize("text", TABLE, ids=lambda text: text[:90])
def test_bad_input(text: str, folder: Path, oracle: Oracle) -> None:
    check_line(ask(*words(text, folder)), TABLE[text])
    assert oracle.made == 0  # refused before anything was trained


@pytest.mark.parametrize(
    "text",
    [
        "measure relations --items 0 --d-model 16",
        f"{CELL} --graph {{}}/ragged.csv --json",
        "--store sqlite:///{}/newer.db runs list",
        f"{CELL} --wat",
    ],
)
def test_bad_input_to_a_real_process(text: str, folder: Path) -> None:
    check_line(call(*words(text, folder)), ())


def test_python_m_keyspan_is_the_same_command() -> None:
    ran = call("measure", "relations", "--items", "0", "--d-model", "4", command=[sys.executable, "-m", "keyspan"])
    check_line(ran, ("--items >= 2", "got 0"))


def test_an_empty_command_line_names_the_verbs(folder: Path) -> None:
    for argv in ([], ["measure"], ["runs"], ["fit"], ["--json"], ["--json", "runs"], ["--quiet", "measure"], ["--dry-run"]):
        known = {"measure": "relations", "runs": "list|show|export|log|records|import|merge|remove", "fit": "law"}
        verbs = known.get((argv or [""])[-1], "design|construct|certify|audit")
        check_line(ask(*argv), ("A verb must follow", verbs, "but got none", "--help"))
    assert "Usage: keyspan" in ask("--json", "--help").out  # help that was asked for is no error


def test_a_read_only_disk(tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is read-only, so the system's answer is put on."""

    def refuse(path: object, mode: int = 0o777) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    store = f"sqlite:///{tmp_path}/new/store.db"
    check_line(ask(*CELL.split(), "--store", store), ("folder", "store.db", "Read-only file system"))
    check_line(ask(*CELL.split(), "--hand-out", tmp_path / "new" / "q.jsonl"), ("disk", "Read-only file system", "rights"))
    rows = tmp_path / "rows.npy"
    np.save(rows, np.eye(16))
    check_line(ask(*CELL.split(), "--store", store, "--embeddings", rows), ("folder", "Read-only file system"))
    assert oracle.made == 0


def test_a_read_only_store(tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/lab.db"
    open_store(store).close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **how: connect(path.replace("mode=rwc", "mode=ro"), **how))
    check_line(ask(*CELL.split(), "--store", store), ("writable", "lab.db", "read-only", "--store"))
    assert oracle.made == 0


def test_weights_whose_scores_overflow(tmp_path: Path) -> None:
    huge = {"w_query": np.full((1, 4, 1), 1e200), "w_key": np.full((1, 4, 1), 1e200)}
    save_file(GOOD | huge | {"edges": np.array([[0, 1]]), "embeddings": np.eye(4)}, tmp_path / "w.safetensors")
    check_line(call("certify", tmp_path / "w.safetensors"), ("finite", "w.safetensors", "Scale"))


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cell = "measure relations --items 8 --d-model 8 --heads 1 --key-budgets 1 --seeds 1 --steps 1 --jobs 1"
    check_line(call(*cell.split(), "--device", "cuda"), ("--device cuda", "--device cpu"))
    check_line(call(*cell.split(), "--arithmetic", "bf16"), ("--arithmetic bf16", "a CPU", "Use fp32"))
    check_line(call(*cell.split(), "--arithmetic", "tf32", "--device", "cpu"), ("--arithmetic tf32", "a CPU"))


def test_a_huge_d_model() -> None:
    from keyspan.problems.relations import Relations

    with pytest.raises(ValueError, match="--d-model"):
        Relations(items=16, d_model=10**12)
