"""Weights of a channel: round trips, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file
from safetensors.torch import save_file as save_torch
from tests.files.refusals import label, refused

from keyspan.files import safetensors
from keyspan.files.weights import ChannelWeights, read_weights, write_weights

H, D, K, M = 2, 5, 3, 7  # heads, d_model, d_key, items: every size another prime
W = np.linspace(-1.0, 1.0, H * D * K).reshape(H, D, K)
X = np.linspace(0.0, 1.0, M * D).reshape(M, D)
GOOD: dict[str, Any] = {"w_query": W, "w_key": -W, "bias": np.array(-0.5)}


def numbers(width: int) -> st.SearchStrategy[float]:
    return st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), width=st.sampled_from([32, 64]), extras=st.booleans())
def test_round_trip(tmp_path: Path, data: st.DataObject, width: int, extras: bool) -> None:
    path = tmp_path / "w.safetensors"
    query, key = (data.draw(hnp.arrays(np.float64, (H, D, K), elements=numbers(width))) for _ in "qk")
    rows = data.draw(hnp.arrays(np.float64, (M, D), elements=numbers(width))) if extras else None
    weights = ChannelWeights(
        w_query=query,
        w_key=key,
        bias=data.draw(numbers(64)),
        embeddings=rows,
        edges=np.array([[6, 0], [0, 1]]) if extras else None,
        metadata={"spec": "{}", "version": "1"} if extras else {},
    )
    write_weights(path, weights)
    again = read_weights(path)
    assert again.w_query.tobytes() == query.tobytes() and again.w_key.tobytes() == key.tobytes()
    assert again.bias == weights.bias and again.threshold == -weights.bias
    assert (again.heads, again.d_model, again.d_key) == (H, D, K)
    assert again.metadata == weights.metadata
    if rows is None:
        assert again.embeddings is None and again.edges is None
    else:
        assert again.embeddings is not None and again.embeddings.tobytes() == rows.tobytes()
        assert again.edges is not None and again.edges.tolist() == [[0, 1], [6, 0]]


def test_the_file_is_narrow_when_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, ChannelWeights(w_query=W.astype(np.float32), w_key=W, bias=0.1))
    stored = load_file(path)
    assert stored["w_query"].dtype == np.float32 and stored["w_key"].dtype == np.float64
    assert stored["bias"].shape == () and float(stored["bias"]) == 0.1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_weights_of_torch(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    path = tmp_path / "w.safetensors"
    query = torch.tensor(W).to(dtype)
    save_torch({"w_query": query, "w_key": query * 2, "bias": torch.full(shape, -0.5, dtype=dtype)}, path)
    weights = read_weights(path)
    assert weights.w_query.dtype == np.float64 and weights.w_query.tolist() == query.double().tolist()
    assert weights.bias == -0.5 and weights.threshold == 0.5


def test_the_arrays_are_copies_and_read_only() -> None:
    mine = W.copy()
    weights = ChannelWeights(w_query=mine, w_key=mine, bias=0.0, edges=np.array([[3, 1], [0, 2]], dtype=np.int32))
    mine[0, 0, 0] = 99.0
    assert weights.w_query[0, 0, 0] == -1.0 and str(weights.threshold) == "0.0"
    assert weights.edges is not None and weights.edges.dtype == np.int64 and weights.edges.tolist() == [[0, 2], [3, 1]]
    with pytest.raises(ValueError, match="read-only"):
        weights.w_key[0, 0, 0] = 1.0


@pytest.mark.parametrize(
    "tensors, mentions",
    [
        ({"w_key": W, "bias": np.array(0.0)}, ("`w_query`", "['bias', 'w_key']")),
        ({"w_query": W, "bias": np.array(0.0)}, ("`w_key`",)),
        ({"w_query": W, "w_key": W}, ("`bias`",)),
        (GOOD | {"bias": np.zeros(2)}, ("`bias`", "(2,)", "one threshold")),
        (GOOD | {"bias": np.zeros(0)}, ("`bias`", "(0,)")),
        (GOOD | {"bias": np.array(1)}, ("`bias`", "int64")),
        (GOOD | {"bias": np.array(np.nan)}, ("`bias`", "finite", "nan")),
        (GOOD | {"w_key": W[:1]}, ("one shape", "(2, 5, 3)", "(1, 5, 3)")),
        (GOOD | {"w_key": W[0]}, ("`w_key`", "(heads, d_model, d_key)", "(5, 3)")),
        (GOOD | {"w_query": W[:, :, :0], "w_key": W[:, :, :0]}, ("`w_query`", "(2, 5, 0)")),
        (GOOD | {"w_query": np.where(W == 1.0, np.nan, W)}, ("`w_query`", "nan", "(1, 4, 2)")),
        (GOOD | {"w_key": np.where(W == -1.0, np.inf, W)}, ("`w_key`", "inf", "(0, 0, 0)")),
        (GOOD | {"w_query": W.astype(np.int64)}, ("`w_query`", "floats", "int64")),
        (GOOD | {"embeddings": X[:, :3]}, ("`embeddings`", "3 and d_model=5")),
        (GOOD | {"embeddings": X[0]}, ("`embeddings`", "(5,)", "(items, d_model)")),
        (GOOD | {"embeddings": np.where(X == 1.0, np.inf, X)}, ("`embeddings`", "finite")),
        (GOOD | {"edges": np.zeros((3, 3), dtype=np.int64)}, ("`edges`", "(3, 3)")),
        (GOOD | {"edges": np.array([[0.0, 1.0]])}, ("`edges`", "float64")),
        (GOOD | {"edges": np.array([[0, -1]])}, ("`edges`", "-1")),
        (GOOD | {"edges": np.array([[0, 1], [0, 1]])}, ("`edges`", "(0, 1)", "twice")),
        (GOOD | {"embeddings": X, "edges": np.array([[0, 7]])}, ("`edges`", "item 7 of 7")),
    ],
    ids=label,
)
def test_bad_weights_are_refused(tmp_path: Path, tensors: dict[str, Any], mentions: tuple[str, ...]) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.write(path, tensors)
    refused(lambda: read_weights(path), "w.safetensors", *mentions)
