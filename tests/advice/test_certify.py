"""Certificates of weights whose scores are known on paper, and of weights checked by brute force."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import keyspan
from keyspan.advice.certify import Certificate, certify
from keyspan.cli import main
from keyspan.errors import BadInput
from keyspan.files.weights import ChannelWeights, write_weights
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Edges = NDArray[np.int64]
ITEMS, D_MODEL = 7, 5
EDGES = np.array([[0, 1], [1, 1], [2, 6], [4, 0], [6, 2]])
SURFACE = ("exact", "f1", "f1_best", "threshold", "margin", "min_edge", "max_nonedge", "context_robust")


def rows(items: int = ITEMS, d_model: int = D_MODEL) -> Float:
    """Unit rows, no two alike."""
    x = Stream("p" + "0" * 24, "embeddings").normal((items, d_model))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def one_head_per_edge(x: Float, edges: Edges) -> tuple[Float, Float]:
    """Rank one each: head k scores (x_i . x_s)(x_j . x_t), which is 1 at its edge (s, t) and less elsewhere."""
    return x[edges[:, 0]][:, :, None].copy(), x[edges[:, 1]][:, :, None].copy()


def written(path: Path, edges: Edges | None = EDGES, x: Float | None = None, **changes: Any) -> Path:
    """A weights file of one head per edge, threshold halfway between the worst edge and the worst non-edge."""
    x = rows() if x is None else x
    w_query, w_key = one_head_per_edge(x, EDGES)
    scores = np.sort(brute_force(x, w_query, w_key).ravel())[::-1]
    bias = -float(scores[len(EDGES) - 1 : len(EDGES) + 1].mean())
    fields: dict[str, Any] = {"w_query": w_query, "w_key": w_key, "bias": bias, "embeddings": x, "edges": edges}
    write_weights(path, ChannelWeights(**(fields | changes)))
    return path


def brute_force(x: Float, w_query: Float, w_key: Float) -> Float:
    return np.asarray(np.einsum("id,hdk,jc,hck->hij", x, w_query, x, w_key, optimize=True).max(axis=0))


def by_hand(scores: Float, edges: Edges, threshold: float) -> dict[str, Any]:
    """What a certificate should say, by looking at every pair and every threshold."""
    truth = np.zeros(scores.shape, dtype=bool)
    truth[edges[:, 0], edges[:, 1]] = True

    def f1(said: NDArray[np.bool_]) -> float:
        return 2 * int((said & truth).sum()) / (int(said.sum()) + len(edges))

    said = scores > threshold
    return {
        "exact": bool((said == truth).all()),
        "f1": f1(said),
        "f1_best": max(f1(scores >= t) for t in np.unique(scores)),
        "margin": scores[truth].min() - scores[~truth].max(),
        "true_positives": int((said & truth).sum()),
        "false_positives": int((said & ~truth).sum()),
        "false_negatives": int((~said & truth).sum()),
    }


def agrees(certificate: Certificate, expected: dict[str, Any]) -> None:
    data = certificate.to_dict()
    for name, value in expected.items():
        assert data[name] == pytest.approx(value, abs=1e-12), name


# --- constructed weights -------------------------------------------------------------------------------------------


def test_one_head_per_edge_is_exact(tmp_path: Path) -> None:
    certificate = certify(written(tmp_path / "w.safetensors"))
    data = certificate.to_dict()
    assert data["exact"] is True and data["context_robust"] is True and data["f1"] == data["f1_best"] == 1.0
    assert data["min_edge"]["score"] >= 1.0 - 1e-12 and data["margin"] > 0.05
    assert (data["true_positives"], data["false_positives"], data["false_negatives"]) == (5, 0, 0)
    assert (data["heads"], data["d_key"], data["key_budget"], data["items"], data["edges"]) == (5, 1, 5, 7, 5)
    x = rows()
    agrees(certificate, by_hand(brute_force(x, *one_head_per_edge(x, EDGES)), EDGES, data["threshold"]))


def test_every_field_of_the_surface(tmp_path: Path) -> None:
    data = certify(written(tmp_path / "w.safetensors")).to_dict()
    kinds = {name: type(data[name]) for name in SURFACE}
    assert kinds == {
        "exact": bool,
        "f1": float,
        "f1_best": float,
        "threshold": float,
        "margin": float,
        "min_edge": dict,
        "max_nonedge": dict,
        "context_robust": bool,
    }
    for name in ("min_edge", "max_nonedge"):
        assert {key: type(value) for key, value in data[name].items()} == {"score": float, "source": int, "target": int}


def test_scores_known_on_paper(tmp_path: Path) -> None:
    """Orthonormal rows: an edge scores its head's weight, everything else 0."""
    strength = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    w_query, w_key = one_head_per_edge(np.eye(ITEMS), EDGES)
    w_query *= strength[:, None, None]
    path = written(tmp_path / "w.safetensors", x=np.eye(ITEMS), w_query=w_query, w_key=w_key, bias=-1.5)
    data = certify(path).to_dict()
    assert data["exact"] and data["threshold"] == 1.5 and data["margin"] == 2.0
    assert data["min_edge"] == {"score": 2.0, "source": 0, "target": 1}
    assert data["max_nonedge"]["score"] == 0.0
    high = certify(written(path, x=np.eye(ITEMS), w_query=w_query, w_key=w_key, bias=-5.0)).to_dict()
    assert not high["exact"] and not high["context_robust"] and high["f1_best"] == 1.0 and high["margin"] == 2.0
    assert (high["true_positives"], high["false_positives"], high["false_negatives"]) == (2, 0, 3)  # 5 is not above 5
    assert high["f1"] == 2 * 2 / (2 + 5) and 0 <= high["threshold_best"] <= 2


