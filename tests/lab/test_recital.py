"""Decoders in a fleet: their bits are their own, rides too; what rides do; what the judge says of a recital."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.decoder_contract import PLAIN, VARIANTS, named, run_of
from tests.lab.test_fleet import assert_company_does_not_matter, in_pieces, train

from keyspan.decoders import Decoder
from keyspan.lab import recipes
from keyspan.lab.recipes import Recipe
from keyspan.problems.shown import Ride

SIZES = [(7, 11, 5), (8, 16, 32), (15, 13, 9), (3, 5, 2)]


def riding(steps: int, batch: int = 5, start: int = 3, theta: float = 0.2) -> Recipe:
    base = recipes.saturated(20, steps, batch=batch)
    assert isinstance(base.show, Ride)
    return replace(base, show=replace(base.show, start=start, theta=theta))


@pytest.mark.parametrize("length, vocabulary, batch", SIZES)
@pytest.mark.parametrize("kind", ["draws", "ride"])
def test_a_decoder_has_its_own_bits_in_any_company(kind: str, length: int, vocabulary: int, batch: int) -> None:
    recipe = riding(20, batch, theta=0.9) if kind == "ride" else recipes.budgeted(20, batch=batch)
    runs = [
        run_of(Decoder(heads=3, d_model=5), seed, length=length, vocabulary=vocabulary, library=20 + seed, recipe=recipe)
        for seed in range(5)
    ]
    assert_company_does_not_matter(runs, f"{kind}{length}")


@pytest.mark.parametrize("decoder", VARIANTS, ids=named)
def test_every_variant_has_its_own_bits(decoder: Decoder) -> None:
    assert_company_does_not_matter([run_of(decoder, seed, steps=7) for seed in range(4)], named(decoder))


@pytest.mark.parametrize("recipe", [riding(20, theta=0.9), riding(20, theta=0.01), recipes.budgeted(20, batch=5)], ids=str)
@pytest.mark.parametrize("calls", [1, 6])
def test_interruptions_change_no_bit(recipe: Recipe, calls: int, tmp_path: Path) -> None:
    runs = [run_of(PLAIN, seed, recipe=recipe) for seed in range(3)]
    assert in_pieces(runs, tmp_path, itertools.repeat(calls, 500)) == train(runs)
