"""`keyspan audit`: the same answer as from Python, readable tables, figures where asked for, no torch."""

import json
import sys
from pathlib import Path

import pytest
from tests.advice.made import llama, save
from tests.cli.asked import ask, call, told
from tests.cli.test_startup import WATCHED

from keyspan.advice.audit import audit


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "model", *llama(num_key_value_heads=2), shards=2)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text("".join(f"{i},{(i * 3 + 1) % 30}\n" for i in range(30)))
    return path


def test_the_json_is_the_answer(model: Path, pairs: Path) -> None:
    assert told("audit", model) == audit(model).to_dict()
    full = told("audit", model, "--relations", pairs, "--layers", "0,2", "--explain", "--spectra", "--seed", "3",
                "--merge-loss", "0.5", "--reach", "16")  # fmt: skip
    same = audit(model, relations=pairs, layers=[0, 2], explain=True, spectra=True, seed=3, merge_loss=0.5, reach=16)
    assert full == same.to_dict()


def test_layers_may_be_ranges(model: Path) -> None:
    for text, layers in (("0-2", [0, 1, 2]), ("2,0-1", [0, 1, 2]), ("1", [1]), (" 1 ", [1])):
        assert [layer["layer"] for layer in told("audit", model, "--layers", text)["layers"]] == layers


def test_the_tables(model: Path, pairs: Path) -> None:
    ran = ask("audit", model, "--relations", pairs, "--explain")
    assert ran.code == 0
    for words in (
        "layer -: token vectors = model.embed_tokens.weight (64, 32) F32\n",
        "layer 2: key = model.layers.2.self_attn.k_proj.weight (16, 32) F32; 2 heads of 8 from 0, 8 apart, out-in\n",
        "key budget has 96, uses",
        "capacity",
        "pairs      ",
        "no head recovers them above chance",
        "note       all dimensions of a head turn",
    ):
        assert words in ran.out, words
    assert "layer 3 of 3" in ran.err and ask("audit", model, "--quiet").err == ""
    assert "token vectors =" not in ask("audit", model).out


def test_found_heads_are_named(tmp_path: Path) -> None:
    config, tensors = llama()
    for side in ("q", "k"):  # head 2 of layer 1 scores every token with itself: its queries are its keys
        stored = tensors[f"model.layers.1.self_attn.{side}_proj.weight"]
        stored[16:24] = 5 * tensors["model.layers.0.self_attn.q_proj.weight"][16:24]
    (tmp_path / "pairs.csv").write_text("".join(f"{i},{i}\n" for i in range(40)))
    ran = ask("audit", save(tmp_path / "model", config, tensors), "--relations", tmp_path / "pairs.csv")
    assert ran.code == 0 and "found      layer 1 head 2: F1 " in ran.out


def test_figures_and_a_page(model: Path, tmp_path: Path) -> None:
    ran = ask("audit", model, "--out", tmp_path / "new" / "out", "--json")
    assert ran.code == 0 and "audit.html" in ran.err and ran.json["layers"][0]["spectrum"] is None
    assert (tmp_path / "new" / "out" / "audit.html").is_file() and (tmp_path / "new" / "out" / "audit-used.png").is_file()


def test_neither_torch_nor_matplotlib(model: Path) -> None:
    ran = call("audit", model, "--json", command=[sys.executable, "-c", WATCHED])
    data = json.loads(ran.out)
    assert data["code"] == 0 and not {"torch", "matplotlib", "networkx"} & set(data["heavy"]), ran