def test_weights_that_err(tmp_path: Path) -> None:
    """Random weights: all numbers against a look at every pair."""
    stream = Stream("w" + "1" * 24, "weights")
    w_query, w_key = stream.normal((3, D_MODEL, 2)), stream.normal((3, D_MODEL, 2))
    scores = brute_force(rows(), w_query, w_key)
    for bias in (-2.0, 0.0, 3.0):
        certificate = certify(written(tmp_path / "w.safetensors", w_query=w_query, w_key=w_key, bias=bias))
        agrees(certificate, by_hand(scores, EDGES, -bias))
        data = certificate.to_dict()
        truth = {(int(i), int(j)): scores[i, j] for i, j in EDGES}
        worst = min(truth, key=lambda pair: truth[pair])
        assert (data["min_edge"]["source"], data["min_edge"]["target"]) == worst
        others = {(i, j): scores[i, j] for i in range(ITEMS) for j in range(ITEMS) if (i, j) not in truth}
        best = max(others, key=lambda pair: others[pair])
        assert (data["max_nonedge"]["source"], data["max_nonedge"]["target"]) == best


def test_no_threshold_of_a_bias_of_zero_is_minus_zero(tmp_path: Path) -> None:
    data = certify(written(tmp_path / "w.safetensors", bias=0.0)).to_dict()
    assert str(data["threshold"]) == "0.0"


def test_a_graph_of_all_pairs_has_no_worst_non_edge(tmp_path: Path) -> None:
    every = np.array([[i, j] for i in range(ITEMS) for j in range(ITEMS)])
    data = certify(written(tmp_path / "w.safetensors", edges=every)).to_dict()
    assert data["max_nonedge"] is None and data["margin"] is None and data["f1_best"] == 1.0


# --- what is proven, and what follows from it ------------------------------------------------------------------------


def test_the_proof_brackets_the_scores(tmp_path: Path) -> None:
    data = certify(written(tmp_path / "w.safetensors")).to_dict()
    proof = data["proof"]
    assert data["proved"] is True and proof["exact"] is True and proof["separated"] is True
    for name in ("min_edge", "max_nonedge"):
        assert proof[name]["at_least"] <= data[name]["score"] <= proof[name]["at_most"]
        assert proof[name]["at_most"] - proof[name]["at_least"] < 1e-12
    assert 0 < data["margin"] - proof["gap"] < 1e-12 and sum(proof["tiles"].values()) == 1
    assert data["softmax"] is None and data["fewest_bits"] is None and data["bf16_exact"] is None


