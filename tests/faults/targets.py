"""Every reader of a file format, as a function of bytes: it reads them, or raises `BadInput`. Nothing else may come out.

A target has whole inputs to begin with, which are damaged, and words of its format, which are put in. Where a format has
an outer shell that hides what is inside (a zip with its checksums, a header with its length), there is a target for the
inside, too.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.advice.made import gpt2, llama, save

from keyspan.advice.checkpoints.finding import plan
from keyspan.errors import BadInput
from keyspan.evidence.record import Record, make_record
from keyspan.files import npy, safetensors
from keyspan.files.arrays import read_array
from keyspan.files.checkpoints import open_checkpoint
from keyspan.files.documents import parse_toml
from keyspan.files.graphs import read_graph
from keyspan.files.pairs import read_pairs
from keyspan.files.vocabularies import read_vocabulary
from keyspan.files.weights import read_weights
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.runners.grids import read_grids
from keyspan.runners.questions import relations_question
from keyspan.specs import Run, decode
from keyspan.verdict import Status, Verdict

SMALL: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 12}
SHARD = "model-00001-of-00002.safetensors"
SWEEP = b"""name = "x"
[defaults]
seeds = 2
[[grid]]
family = "relations"
heads = [1, 2]
each.items = [16, 24]
each.d_model = { from = 4, to = 16, times = 2 }
where = ["d_model <= items / 2", "law(items, d_model) > 2 and not items in [3]"]
[[grid]]
points = [{ dimension = 3 }, { dimension = 4 }]
family = "dichotomies"
"""


@dataclass(frozen=True)
class Target:
    """A reader. prepare: makes what it needs in a folder of its own, and says what reads bytes there"""

    prepare: Callable[[Path], Callable[[bytes], None]]
    whole: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def _file(name: str, read: Callable[[Path], object]) -> Callable[[Path], Callable[[bytes], None]]:
    """A reader of one file."""

    def prepare(folder: Path) -> Callable[[bytes], None]:
        path = folder / name

        def consume(data: bytes) -> None:
            path.write_bytes(data)
            with suppress(BadInput):
                read(path)

        return consume

    return prepare


def _inside(shell: Callable[[bytes], bytes], outer: Callable[[Path], Callable[[bytes], None]]) -> Any:
    """The same for what a shell hides."""

    def prepare(folder: Path) -> Callable[[bytes], None]:
        consume = outer(folder)
        return lambda data: consume(shell(data))

    return prepare


def _text(read: Callable[[bytes], object]) -> Callable[[Path], Callable[[bytes], None]]:
    """A reader of bytes."""

    def prepare(folder: Path) -> Callable[[bytes], None]:
        def consume(data: bytes) -> None:
            with suppress(BadInput):
                read(data)

        return consume

    return prepare


def _folder(name: str, config: dict[str, Any], tensors: Any, shards: int) -> Callable[[Path], Callable[[bytes], None]]:
    """A checkpoint, one file of which is at stake."""

    def prepare(folder: Path) -> Callable[[bytes], None]:
        home = folder / "model"
        save(home, config, tensors, shards=shards)
        inside = home.resolve()
        (folder / "outside.safetensors").write_bytes((home / (SHARD if shards > 1 else "model.safetensors")).read_bytes())

        def consume(data: bytes) -> None:
            (home / name).write_bytes(data)
            with suppress(BadInput):
                opened = open_checkpoint(home)
                assert all((home / file).resolve().parent == inside for file in opened.files.values()), "out of the folder"
                read_vocabulary(home)
                plan(opened)

        return consume

    return prepare


def read_spec(data: bytes) -> None:
    """A spec from JSON: its ids, and back again."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return  # the JSON of the standard library is not at stake
    spec = decode(parsed)
    if isinstance(spec, Run):
        assert Run.from_json(spec.to_json()).run_id == spec.run_id


def read_sweep_text(data: bytes) -> None:
    """A sweep's file, with its grids and conditions."""
    document = parse_toml(data, "x.toml")
    read_grids(document, "x.toml")


def read_record(data: bytes) -> None:
    """A line of an export."""
    with suppress(UnicodeDecodeError):
        Record.from_line(data.decode())


def every_tensor(path: Path) -> None:
    """A safetensors file, header and tensors."""
    for name in safetensors.read_header(path).tensors:
        safetensors.read_tensor(path, name)


def with_length(header: bytes) -> bytes:
    """A safetensors file of this header: the length before it is right, and as much data lies behind it as it declares."""
    size = 256
    with suppress(ValueError, RecursionError, AttributeError, TypeError, KeyError, IndexError, OverflowError):
        ends = [entry["data_offsets"][-1] for name, entry in json.loads(header).items() if name != "__metadata__"]
        size = max(0, min(4096, int(max(ends))))
    return struct.pack("<Q", len(header)) + header + bytes(size)


