"""The audit's bench: checkpoints much larger than the memory that an audit of them takes."""

import json
from pathlib import Path

import pytest

from keyspan.advice.checkpoints.finding import plan
from keyspan.bench import audit
from keyspan.files.checkpoints import open_checkpoint

WIDE = audit.Shape(layers=6, d_model=256, heads=4, kv_heads=2, d_key=64, hidden=400_000, vocabulary=4000, shards=3)


def test_memory_is_a_layers_not_a_models(tmp_path: Path) -> None:
    """3.7 GB of files, mostly holes that nobody reads, in less than 250 MB, of which Python and NumPy take a good part."""
    found = audit.run(WIDE, tmp_path / "model")
    assert found["file_bytes"] > 3.6e9 and 2e7 < found["peak_bytes"] < 2.5e8
    assert found["key_budget"] == 6 * 4 * 64 and 0 < found["used"] < found["key_budget"]


def test_the_shapes_are_those_of_the_models(tmp_path: Path) -> None:
    count = {name: sum(_size(shape) for _, shape, _ in made.tensors()) for name, made in audit.SHAPES.items()}
    assert 6.7e9 < count["llama-7b"] < 6.8e9 and 7.2e9 < count["mistral-7b"] < 7.3e9
    small = audit.Shape(layers=2, d_model=8, heads=2, kv_heads=1, d_key=4, hidden=16, vocabulary=10, shards=2)
    size = audit.make(tmp_path, small)
    checkpoint = open_checkpoint(tmp_path)
    assert len(plan(checkpoint).layers) == 2 and size == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    query = checkpoint.read("model.layers.1.self_attn.q_proj.weight")
    assert query.any() and not checkpoint.read("lm_head.weight").any()


def _size(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = audit.Shape(layers=1, d_model=8, heads=2, kv_heads=2, d_key=4, hidden=16, vocabulary=10, shards=1)
    monkeypatch.setitem(audit.SHAPES, "tenth", small)
    assert audit.main([]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["shape"] == "tenth" and data["seconds"] >= 0 and data["peak_bytes"] > 1e6
