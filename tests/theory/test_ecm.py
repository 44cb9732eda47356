"""The laws of the empirical capacity model as formulas, and the cheapest architecture by a law."""

from __future__ import annotations

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.decoders import Decoder, parameters
from keyspan.theory import ecm
from keyspan.theory.ecm import LAWS, architectures, cheapest, law_named, scale, sequence_bits

AT = architectures([(Decoder(heads=h, d_model=b), n) for h in (1, 2, 5) for n in (8, 32) for b in (8, 48)], 64, 2)


def test_bits_and_scales() -> None:
    assert sequence_bits(64, 16, 2) == 84.0
    decoder = Decoder(heads=2, d_model=16)
    assert scale(decoder, 64, 16, 84.0) == pytest.approx(2.2 * 5648 / 84) and parameters(decoder, 64, 16) == 5648


def test_the_published_law_by_hand() -> None:
    constants = np.array([100.0, 0.1, 1.0, 0.5, 2.0, 3.0, 4.0])
    one = architectures([(Decoder(heads=2, d_model=8), 16)], 64, 2)
    slope = 100.0 / (16**1.2 + 0.5) + 2.0
    assert law_named("ecm-max").curve(constants, one)[0] == pytest.approx(max(8 * slope, 10.0))
    assert law_named("ecm-min").curve(constants, one)[0] == pytest.approx(min(8 * slope, 10.0))
    assert law_named("linear").curve(constants[:5], one)[0] == pytest.approx(8 * slope)


def test_the_rival_has_56_constants() -> None:
    columns = law_named("poly-5").columns
    assert columns is not None and columns(AT).shape == (12, 56)
    assert ecm.polynomial(np.ones(56), AT) == pytest.approx(columns(AT).sum(axis=1))


def test_every_law_is_a_number_of_sequences_within_its_ranges() -> None:
    for law in LAWS:
        if law.columns is None:
            middle = np.array([np.sqrt(a * b) if kind == "log" else (a + b) / 2 for _, a, b, kind in law.constants])
            assert np.isfinite(law.curve(middle, AT)).all() and law.curve(middle, AT).shape == (12,)


def test_heads_add_to_what_a_parameter_holds() -> None:
    held = law_named("per-parameter-H").curve(np.array([2.0, 0.25]), AT) / AT.asked
    assert held == pytest.approx(2.0 * (1 - 0.25 / AT.heads))


def test_the_cheapest_holds_what_is_wanted_and_one_narrower_does_not() -> None:
    law = law_named("per-parameter-H")

    def predict(at: ecm.Architectures) -> ecm.Float:
        return law.curve(np.array([2.1, 0.25]), at)

    found = cheapest(predict, 500, lengths=(8, 16), heads=(1, 2, 4), budget=40_000)
    assert found == sorted(found, key=lambda c: (c.parameters, c.heads, c.length)) and len(found) == 6
    for choice in found:
        assert choice.capacity >= 500 and choice.parameters <= 40_000
        narrower = Decoder(heads=choice.heads, d_model=choice.d_model - 1)
        assert predict(architectures([(narrower, choice.length)], 64, 2))[0] < 500
    assert cheapest(predict, 500, lengths=(16,), budget=1000) == []


def test_what_makes_no_sense_is_refused() -> None:
    refused(lambda: law_named("nothing"), "a law in")
    refused(lambda: cheapest(lambda at: at.asked, 0, lengths=(8,)), "--capacity")
    refused(lambda: cheapest(lambda at: at.asked, 5, lengths=(2,)), "--length")
