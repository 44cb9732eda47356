"""The verdict of a decoder on a library: what it recites, and how many bits of the library it holds. float64, by the reference.

One pass that is shown the true tokens decides recital exactly: if every token after the prompt scores highest given the
true ones before it, greedy reading from the prompt meets these very tokens, by induction; and if some token does not, greedy
reading differs there at the latest. A tie is no recital.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyspan.attention.reference_decoder import logits, surprises
from keyspan.decoders import Decoder, layout
from keyspan.errors import require
from keyspan.problems.sequences import SequenceInstance
from keyspan.verdict import Status, Verdict

NUMBERS = 1 << 23  # in the largest array of a tile
NEARLY = 0.99

Float = NDArray[np.float64]


class Recital(NamedTuple):
    """right: (sequences, N - k), whether each token after the prompt scores highest    bits: (sequences,), -log2 p of each"""

    right: NDArray[np.bool_]
    bits: Float


def recite(decoder: Decoder, weights: dict[str, Float], tokens: NDArray[np.int64], prompt: int) -> Recital:
    """Every sequence, read once. tokens: (sequences, N)"""
    count, length = tokens.shape
    widest = max(decoder.hidden, 3 * decoder.width, weights["output.bias"].size, decoder.heads * length)
    tile = max(1, NUMBERS // (length * widest))
    right, bits = np.zeros((count, length - prompt), dtype=bool), np.zeros(count)
    for start in range(0, count, tile):
        some = tokens[start : start + tile]
        scores = logits(decoder, weights, some)
        bits[start : start + tile] = surprises(scores, some)[:, prompt - 1 :].sum(axis=1) / np.log(2.0)
        asked, target = scores[:, prompt - 1 : -1], some[:, prompt:, None]
        own = np.take_along_axis(asked, target, axis=2)
        np.put_along_axis(asked, target, -np.inf, axis=2)
        right[start : start + tile] = own[..., 0] > asked.max(axis=2)
    return Recital(right, bits)


@np.errstate(over="ignore", invalid="ignore")
def judge_decoder(instance: SequenceInstance, answers: dict[str, Any], decoder: Decoder) -> Verdict:
    """What these weights recite of this library.

    recited: sequences, of the whole library    share: of it    nearly: 1 where that is 99% or more    shown: sequences that
    the member was shown at the end    recited_shown: of these    stored_bits: entropy of these less their negative
    log-likelihood (Morris et al. 2025)    tokens: share of the tokens after the prompts, of those shown, that are right
    """
    tokens, prompt = instance.tokens, instance.prompt
    vocabulary, length = len(answers["tokens"]), tokens.shape[1]
    weights = {w.name: np.asarray(answers[w.name], dtype=np.float64) for w in layout(decoder, vocabulary, length)}
    shapes = {w.name: w.shape for w in layout(decoder, vocabulary, length)}
    wrong = [name for name, shape in shapes.items() if weights[name].shape != shape]
    require(not wrong, "weights have the shapes of their decoder", ", ".join(wrong), "Check the weights.")
    right, bits = recite(decoder, weights, tokens, prompt)
    if not np.isfinite(bits).all():
        return Verdict(status=Status.DIVERGED)
    whole = np.asarray(right.all(axis=1))
    shown = np.asarray(answers.get("shown", np.arange(len(tokens)))).astype(np.int64)
    scores = {
        "recited": float(whole.sum()),
        "share": float(whole.mean()),
        "nearly": float(whole.mean() >= NEARLY),
        "shown": float(shown.size),
        "recited_shown": float(whole[shown].sum()),
        "stored_bits": float(instance.entropies[shown].sum() - bits[shown].sum()),
        "tokens": float(right[shown].mean()),
    }
    witness = {"ceiling": instance.ceiling, "irreducible_bits": instance.irreducible}
    if "grew" in answers:
        witness["last_growth"] = int(answers["grew"])
    return Verdict(status=Status.MEASURED, exact=bool(whole.all()), scores=scores, witness=witness)