def zipped(data: bytes) -> bytes:
    """An npz whose arrays have this content, cut in four at a word that no array has; checksums are right."""
    buffer, names = io.BytesIO(), ("data.npy", "indices.npy", "indptr.npy", "shape.npy")
    parts = (data.split(b"\0CUT\0", 3) + [b""] * 4)[:4]
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in zip(names, parts, strict=True):
            archive.writestr(name, part)
        archive.writestr("format.npy", _npy(np.array(b"csr")))
    return buffer.getvalue()


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _npz(compressed: bool, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def _tensors() -> bytes:
    from safetensors.numpy import save as official

    w = np.arange(12.0).reshape(1, 4, 3)
    tensors = {"w_query": w, "w_key": w, "bias": np.array(0.5), "edges": np.array([[0, 1]])}
    return bytes(official(tensors | {"embeddings": np.ones((5, 4), dtype=np.float16)}, {"spec": "{}"}))


def _header(data: bytes) -> bytes:
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


def _run() -> Run:
    question = relations_question(Relations(items=9, d_model=4), heads=[2], key_budgets=[4], seeds=1)
    return next(iter(question.runs(question.arms[0], 4)))


def _record() -> bytes:
    verdict = Verdict(status=Status.MEASURED, exact=False, scores={"f1": 0.5, "margin": -0.25})
    return make_record(_run(), verdict, steps=7, seconds=0.5, device="cpu").to_line().encode()


def _config(made: tuple[dict[str, Any], Any]) -> bytes:
    return _json(made[0])


ARRAYS = {"data": np.ones(3), "indices": np.array([1, 4, 2]), "indptr": np.array([0, 2, 2, 3, 3, 3]), "shape": np.array([5, 5])}
ROPE = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
LLAMA = llama(num_hidden_layers=1, rope_scaling=ROPE, **SMALL)
GPT2 = gpt2(n_embd=8, n_layer=1, n_head=2, n_positions=4, vocab_size=6)
INDEX = {"weight_map": dict.fromkeys(LLAMA[1], SHARD)}
NUMBERS = (b"0", b"-1", b"9223372036854775807", b"1e308", b"NaN", b"null", b"99999999999999999999", b"true", b"[]", b"{}")
TOML_WORDS = (
    b"[[grid]]",
    b"each.",
    b"from = ",
    b"to = ",
    b"step = ",
    b"times = ",
    b"where = ",
    b"law(",
    b" and ",
    b"**",
    b"'''",
)
PATHS = (b"../", b"/etc/passwd", b"..\\", b"\\u0000", b"%2e%2e", b"outside.safetensors", b".safetensors")

TARGETS: dict[str, Target] = {
    "spec": Target(
        _text(read_spec),
        (
            _json(_run().to_json()),
            _json(Dichotomies(examples=4, dimension=3).to_json()),
            _json(relations_question(Relations(items=9, d_model=4), heads=[2], key_budgets=[4, 8], seeds=2).to_json()),
        ),
        (*NUMBERS, b'"family"', b'"version"', b'"problem"', b'"gaussian"'),
    ),
    "record": Target(_text(read_record), (_record(),), (*NUMBERS, b'"verdict"', b'"scores"', b'"run"')),
    "sweep.toml": Target(_text(read_sweep_text), (SWEEP,), (*NUMBERS, *TOML_WORDS)),
    "graph.csv": Target(
        _file("g.csv", read_graph), (b"source,target\n# x\n0,1\n2,3\n10,2147483647\n", b"\xef\xbb\xbf0\t1\n"), NUMBERS
    ),
    "pairs.csv": Target(_file("p.csv", read_pairs), (b'a,b\n"c,d",e\n', b"1\t2\n"), (b'"', b"\t", b"\r\n", b"\0")),
    "graph.npz": Target(
        _file("g.npz", read_graph),
        (_npz(False, format=np.array(b"csr"), **ARRAYS), _npz(True, format=np.array(b"csr"), **ARRAYS)),
        (b"PK\x03\x04", b"PK\x01\x02", b"\xff\xff\xff\xff", b"csr", b"coo", b"bsr"),
    ),
    "graph.npz, inside": Target(
        _inside(zipped, _file("g.npz", read_graph)),
        (b"\0CUT\0".join(_npy(ARRAYS[k]) for k in ("data", "indices", "indptr", "shape")),),
        (b"\0CUT\0", b"\x93NUMPY", b"'<f8'", b"'|O'", b"(5,)", b"(99999999999,)", b"True"),
    ),
    "rows.npy": Target(
        _file("x.npy", read_array),
        (_npy(np.arange(15, dtype=np.float32).reshape(3, 5)), _npy(np.ones(3, dtype=">f8"))),
        (b"\x93NUMPY", b"'<f8'", b"'|O'", b"'<U9'", b"(3, 5)", b"(999999999999, 9)", b"True"),
    ),
    "any.npy": Target(_file("x.npy", npy.read), (_npy(np.arange(6).reshape(2, 3)),), (b"'|V8'", b"'<M8[ns]'", b"()")),
    "safetensors": Target(_file("x.safetensors", every_tensor), (_tensors(),), (b'"dtype"', b'"F64"', *NUMBERS)),
    "safetensors, header": Target(
        _inside(with_length, _file("x.safetensors", every_tensor)),
        (_header(_tensors()), b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'),
        (b'"dtype"', b'"shape"', b'"data_offsets"', b'"F8_E4M3"', b"[0,8]", b"[4294967296,4294967296]", *NUMBERS),
    ),
    "weights": Target(
        _inside(with_length, _file("w.safetensors", read_weights)), (_header(_tensors()),), (b'"w_key"', *NUMBERS)
    ),
    "config.json": Target(
        _folder("config.json", *LLAMA, 1), (_config(LLAMA), _config(GPT2)), (*NUMBERS, b'"llama"', b'"gemma3"')
    ),
    "config.json, GPT-2": Target(_folder("config.json", *GPT2, 1), (_config(GPT2),), (*NUMBERS, b'"n_head"', b'"text_config"')),
    "index.json": Target(_folder("model.safetensors.index.json", *LLAMA, 2), (_json(INDEX),), (*PATHS, *NUMBERS)),
    "tokenizer.json": Target(
        _folder("tokenizer.json", *LLAMA, 1),
        (b'{"model": {"vocab": {"a": 0, "b": 3}}, "added_tokens": [{"content": "c", "id": 4}]}',),
        (*NUMBERS, b'"vocab"', b'"added_tokens"', b'"id"'),
    ),
}
