"""`construct`: the smallest size of each method, the best of them, one size as given, files and refusals."""

from pathlib import Path

import pytest

import keyspan
from keyspan.advice.construct import construct
from keyspan.errors import BadInput, KeyspanError
from keyspan.evidence.store import open_store
from keyspan.problems import NoContents
from keyspan.runners.construct import carry_out, run_of
from keyspan.runners.construct_search import Found, search
from keyspan.theory.constructions import METHODS, plan

CELL = keyspan.Relations(items=64, d_model=32)
ONE_HOT = keyspan.Relations(items=29, d_model=31, embeddings=keyspan.embeddings.one_hot())


def found(
    cell: keyspan.Relations, names: tuple[str, ...], *, heads: int | None = None, d_key: int | None = None
) -> tuple[Found, ...]:
    instance = cell.instance(run_of(cell, 0, plan("trivial"), 1, 1).problem_id, NoContents())
    return search(cell, 0, names, instance, heads=heads, d_key=d_key)


def test_best_is_the_smallest_of_what_applies() -> None:
    result = construct(CELL)
    data = result.to_dict()
    assert [row["method"] for row in data["needed"]] == list(METHODS)
    budgets = {row["method"]: row["key_budget"] for row in data["needed"]}
    assert budgets["trivial"] == 64 and budgets["circle"] is None and budgets["binary-codes"] is None
    assert data["key_budget"] == min(b for b in budgets.values() if b is not None) == data["heads"] * data["d_key"]
    assert data["key_budget"] <= 8 and data["exact"] and data["f1"] == 1.0 and data["margin"] > 0
    assert budgets["quiet"] < budgets["trivial"]
    assert "items <= d_model" in next(row["note"] for row in data["needed"] if row["method"] == "circle")


def test_one_hot_items_need_a_circle() -> None:
    data = construct(ONE_HOT).to_dict()
    assert (data["method"], data["heads"], data["d_key"], data["proven"]) == ("circle", 1, 2, True)
    budgets = {row["method"]: row["key_budget"] for row in data["needed"]}
    assert budgets["binary-codes"] == 5 and budgets["random-signs"] >= 5


@pytest.mark.parametrize(("name", "heads"), [("quiet", 4), ("pinv+code", 16), ("repair", 2)])
def test_one_less_is_not_exact(name: str, heads: int) -> None:
    """The smallest d_key of a bisection at a fixed number of heads, against the judge there and one below."""
    (row,) = found(CELL, (name,), heads=heads)
    assert row.heads == heads and row.d_key is not None and row.plan is not None and row.tried > 0
    at = [carry_out(run_of(CELL, 0, row.plan, heads, k), NoContents()).verdict.exact for k in (row.d_key - 1, row.d_key)]
    assert at == [False, True]


def test_a_width_that_is_given_is_kept() -> None:
    (row,) = found(CELL, ("quiet",), d_key=7)
    assert row.d_key == 7 and row.key_budget == 7 * (row.heads or 0)


def test_one_size_is_judged_whatever_comes_out() -> None:
    data = construct(CELL, method="outer", heads=2, d_key=3).to_dict()
    assert not data["exact"] and 0 < data["f1"] < 1 and data["needed"] == []
    assert data["predicted"]["f1"] == pytest.approx(data["f1"], abs=0.2)
    best = construct(CELL, heads=2, d_key=9).to_dict()
    assert best["method"] == "repair" and best["exact"]


def test_nothing_found_is_said() -> None:
    with pytest.raises(KeyspanError, match=r"No exact construction.*outer: none below one head per edge"):
        construct(keyspan.Relations(items=64, d_model=8), method="outer", heads=2)


def test_the_record_and_the_weights_are_kept(tmp_path: Path, own_store: str) -> None:
    out = tmp_path / "w.safetensors"
    first = construct(CELL, method="quiet", heads=9, d_key=5, out=out)
    again = construct(CELL, method="quiet", heads=9, d_key=5)
    assert first.to_dict()["trained_now"] == 1 and again.to_dict()["trained_now"] == 0
    assert first.to_dict()["run_ids"] == again.to_dict()["run_ids"]
    certificate = keyspan.certify(out).to_dict()
    for name in ("exact", "f1", "f1_best", "threshold", "margin", "min_edge", "max_nonedge", "heads", "d_key", "key_budget"):
        assert certificate[name] == first.to_dict()[name], name
    with open_store(own_store, read_only=True) as store:
        (record,) = list(store.records())
    assert record.run["recipe"]["name"] == "quiet" and record.provenance["kernel"] == "construction"


def test_another_seed_is_another_instance() -> None:
    one, other = (construct(CELL, method="quiet", heads=9, d_key=5, seed=s).to_dict() for s in (0, 1))
    assert one["run_ids"] != other["run_ids"] and one["margin"] != other["margin"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "magic"}, "--method.*random-signs.*best.*'magic'"),
        ({"heads": 0}, "--heads.*got 0"),
        ({"heads": 2, "d_key": -1}, "--d-key.*got -1"),
        ({"heads": "two"}, "--heads.*'two'"),
        ({"out": "weights.npz"}, "--out.*safetensors.*'weights.npz'"),
        ({"out": "nowhere/w.safetensors"}, "--out.*folder that exists"),
        ({"out": 3}, "`out`.*got 3"),
        ({"seed": -1}, "seed.*got -1"),
        ({"method": "circle", "heads": 1, "d_key": 2}, "items <= d_model.*64 and 32"),
        ({"method": "best", "heads": 1, "d_key": 60}, ""),
    ],
)
def test_refusals(asked: dict[str, object], words: str) -> None:
    if not words:  # wider than d_model is allowed: the code has room for it
        assert construct(CELL, **asked).to_dict()["d_key"] == 60  # type: ignore[arg-type]
        return
    with pytest.raises(BadInput, match=words):
        construct(CELL, **asked)  # type: ignore[arg-type]


def test_only_relations_can_be_constructed() -> None:
    with pytest.raises(BadInput, match="`problem` must be Relations"):
        construct(keyspan.Dichotomies(dimension=3, examples=5))  # type: ignore[arg-type]
