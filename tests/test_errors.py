"""Bad input in one line: whatever the value is, the line can be made, and it is short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyspan
from keyspan.errors import BadInput, require, shown

HUGE = 10**5000  # more digits than Python will print
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ANYTHING = st.recursive(
    SIMPLE | st.sampled_from(["huge", "-huge"]).map(lambda sign: HUGE if sign == "huge" else -HUGE),  # no repr of it
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ANYTHING)
def test_every_value_fits_a_line(value: Any) -> None:
    assert len(shown(value)) <= 60 and "\n" not in shown(value)
    with pytest.raises(BadInput) as caught:
        require(False, "the rule", value, "Fix it.")
    line = str(caught.value)
    assert line.startswith("the rule must hold, but got ") and line.endswith(". Fix it.")
    assert len(line) <= 240 and "\n" not in line


def test_short_values_are_shown_as_they_are() -> None:
    assert [shown(v) for v in (3, "a\tb", [1, None], np.float64(0.5))] == ["3", "'a\\tb'", "[1, None]", "np.float64(0.5)"]
    assert shown("x" * 100) == "'" + "x" * 50 + "..." + "x" * 5 + "'"
    assert shown(HUGE) == "a number of thousands of digits"


CELL = keyspan.Relations(items=16, d_model=16)
CALLS: dict[str, Callable[[Any], object]] = {
    "items": lambda n: keyspan.Relations(items=n, d_model=16),
    "d_model": lambda n: keyspan.Relations(items=16, d_model=n),
    "degree": lambda n: keyspan.Relations(items=16, d_model=16, graph=keyspan.graphs.regular(n)),
    "edges": lambda n: keyspan.Relations(items=16, d_model=16, graph=keyspan.graphs.erdos_renyi(n)),
    "exponent": lambda n: keyspan.graphs.power_law(3, exponent=n),
    "ones": lambda n: keyspan.Relations(items=16, d_model=16, embeddings=keyspan.embeddings.sparse(n)),
    "clusters": lambda n: keyspan.Relations(items=16, d_model=16, embeddings=keyspan.embeddings.clustered(n)),
    "correlation": lambda n: keyspan.Relations(items=16, d_model=16, embeddings=keyspan.embeddings.clustered(2, n)),
    "types": lambda n: keyspan.TypedRelations(items=16, d_model=16, types=n),
    "contexts": lambda n: keyspan.measure(CELL, contexts=n),
    "batches": lambda n: keyspan.measure(CELL, batches=n),
    "heads": lambda n: keyspan.measure(CELL, heads=[n]),
    "key_budgets": lambda n: keyspan.measure(CELL, key_budgets=[n]),
    "seeds": lambda n: keyspan.measure(CELL, seeds=n),
    "seed": lambda n: keyspan.measure(CELL, seed=n),
    "target": lambda n: keyspan.measure(CELL, target=n),
    "steps": lambda n: keyspan.measure(CELL, steps=n),
    "design items": lambda n: keyspan.design(items=n, d_model=16),
    "design d_model": lambda n: keyspan.design(items=16, d_model=n),
    "design edges": lambda n: keyspan.design(items=16, d_model=16, edges=n),
    "design target": lambda n: keyspan.design(items=16, d_model=16, target=n),
    "calibrate": lambda n: keyspan.calibrate(n),
    "calibrate seeds": lambda n: keyspan.calibrate(4, seeds=n),
    "fit target": lambda n: keyspan.fit(target=n),
    "fit source": lambda n: keyspan.fit(source=n),
    "reproduce": lambda n: keyspan.reproduce(n),
    "reproduce tier": lambda n: keyspan.reproduce("adler", tier=n),
    "reproduce out": lambda n: keyspan.reproduce("adler", out=n),
    "reproduce seed": lambda n: keyspan.reproduce("adler", seed=n),
    "store": lambda n: keyspan.open_store(n),
    "certify": lambda n: keyspan.certify(n),
}


@pytest.mark.parametrize("value", [HUGE, -HUGE, 10**400, {"a": HUGE}, b"x", 1j], ids=["huge", "-huge", "400", "{}", "b", "j"])
@pytest.mark.parametrize("name", CALLS)
def test_what_makes_no_sense_is_bad_input_and_nothing_else(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        CALLS[name](value)
    assert len(str(caught.value)) < 400
    assert list(tmp_path.iterdir()) == []


def test_a_folder_where_nothing_can_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for weights in (tmp_path / "file" / "w", "/proc/there", "a\0b"):
        with pytest.raises(BadInput, match="`--weights` must be where one can write"):
            keyspan.Lab(store=f"sqlite:///{tmp_path}/lab.db", weights=weights).answer([])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
