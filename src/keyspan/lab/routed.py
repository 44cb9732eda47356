"""Softmax attention judged, in float64, by `attention.reference_routed` itself: what it recalls in sampled contexts.

    f1       2 TP / (TP + FP + edges) over the judged contexts. Without values a pair is said to be an edge when some head gives
             it more than half of its attention; with values an item says of one item at most that it is its target
    routed   of the items whose target is in the context, the share whose answer is the target, whether or not it would be said

Without values, every context at once as well: attention on j only falls when items come, so an edge is recalled in every
context if it is among all items, and a pair that is none is never said if it is not said alone.

    f1_every that F1: edges among all items, other pairs alone. 1 is `exact`: right in every context there is
    error    largest over items of (attention on others, all heads) + (what the target lacks of 1): what a value could be off by

With values, what keys and values spoil apart:

    routed_keys     the target has the most attention, summed over heads: right if values did not interfere
    routed_values   right if the head that attends most to the target gave it everything, and no other head anything
    cosine          mean cosine of what is read out with the target's vector
    routed_cosine   the share where that exceeds the cosine with every other item by MARGIN
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference_routed as reference
from keyspan.attention.shapes import Routed
from keyspan.errors import BadInput, require
from keyspan.problems.in_context import Contexts, InContextInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
MARGIN = 0.1
SOME = 1 << 22  # numbers of a piece


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def judge_routed(instance: InContextInstance, layer: Routed, answers: Mapping[str, Any]) -> Verdict:
    """What softmax attention recalls of this problem."""
    w = checked(instance, layer, answers)
    largest = max(float(np.abs(v).max(initial=0.0)) for v in w.values())
    if not largest < 1e50:  # products of weights would overflow
        return Verdict(status=Status.DIVERGED)
    if layer.d_value:
        return _by_values(instance, layer, w)
    return _by_attention(instance, layer, w, instance.judged())


def checked(instance: InContextInstance, layer: Routed, answers: Mapping[str, Any]) -> dict[str, Float]:
    """The weights as float64, if they are all there in their shapes."""
    d, h = instance.relations.embeddings.shape[1], layer.heads
    shapes: dict[str, tuple[int, ...]] = {"w_query": (h, d, layer.d_key), "w_key": (h, d, layer.d_key)}
    shapes |= {"sink": (h,)} if layer.sink else {}
    if layer.d_value:
        shapes |= {"w_value": (h, d, layer.d_value), "w_out": (h, layer.d_value, d), "bias": ()}
    if layer.hidden:
        shapes |= {"w_up": (d, layer.hidden), "b_up": (layer.hidden,), "w_down": (layer.hidden, d), "b_down": (d,)}
        shapes |= dict.fromkeys(("norm_in", "norm_mid", "norm_out"), (d,))
    if not set(shapes) <= set(answers):
        raise BadInput(f"Routing must have {', '.join(shapes)}, but got {', '.join(answers)}. Check the weights.")
    found = {name: np.asarray(answers[name], dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        require(found[name].shape == shape, f"`{name}` is {shape}", found[name].shape, "Check the weights.")
    return found


def _pieces(drawn: Contexts, each: int) -> Iterator[Contexts]:
    """Some contexts at a time. each: numbers that one of them takes"""
    step = max(1, SOME // each)
    for first in range(0, len(drawn.items), step):
        yield drawn.of(slice(first, first + step))


# ------------------------------------------------------------------------------------------------- without values


def _by_attention(instance: InContextInstance, layer: Routed, w: dict[str, Float], drawn: Contexts) -> Verdict:
    rows, length = instance.relations.embeddings, drawn.items.shape[1]
    hits = said = edges = right = 0
    error = 0.0
    for some in _pieces(drawn, layer.heads * length * length):
        a = reference.attention(layer, rows[some.items], w, some.open)
        there = (some.places >= 0)[..., None] & (np.arange(length) == some.places[..., None])
        decided = (a > 0.5).any(axis=1) & some.open[..., None] & some.open[..., None, :]
        hits, said = hits + int((decided & there).sum()), said + int(decided.sum())
        edges += int(there.sum())
        total = a.sum(axis=1)
        asked = some.places >= 0
        right += int((total.argmax(axis=-1) == some.places)[asked].sum())
        error = max(error, float(_errors(total, there)[some.open].max()))
    every, robust = _every(instance, layer, w)
    scores = {"f1": 2.0 * hits / (said + edges), "routed": right / edges, "f1_every": every, "error": error}
    witness = {"contexts": len(drawn.items), "true_positives": hits, "false_positives": said - hits, "edges": edges}
    return Verdict(status=Status.MEASURED, exact=robust, scores=scores, witness=witness)


def _errors(total: Float, there: NDArray[np.bool_]) -> Float:
    """Attention on others, and what the target lacks of 1 (nothing is lacking where there is none). returns: (..., L)"""
    on_target = np.where(there, total, 0.0).sum(axis=-1)
    lacks = np.where(there.any(axis=-1), np.maximum(0.0, 1.0 - on_target), 0.0)
    return np.asarray(total.sum(axis=-1) - on_target + lacks)


def _every(instance: InContextInstance, layer: Routed, w: dict[str, Float]) -> tuple[float, bool]:
    """F1 with every edge among all items and every other pair alone, by rows; and whether it is without an error."""
    x, targets = instance.relations.embeddings, instance.targets
    items = len(x)
    q, k = layer.scale * (x @ w["w_query"]), (x @ w["w_key"]).transpose(0, 2, 1)
    sink = w["sink"][:, None] if layer.sink else np.full((layer.heads, 1), -np.inf)
    own = np.einsum("hid,hdi->hi", q, k)
    hits = false = 0
    step = max(1, SOME // (layer.heads * items))
    for first in range(0, items, step):
        here = np.arange(first, min(first + step, items))
        s = q[:, here] @ k  # (heads, rows, items)
        top = np.maximum(s.max(axis=2), sink)
        total = np.exp(s - top[..., None]).sum(axis=2) + np.exp(sink - top)
        wanted = targets[here]
        asked = np.flatnonzero(wanted >= 0)
        given = np.exp(s[:, asked, wanted[asked]] - top[:, asked]) / total[:, asked]
        hits += int((given > 0.5).any(axis=0).sum())
        alone = s > np.logaddexp(own[:, here], sink)[..., None]  # with itself and the sink: more than both together
        alone[:, np.arange(len(here)), here] = own[:, here] > sink
        fires = alone.any(axis=0)
        fires[asked, wanted[asked]] = False
        false += int(fires.sum())
    count = instance.load
    return 2.0 * hits / (hits + false + count), hits == count and not false


def errors_in(instance: InContextInstance, layer: Routed, answers: Mapping[str, Any], chosen: Contexts) -> Float:
    """`error` of every item of given contexts, 0 at closed places. returns: (contexts, L)"""
    w, length = checked(instance, layer, answers), chosen.items.shape[1]
    out = []
    for some in _pieces(chosen, layer.heads * length * length):
        total = reference.attention(layer, instance.relations.embeddings[some.items], w, some.open).sum(axis=1)
        there = (some.places >= 0)[..., None] & (np.arange(length) == some.places[..., None])
        out.append(np.where(some.open, _errors(total, there), 0.0))
    return np.concatenate(out)


# ---------------------------------------------------------------------------------------------------- with values


def _by_values(instance: InContextInstance, layer: Routed, w: dict[str, Float]) -> Verdict:
    rows, drawn = instance.relations.embeddings, instance.judged()
    length, tau = drawn.items.shape[1], 0.0 - float(w["bias"])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = dict.fromkeys(("routed", "routed_keys", "routed_values", "cosine", "routed_cosine"), 0.0)
    hits = said = edges = 0
    for some in _pieces(drawn, length * max(len(rows), layer.heads * length)):
        x, asked = rows[some.items], some.places >= 0
        a = reference.attention(layer, reference.attends(layer, x, w), w, some.open)
        o = reference.stream(layer, x, w, a)
        if not np.isfinite(o).all():
            return Verdict(status=Status.DIVERGED)
        wanted = np.take_along_axis(some.items, np.maximum(some.places, 0), axis=1)
        read = o @ rows.T
        answer, sure = read.argmax(axis=-1), read.max(axis=-1) > tau
        right = (answer == wanted) & asked
        hits, said = hits + int((right & sure).sum()), said + int((sure & some.open).sum())
        edges += int(asked.sum())
        found["routed"] += float(right.sum())
        found["routed_keys"] += float((a.sum(axis=1).argmax(axis=-1) == some.places)[asked].sum())
        ideal = reference.stream(layer, x, w, _ideal(a, some.places))[asked] @ rows.T
        found["routed_values"] += float((ideal.argmax(axis=-1) == wanted[asked]).sum())
        near, margin = _cosines(o[asked], unit, wanted[asked])
        found["cosine"] += float(near.sum())
        found["routed_cosine"] += float((margin > MARGIN).sum())
    scores = {"f1": 2.0 * hits / (said + edges), **{name: value / edges for name, value in found.items()}, "threshold": tau}
    witness = {"contexts": len(drawn.items), "true_positives": hits, "false_positives": said - hits, "edges": edges}
    return Verdict(status=Status.MEASURED, exact=hits == said == edges, scores=scores, witness=witness)


def _ideal(a: Float, places: NDArray[np.int64]) -> Float:
    """All attention of the head that attends most to the target on it, and none elsewhere. a, returns: (..., heads, L, L)"""
    at = np.maximum(places, 0)[..., None, :, None]
    given = np.take_along_axis(a, at, axis=-1)[..., 0]  # (..., heads, L)
    owner = given == given.max(axis=-2, keepdims=True)
    owner &= (places >= 0)[..., None, :]
    out = np.zeros_like(a)
    np.put_along_axis(out, at, owner[..., None].astype(np.float64), axis=-1)
    return out


def _cosines(o: Float, unit: Float, wanted: NDArray[np.int64]) -> tuple[Float, Float]:
    """Cosine with the target, and by how much it exceeds that with any other item. o: (n, d)    unit: (items, d)"""
    size = np.linalg.norm(o, axis=1, keepdims=True)
    cosines = (o / np.where(size > 0, size, 1.0)) @ unit.T
    here = np.arange(len(o))
    near = cosines[here, wanted]
    cosines[here, wanted] = -np.inf
    return near, near - cosines.max(axis=1)
