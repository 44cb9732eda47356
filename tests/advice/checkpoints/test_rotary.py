"""Rotary positions: scores depend on the distance alone, averages are averages, both spellings of a config are read."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import label, refused

from keyspan.advice.checkpoints.gemma import _turning
from keyspan.advice.checkpoints.rotary import Rotary, rotary
from keyspan.advice.checkpoints.settings import Settings
from keyspan.seeds import Stream

D_KEY = 11


def some(pairs: str, start: int = 2, theta: float = 50.0, factor: float = 1.3) -> Rotary:
    frequencies = tuple(theta ** -(np.arange(0, 6, 2) / 6))
    return Rotary(start, frequencies, pairs, factor)  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_scores_depend_on_the_distance_alone(pairs: str) -> None:
    turning, draw = some(pairs), Stream("rotary", pairs)
    q, k = draw.normal((1, D_KEY)), draw.normal((1, D_KEY))
    for i, j in ((0, 0), (5, 5), (9, 4), (100, 95), (3, 8)):
        turned = turning.turned(q, np.array([i]))[0] @ turning.turned(k, np.array([j]))[0]
        assert turned == pytest.approx(float(q[0] @ turning.at(D_KEY, i - j) @ k[0]), abs=1e-12)
    still = [0, 1, 8, 9, 10]
    assert np.array_equal(turning.turned(q, np.array([7]))[:, still], q[:, still])


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_at_distance_zero_only_the_factor_is_left(pairs: str) -> None:
    between = some(pairs).at(D_KEY, 0)
    assert np.allclose(between, np.diag([1.0] * 2 + [1.3**2] * 6 + [1.0] * 3), atol=1e-15)


@given(reach=st.integers(1, 200), theta=st.floats(1.5, 1e6), pairs=st.sampled_from(["half", "interleaved"]))
def test_the_average_is_an_average(reach: int, theta: float, pairs: str) -> None:
    turning = some(pairs, theta=theta)
    mean = np.mean([turning.at(D_KEY, distance) for distance in range(reach)], axis=0)
    assert np.allclose(turning.average(D_KEY, reach), mean, atol=1e-9)


@pytest.mark.parametrize("frequency", [0.0, math.pi, 2 * math.pi, 1e-14])
def test_the_average_where_its_formula_is_zero_over_zero(frequency: float) -> None:
    turning = Rotary(0, (frequency,))
    for reach in (1, 2, 5):
        mean = np.mean([turning.at(2, distance) for distance in range(reach)], axis=0)
        assert np.allclose(turning.average(2, reach), mean, atol=1e-9)


@pytest.mark.parametrize(
    "old, new",
    [
        ({"rope_theta": 500.0}, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
        (
            {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
            {"max_position_embeddings": 256, "original_max_position_embeddings": 64, "rope_parameters": {"rope_type": "yarn"}},
        ),
        (
            {"rope_scaling": {"type": "su", "short_factor": [1.0, 1.5, 2.0], "long_factor": [1, 2, 3]},
             "max_position_embeddings": 256, "original_max_position_embeddings": 64},
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0], "factor": 4.0},
             "original_max_position_embeddings": 64},
        ),
    ],
)  # fmt: skip
def test_both_spellings_of_a_config(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert rotary(Settings(old), width=6) == rotary(Settings(new), width=6)


def test_gemma_3_turns_at_two_speeds_in_both_spellings() -> None:
    old = Settings({"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
    full, sliding = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, {"rope_type": "default", "rope_theta": 1e4}
    new = Settings({"rope_parameters": {"full_attention": full, "sliding_attention": sliding}})
    for slides in (False, True):
        assert _turning(old, "gemma3", 8, slides) == _turning(new, "gemma3", 8, slides)
    assert _turning(old, "gemma3", 8, True).theta == 1e4 and _turning(old, "gemma3", 8, False).kind == "linear"


@pytest.mark.parametrize(
    "config, width, mentions",
    [
        ({"rope_scaling": {"type": "spiral"}}, 6, ("rope_type", "'spiral'", "default|linear")),
        ({"rope_scaling": {"type": 3}}, 6, ("`type`", "a text")),
        ({"rope_scaling": [1]}, 6, ("rope_scaling", "a table")),
        ({"rope_theta": 1.0}, 6, ("rope_theta", "at least")),
        ({"rope_theta": "fast"}, 6, ("rope_theta", "'fast'")),
        ({"rope_theta": 10**400}, 6, ("rope_theta", "finite")),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, 6, ("factor", "at least")),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 0}}, 6, ("beta_fast",)),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, 6, ("short_factor", "3 numbers")),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0, 0, 1]}}, 6, ("short_factor", "above 0")),
        ({}, 5, ("pairs", "width 5")),
        ({}, 0, ("pairs", "width 0")),
    ],
    ids=label,
)
def test_bad_rules_are_refused(config: dict[str, Any], width: int, mentions: tuple[str, ...]) -> None:
    refused(lambda: rotary(Settings(config), width=width), "config.json", *mentions)
