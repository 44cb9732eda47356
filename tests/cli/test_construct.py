"""`keyspan construct` on the command line: the surface's fields, the file, the table, one-line refusals."""

from pathlib import Path

from tests.cli.asked import ask, told

from keyspan.files.weights import read_weights

SURFACE = (
    "schema",
    "keyspan",
    "method",
    "heads",
    "d_key",
    "key_budget",
    "threshold",
    "margin",
    "f1",
    "exact",
    "seconds",
    "run_ids",
)
CELL = ("construct", "--items", "48", "--d-model", "24")


def test_fields_and_file(tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    data = told(*CELL, "--method", "quiet", "--out", out)
    assert set(SURFACE) <= set(data) and data["exact"] is True and data["path"] == str(out)
    assert [row["method"] for row in data["needed"]] == ["quiet"]
    weights = read_weights(out)
    assert weights.w_query.shape == (data["heads"], 24, data["d_key"]) and weights.threshold == data["threshold"]
    assert told("certify", out)["margin"] == data["margin"]
    assert told("runs", "show", data["run_ids"][0])["run"]["recipe"]["name"] == "quiet"


def test_the_same_seed_gives_the_same_weights() -> None:
    one, same, other = (told(*CELL, "--method", "pinv+code", "--heads", "16", "--d-key", "4", "--seed", s) for s in "001")
    assert one["margin"] == same["margin"] != other["margin"] and same["trained_now"] == 0


def test_a_table_for_a_reader() -> None:
    ran = ask("construct", "--items", "17", "--d-model", "19", "--embeddings", "one-hot", "--graph", "functional")
    assert ran.code == 0 and "circle: D_K 2 (sizes tried: 1" in ran.err
    assert "method     circle: 1 head x d_key 2 = D_K 2" in ran.out
    assert "exact      yes (proven, and computed)" in ran.out and "binary-codes" in ran.out


def test_a_graph_and_vectors_from_files(tmp_path: Path) -> None:
    made = told(*CELL, "--method", "trivial", "--out", tmp_path / "w.safetensors")
    assert made["proven"] and made["key_budget"] == 48
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n0,2\n5,2\n7,7\n")
    rows = f"{tmp_path / 'w.safetensors'}#embeddings"
    data = told(*CELL, "--graph", tmp_path / "edges.csv", "--embeddings", rows, "--method", "repair")
    assert data["exact"] and data["problem"]["graph"]["name"] == "file" and data["key_budget"] <= 4


def test_refusals_are_one_line() -> None:
    for words, said in (
        (["--method", "magic"], "--method"),
        (["--method", "circle"], "items <= d_model"),
        (["--heads", "0"], "--heads"),
        (["--out", "w.npy"], "--out"),
        (["--dry-run"], "--dry-run"),
    ):
        ran = ask(*CELL, *words)
        assert ran.code in (1, 2) and ran.out == "" and ran.err.count("\n") == 1
        assert ran.err.startswith("keyspan: ") and said in ran.err, ran
