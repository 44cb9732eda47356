"""How large a decoder recites so many sequences? By the empirical capacity model, as it was fitted to measured ones."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.runners.sequence_fits import predict_sequences
from keyspan.theory.bits import WEIGHT_BITS
from keyspan.theory.ecm import Choice, sequence_bits

MOST_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class SequenceDesign:
    """A decoder for C sequences of N tokens out of V.

    capacity: predicted of it    necessary_parameters: so many have the library's bits at 32 each (proven)    law: what
    predicted    alternatives: other decoders
    """

    sequences: float
    length: int
    vocabulary: int
    prompt: int
    heads: int
    d_model: int
    parameters: int
    bits: float
    bits_per_parameter: float
    capacity: dict[str, float]
    necessary_parameters: int
    basis: str
    law: dict[str, Any]
    alternatives: tuple[Choice, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan design --sequences`."""
        return head() | {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def design_sequences(
    *,
    sequences: float,
    length: int,
    vocabulary: int = 64,
    prompt: int = 2,
    budget: int | None = None,
    model: str | None = None,
    source: str | None = None,
    store: str | None = None,
) -> SequenceDesign:
    """Choose the decoder with the fewest parameters that is predicted to recite so many.

    budget: most parameters    model: a law (default: the best on unseen cells)    source, store: whose fit is asked (default:
    the command line's store, else what is shipped)
    """
    require(sequences > 0 and math.isfinite(sequences), "`--sequences > 0`", sequences, "Ask for at least one.")
    given: dict[str, Any] = {"length": length, "vocabulary": vocabulary, "prompt": prompt, "model": model}
    given |= {"source": source, "store": store}
    found = predict_sequences(capacity=sequences, budget=budget, **given)
    if not found.choices:
        rule = f"`--max-parameters` must leave room for {sequences:g} sequences"
        raise BadInput(f"{rule}, but got {budget}. Allow more, or hold fewer.")
    best = min(found.choices, key=lambda choice: choice.parameters)
    said = predict_sequences(heads=best.heads, d_model=best.d_model, **given)
    assert said.capacity is not None and said.parameters is not None
    stored = sequences * sequence_bits(vocabulary, length, prompt)
    outside = ", ".join(said.outside)
    return SequenceDesign(
        sequences=sequences,
        length=length,
        vocabulary=vocabulary,
        prompt=prompt,
        heads=best.heads,
        d_model=best.d_model,
        parameters=said.parameters,
        bits=stored,
        bits_per_parameter=stored / said.parameters,
        capacity=said.capacity,
        necessary_parameters=math.ceil(stored / WEIGHT_BITS["fp32"]),
        basis="law" if outside else "measured",
        law={"model": said.model, "regime": said.regime, "fit_id": said.fit_id, "source": said.source},
        alternatives=tuple(choice for choice in found.choices if choice != best)[:MOST_LISTED],
        notes=(f"outside the cells of the fit in: {outside}; the law is extrapolated",) if outside else (),
    )