def test_the_relative_margin_knows_no_scale(tmp_path: Path) -> None:
    """Longer rows, and weights shared otherwise between the factors: the margin grows, its share does not."""
    w_query, w_key = one_head_per_edge(rows(), EDGES)
    plain = certify(written(tmp_path / "w.safetensors")).to_dict()
    other = written(tmp_path / "v.safetensors", x=2 * rows(), w_query=30 * w_query, w_key=w_key / 3, bias=-35.0)
    scaled = certify(other).to_dict()
    assert scaled["margin"] == pytest.approx(40 * plain["margin"]) and plain["margin"] / 2 == pytest.approx(
        plain["relative_margin"]
    )
    assert scaled["relative_margin"] == pytest.approx(plain["relative_margin"], rel=1e-9)
    wide = certify(
        written(tmp_path / "u.safetensors", w_query=np.ones((2, D_MODEL, 3)), w_key=np.ones((2, D_MODEL, 3)))
    ).to_dict()
    assert wide["relative_margin"] == pytest.approx(wide["margin"] / 2 / (3 * D_MODEL))  # |1 1^T 1 1^T|: the rank is one
    nothing = certify(written(tmp_path / "z.safetensors", w_query=0 * w_query)).to_dict()
    assert nothing["relative_margin"] is None and nothing["exact"] is False


@pytest.mark.parametrize("bias, exact, proved", [(-1.0, False, False), (-1.0 - 1e-9, False, True), (-1.0 + 1e-9, True, True)])
def test_a_score_at_the_threshold_is_not_proved(tmp_path: Path, bias: float, exact: bool, proved: bool) -> None:
    """Edges score 1. Computed, 1 is not above 1; but rounding might have made it so, and that is said."""
    w_query, w_key = one_head_per_edge(np.eye(ITEMS), EDGES)
    path = written(tmp_path / "w.safetensors", x=np.eye(ITEMS), w_query=w_query, w_key=w_key, bias=bias)
    data = certify(path).to_dict()
    assert (data["exact"], data["proved"]) == (exact, proved)


@pytest.mark.parametrize("context, eps", [(2, 0.1), (7, 0.01), (100_000, 1e-6)])
def test_softmax_temperatures_hold_on_the_channel(tmp_path: Path, context: int, eps: float) -> None:
    """All seven items are one context; a longer one is promised, too, but cannot be seen here."""
    data = certify(written(tmp_path / "w.safetensors"), context=context, eps=eps).to_dict()
    given = data["softmax"]
    assert given["context"] == context and given["eps"] == eps and given["heads"] == 5 and given["gap"] == data["proof"]["gap"]
    scores = brute_force(rows(), *one_head_per_edge(rows(), EDGES))
    mass = np.exp(given["aggregate_beta"] * (scores - scores.max(axis=1, keepdims=True)))
    mass /= mass.sum(axis=1, keepdims=True)
    if context >= ITEMS:
        assert mass[EDGES[:, 0], EDGES[:, 1]].min() >= 1 - eps - 1e-12
    assert given["aggregate_mass"] >= 1 - eps - 1e-12 and given["routed_error"] <= eps
    longer = certify(written(tmp_path / "v.safetensors"), context=2 * context, eps=eps).softmax
    assert longer is not None and longer.aggregate_beta >= given["aggregate_beta"]


