"""Whatever bytes a file holds, a reader reads them or raises `BadInput`, in little memory."""

import io
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.advice.made import llama, save

from keyspan.advice.audit import audit
from keyspan.advice.audit_relations import read_relation
from keyspan.advice.checkpoints.finding import plan
from keyspan.errors import BadInput
from keyspan.files import npy, safetensors
from keyspan.files.arrays import read_array
from keyspan.files.checkpoints import open_checkpoint
from keyspan.files.contents import Contents
from keyspan.files.graphs import read_graph
from keyspan.files.tokens import read_tokens
from keyspan.files.weights import read_weights

SHA = "0" * 64
ROOM = 8 * 2**20  # bytes a reader may take for a file of a few kilobytes


def read_every_tensor(path: Path) -> None:
    header = safetensors.read_header(path)
    for name in header.tensors:
        safetensors.read_tensor(path, name)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "csv": ("g.csv", read_graph),
    "txt": ("g.txt", read_graph),
    "csr": ("g.npz", read_graph),
    "coo": ("g.npz", read_graph),
    "npy": ("x.npy", read_array),
    "any-npy": ("x.npy", npy.read),
    "rows": ("x.safetensors", read_array),
    "tensors": ("x.safetensors", read_every_tensor),
    "weights": ("w.safetensors", read_weights),
    "table": ("t.tsv", lambda path: read_tokens(path, 2)),
    "ids": ("t.csv", lambda path: read_tokens(path, 2, "ids")),
    "text": ("t.md", lambda path: read_tokens(path, 3)),
    "contents": (f"{SHA}.npy", lambda path: Contents(path.parent).get(SHA)),
}


@cache
def good(kind: str) -> bytes:
    """A file that the reader accepts (but for its hash), to be damaged."""
    buffer = io.BytesIO()
    if kind in ("csv", "txt"):
        return b"\xef\xbb\xbfsource,target\n# x\n0,1\n2,3\n10,2147483647\n"
    if kind in ("table", "text"):
        return "\ufeffrome\tcapital\titaly\r\nné\tà\tParis\n".encode()
    if kind == "ids":
        return b"# x\n1,2,3\n7,2,1048575\n"
    if kind == "csr":
        parts = {"data": np.ones(3), "indices": np.array([1, 4, 2]), "indptr": np.array([0, 2, 2, 3, 3, 3])}
        np.savez(buffer, format=b"csr", shape=[5, 5], **parts)  # type: ignore[arg-type]
    elif kind == "coo":
        entries = {"data": np.ones(3), "row": np.array([0, 0, 2]), "col": np.array([1, 4, 2])}
        np.savez_compressed(buffer, format=b"coo", shape=[5, 5], **entries)  # type: ignore[arg-type]
    elif kind in ("npy", "any-npy", "contents"):
        np.save(buffer, np.arange(15, dtype=np.float32).reshape(3, 5))
    else:
        from safetensors.numpy import save

        w = np.arange(30.0).reshape(2, 5, 3)
        tensors = {"w_query": w, "w_key": w, "bias": np.array(0.5), "edges": np.array([[0, 1]])}
        return save(tensors | {"embeddings": np.ones((7, 5), dtype=np.float16)}, {"spec": "{}"})
    return buffer.getvalue()


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The file with some bytes changed, a piece taken out, put in or repeated, or its end cut."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 16))
        match draw(st.sampled_from(["change", "change", "digit", "cut", "insert", "repeat", "end"])):
            case "change":
                data[at : at + length] = draw(st.binary(min_size=length, max_size=length))
            case "digit":
                data[at : at + 1] = draw(st.sampled_from([b"9", b"0", b"-", b"99999", b".", b"[", b'"', b"\xff", b"\n"]))
            case "cut":
                del data[at : at + length]
            case "insert":
                data[at:at] = draw(st.binary(min_size=length, max_size=length))
            case "repeat":
                data[at:at] = data[at : at + length]
            case _:
                del data[at:]
    return bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_raise_anything_but_bad_input(folder: Path, kind: str, data: st.DataObject) -> None:
    name, read = READERS[kind]
    path = folder / name
    path.write_bytes(data.draw(st.one_of(damaged(good(kind)), damaged(good(kind)), st.binary(max_size=200))))
    tracemalloc.start()
    try:
        with suppress(BadInput):
            read(path)
    except BaseException:
        tracemalloc.stop()
        raise
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ROOM


@pytest.mark.parametrize("kind", READERS)
def test_the_undamaged_file_is_read(tmp_path: Path, kind: str) -> None:
    name, read = READERS[kind]
    path = tmp_path / name
    path.write_bytes(good(kind))
    if kind == "contents":
        with pytest.raises(BadInput, match="must match its name"):
            read(path)
    elif kind == "rows":
        assert read_array(f"{path}#embeddings").shape == (7, 5)
    else:
        read(path)


# --- folders of checkpoints ----------------------------------------------------------------------------------------

MAPPING = b"""
[model]
layers = "num_hidden_layers"
heads = 2
d_model = 8
[query]
weight = "model.layers.{layer}.self_attn.q_proj.weight"
[key]
weight = "model.layers.{layer}.self_attn.k_proj.weight"
[embeddings]
weight = "model.embed_tokens.weight"
[rotary]
width = 4
"""
SHARD = "model-00001-of-00002.safetensors"
PARTS = ("config.json", "model.safetensors.index.json", SHARD, "mapping.toml", "pairs.csv", "tokenizer.json")


def audited(folder: Path, part: str) -> None:
    """Audit the folder, by its mapping where that is at stake, or read its pairs where these are."""
    if part in ("pairs.csv", "tokenizer.json"):
        opened = open_checkpoint(folder)
        read_relation(opened, plan(opened), folder / "pairs.csv")
    else:
        audit(folder, mapping=folder / "mapping.toml" if part == "mapping.toml" else None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint in two shards, with a mapping, pairs of words and a vocabulary."""
    sizes: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    sizes |= {"vocab_size": 12, "num_hidden_layers": 1}
    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    save(folder, *llama(rope_scaling=rope, **sizes), shards=2)
    (folder / "mapping.toml").write_bytes(MAPPING)
    (folder / "pairs.csv").write_text("a,b\nc,d\nb,c\n")
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 3, "c": 5, "d": 11}}, "added_tokens": []}')
    return folder


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_to_a_checkpoint_raises_anything_but_bad_input(checkpoint: Path, part: str, data: st.DataObject) -> None:
    path = checkpoint / part
    whole = path.read_bytes()
    try:
        path.write_bytes(data.draw(st.one_of(damaged(whole), damaged(whole), st.binary(max_size=200))))
        tracemalloc.start()
        with suppress(BadInput):
            audited(checkpoint, part)
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 2 * ROOM
    finally:
        tracemalloc.stop()
        path.write_bytes(whole)


@pytest.mark.parametrize("part", PARTS)
def test_the_undamaged_checkpoint_is_audited(checkpoint: Path, part: str) -> None:
    audited(checkpoint, part)