def test_and_back_from_a_temperature_to_contexts(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors")
    there = certify(path, context=50, eps=0.01).softmax
    assert there is not None and certify(path, context=50).longest is None
    for beta, name in ((there.aggregate_beta, "aggregate"), (there.per_head_beta, "per_head")):
        back = certify(path, beta=beta * (1 + 1e-9), eps=0.01).to_dict()
        assert back["softmax"] is None and back["longest_contexts"][name] == 50
        assert certify(path, beta=beta * 0.99, eps=0.01).to_dict()["longest_contexts"][name] < 50
    cold = certify(path, beta=1e6).to_dict()["longest_contexts"]
    assert cold["aggregate"] is cold["per_head"] is None
    assert certify(path, beta=1e-6).to_dict()["longest_contexts"]["per_head"] == 0


def test_without_a_gap_no_temperature_is_certain(tmp_path: Path) -> None:
    stream = Stream("w" + "1" * 24, "weights")
    path = written(tmp_path / "w.safetensors", w_query=stream.normal((3, D_MODEL, 2)), w_key=stream.normal((3, D_MODEL, 2)))
    data = certify(path, context=7, precision=True).to_dict()
    assert data["softmax"] is None and data["proof"]["separated"] is False and data["proof"]["gap"] < 0
    assert data["fewest_bits"] is None and data["bf16_exact"] is False


def test_bits_are_those_of_the_weights(tmp_path: Path) -> None:
    data = certify(written(tmp_path / "w.safetensors"), precision=True).to_dict()
    assert 2 <= data["fewest_bits"] <= 8 and data["bf16_exact"] is True and data["fp16_exact"] is True
    assert {type(data[name]) for name in ("fp8_exact", "fp8_e5m2_exact")} == {bool}


@pytest.mark.parametrize(
    "asked, mentions",
    [
        ({"context": 0}, ("--context >= 1", "0")),
        ({"context": 2.5}, ("--context", "2.5")),
        ({"context": True}, ("--context", "True")),
        ({"eps": 0.0}, ("--eps", "0.0")),
        ({"eps": 1}, ("--eps", "1")),
        ({"eps": float("nan")}, ("--eps", "nan")),
        ({"eps": "0.1"}, ("--eps", "'0.1'")),
        ({"beta": 0.0}, ("--beta > 0", "0.0")),
        ({"beta": float("inf")}, ("--beta", "inf")),
        ({"beta": "1"}, ("--beta", "'1'")),
        ({"device": "tpu"}, ("--device", "tpu")),
    ],
    ids=str,
)
def test_what_cannot_be_asked(tmp_path: Path, asked: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refused:
        certify(tmp_path / "none.safetensors", **asked)  # said before the file is read
    assert all(word in str(refused.value) for word in mentions)


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("keyspan.advice.certify.MANY", 2)
    path = written(tmp_path / "w.safetensors")
    assert certify(path, device="auto") == certify(path, device="cpu")
    with pytest.raises(BadInput, match="CUDA device"):
        certify(path, device="cuda")


def test_a_reader_without_json_is_told_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "w.safetensors")
    assert main(["certify", str(path), "--context", "64", "--eps", "0.05", "--precision"]) == 0
    out, data = capsys.readouterr().out, certify(path, context=64, eps=0.05, precision=True).to_dict()
    assert "proved         yes" in out and f"{data['softmax']['aggregate_beta']:.4g}" in out
    assert str(data["proof"]["min_edge"]["at_least"]) in " ".join(out.split())
    assert f"{data['fewest_bits']} for each weight" in out and "among 64 keys" in " ".join(out.split())
    stream = Stream("w" + "1" * 24, "weights")
    none = written(tmp_path / "v.safetensors", w_query=stream.normal((3, D_MODEL, 2)), w_key=stream.normal((3, D_MODEL, 2)))
    for asked in (["--context", "64"], ["--beta", "9"]):
        assert main(["certify", str(none), *asked]) == 0
        assert "no temperature is certain" in capsys.readouterr().out
    assert main(["certify", str(path), "--context", "64", "--beta", "1e9"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "among 64 keys" in out and "certain up to any keys; per head, with a null key, up to any" in out


# --- files given beside the weights --------------------------------------------------------------------------------


def test_a_graph_beside_the_weights_is_the_one_that_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors")
    graph = tmp_path / "other.csv"
    graph.write_text("source,target\n" + "".join(f"{i},{j}\n" for i, j in EDGES[:3]) + "5,5\n")
    data = certify(path, graph=str(graph)).to_dict()
    assert not data["exact"] and data["edges"] == 4 and data["f1"] == 2 * 3 / (5 + 4)
    assert data["min_edge"]["source"] == data["min_edge"]["target"] == 5
    bare = written(tmp_path / "bare.safetensors", edges=None)
    assert certify(bare, graph=str(graph)).to_dict() == data


def test_item_vectors_beside_the_weights_are_the_ones_that_count(tmp_path: Path) -> None:
    path, order = written(tmp_path / "w.safetensors"), np.array([3, 0, 1, 2, 4, 5, 6])
    other = rows()[order]
    np.save(tmp_path / "rows.npy", other)
    certificate = certify(path, embeddings=str(tmp_path / "rows.npy"))
    threshold = certificate.to_dict()["threshold"]
    agrees(certificate, by_hand(brute_force(other, *one_head_per_edge(rows(), EDGES)), EDGES, threshold))
    assert not certificate.to_dict()["exact"]
    # the same vectors as one tensor of the file itself
    same = certify(path, embeddings=f"{path}#embeddings")
    assert same.to_dict() == certify(path).to_dict()


def test_more_items_than_were_trained_on(tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", np.concatenate([rows(), np.zeros((3, D_MODEL))]))
    data = certify(written(tmp_path / "w.safetensors"), embeddings=str(tmp_path / "more.npy")).to_dict()
    assert data["items"] == 10 and data["exact"]  # zeros score zero, below the threshold


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no `edges`\. Give --graph FILE"):
        certify(written(tmp_path / "w.safetensors", edges=None))
    with pytest.raises(BadInput, match=r"no `embeddings`\. Give --embeddings FILE"):
        certify(written(tmp_path / "w.safetensors", embeddings=None, edges=None), graph=str(_csv(tmp_path, "0,1\n")))


def _csv(folder: Path, text: str) -> Path:
    path = folder / "graph.csv"
    path.write_text(text)
    return path


def test_edges_to_items_that_are_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors")
    with pytest.raises(BadInput, match="got 7"):
        certify(path, graph=str(_csv(tmp_path, "0,7\n")))


def test_vectors_of_another_width_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors")
    np.save(tmp_path / "wide.npy", np.ones((ITEMS, 6)))
    with pytest.raises(BadInput) as refused:
        certify(path, embeddings=str(tmp_path / "wide.npy"))
    assert all(word in str(refused.value) for word in ("wide.npy", "5", "6"))


def test_scores_that_overflow_are_no_number(tmp_path: Path) -> None:
    huge = np.full((1, D_MODEL, 1), 1e200)
    with pytest.raises(BadInput, match=r"finite.*w\.safetensors"):
        certify(written(tmp_path / "w.safetensors", w_query=huge, w_key=huge, x=np.ones((ITEMS, D_MODEL))))


def test_the_shop_window_has_it(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors")
    assert keyspan.certify(path) == certify(str(path))


def test_whether_any_single_head_could_is_asked_for_and_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven items in five dimensions leave room for one head; eight in two do not, and files without room are refused."""
    path = written(tmp_path / "w.safetensors")
    assert certify(path).to_dict()["one_head"] is None
    found = certify(path, one_head=True).to_dict()["one_head"]
    assert found["held"] and not found["impossible"] and found["gap"] > 0 and found["gap_at_most"] is None
    x = rows(8, 2)
    edges = np.stack([np.arange(8), np.roll(np.arange(8), 3)], axis=1)
    few = written(tmp_path / "few.safetensors", edges, x, w_query=np.ones((1, 2, 1)), w_key=np.ones((1, 2, 1)))
    found = certify(few, one_head=True).to_dict()["one_head"]
    assert found["impossible"] and not found["held"] and 0 <= found["gap_at_most"] < 1e-9 and found["pairs"] > 8
    capsys.readouterr()
    assert main(["certify", str(few), "--one-head"]) == 0
    assert "none can hold the graph, whatever its width" in capsys.readouterr().out
    assert main(["certify", str(path), "--one-head"]) == 0
    assert "one holds the graph" in capsys.readouterr().out
    wide = rows(7, 25)
    wide_path = written(tmp_path / "wide.safetensors", EDGES, wide, w_query=np.ones((1, 25, 1)), w_key=np.ones((1, 25, 1)))
    with pytest.raises(BadInput, match="d_model <= 24"):
        certify(wide_path, one_head=True)
