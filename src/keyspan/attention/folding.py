"""The weights of a layer of attention as its answering row meets them, and the way back for gradients.

Only the row that answers enters the loss, and tokens are data. So products of weights are made first, once a step:

    logits of token j   (x_0 W_Q^h) (x_j W_K^h)^T = e A^h E_j^T + e B^h_j + (a^h E_j^T + b^h_j) + what all tokens share
    A^h = (W_in W_Q^h) (W_in W_K^h)^T        B^h_j = (W_in W_Q^h) (p_j W_K^h)^T
    a^h, b^h: the same with b_in + p_0 in the place of a query's W_in
    value of token j    E_j (W_in W_V) + (b_in + p_j) W_V

What all tokens of a context share (b_in in the keys) is nothing to a softmax. In products with a vector the vector stands
on the left, or there is no product but an outer one (`attention.linear` says why). With one context for all, every token is a
position: p_j + E_j W_in stands in the place of p_j, and A is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, bmm

Params = dict[str, Tensor]


@dataclass
class Folded:
    """Products of a layer's weights, of some members (M); or their slopes.

    by_token: (M, H d, d), A transposed    by_place: (M, n H, d), B transposed    lead: (M, H d), a    start: (M, n H), b
    value: (M, d, H d_v)    value_start: (M, n, H d_v)    read: (M, H d_v, outputs)    bias: (M, outputs)
    by_token, lead and value are None where all examples share a context
    """

    by_token: Tensor | None
    by_place: Tensor
    lead: Tensor | None
    start: Tensor
    value: Tensor | None
    value_start: Tensor
    read: Tensor
    bias: Tensor


@dataclass
class Seen:
    """What the way back needs of the way there."""

    query: Tensor  # (M H, d_h, d): (W_in W_Q)^T
    key: Tensor | None  # (M H, d_h, d): (W_in W_K)^T
    place_key: Tensor  # (M H, d_h, n): (p W_K)^T
    first: Tensor  # (M H, 1, d_h): (b_in + p_0) W_Q
    ahead: Tensor  # (M, d): b_in + p_0
    places: Tensor  # (M, n, d): p, with the tokens in it where they are shared


def fold(params: Params, positions: Tensor, shared: Tensor | None, closed: Tensor) -> tuple[Folded, Seen]:
    """Products of weights. positions: (n + 1, d)    shared: (M, n, d), the members' contexts    closed: (M, n)"""
    w_in, w_query, w_key = params["w_in"], params["w_query"], params["w_key"]
    members, heads, d_key, width = w_query.shape
    n = len(positions) - 1
    into = w_in.transpose(1, 2)
    query = bmm(w_query.flatten(1, 2), into).view(-1, d_key, width)
    places = positions[1:].expand(members, n, width)
    if shared is not None:
        places = torch.baddbmm(places, shared, w_in)
    place_key = bmm(w_key.flatten(1, 2), places.transpose(1, 2)).view(-1, d_key, n)
    ahead = params["b_in"] + positions[0]
    first = bmm(ahead.unsqueeze(1), w_query.flatten(1, 2).transpose(1, 2)).view(-1, 1, d_key)
    by_place = bmm(place_key.transpose(1, 2), query).view(members, heads, n, width).transpose(1, 2)
    start = bmm(first, place_key).view(members, heads, n).transpose(1, 2) + closed.unsqueeze(2)
    key = by_token = lead = value = None
    if shared is None:
        key = bmm(w_key.flatten(1, 2), into).view(-1, d_key, width)
        by_token = bmm(key.transpose(1, 2), query).view(members, heads * width, width)
        lead = bmm(first, key).view(members, heads * width)
        value = bmm(w_in, params["w_value"])
    folded = Folded(
        by_token=by_token,
        by_place=by_place.reshape(members, n * heads, width),
        lead=lead,
        start=start.reshape(members, n * heads),
        value=value,
        value_start=bmm(params["b_in"].unsqueeze(1) + places, params["w_value"]),
        read=bmm(params["w_out"], params["w_label"]),
        bias=params["b_label"],
    )
    return folded, Seen(query, key, place_key, first, ahead, places)


def unfold(params: Params, slope: Folded, seen: Seen, shared: Tensor | None) -> Params:
    """Slopes of the products -> slopes of the weights."""
    members, heads, d_key, width = params["w_query"].shape
    n = seen.places.shape[1]
    to_place = slope.by_place.view(members, n, heads, width).transpose(1, 2).reshape(-1, n, width)
    to_start = slope.start.view(members, n, heads).transpose(1, 2).reshape(-1, 1, n)
    d_query = bmm(seen.place_key, to_place)
    d_first = bmm(to_start, seen.place_key.transpose(1, 2))
    d_place_key = torch.baddbmm(seen.first.transpose(1, 2) * to_start, seen.query, to_place.transpose(1, 2))
    d_key_token: Tensor | None = None
    if slope.by_token is not None and slope.lead is not None and seen.key is not None:
        to_token, to_lead = slope.by_token.view(-1, width, width), slope.lead.view(-1, 1, width)
        d_query = torch.baddbmm(d_query, seen.key, to_token)
        d_first = torch.baddbmm(d_first, to_lead, seen.key.transpose(1, 2))
        d_key_token = torch.baddbmm(seen.first.transpose(1, 2) * to_lead, seen.query, to_token.transpose(1, 2))
    rows = (members, heads * d_key)
    d_query, d_place_key = d_query.view(*rows, width), d_place_key.view(*rows, n)
    d_first = d_first.reshape(members, 1, rows[1])
    flat_query, flat_key = params["w_query"].flatten(1, 2), params["w_key"].flatten(1, 2)
    w_query = torch.baddbmm(d_first.transpose(1, 2) * seen.ahead.unsqueeze(1), d_query, params["w_in"])
    w_key = bmm(d_place_key, seen.places)
    w_in = bmm(d_query.transpose(1, 2), flat_query)
    b_in = bmm(d_first, flat_query)
    w_value = bmm((params["b_in"].unsqueeze(1) + seen.places).transpose(1, 2), slope.value_start)
    d_places = bmm(slope.value_start, params["w_value"].transpose(1, 2))  # of b_in + p_j
    b_in = b_in + d_places.sum(1, keepdim=True)
    if d_key_token is not None and slope.value is not None:
        d_key_token = d_key_token.view(*rows, width)
        w_key = torch.baddbmm(w_key, d_key_token, params["w_in"])
        w_in = torch.baddbmm(w_in, d_key_token.transpose(1, 2), flat_key)
        w_in = torch.baddbmm(w_in, slope.value, params["w_value"].transpose(1, 2))
        w_value = torch.baddbmm(w_value, params["w_in"].transpose(1, 2), slope.value)
    if shared is not None:
        d_places = torch.baddbmm(d_places, d_place_key.transpose(1, 2), flat_key)
        w_in = torch.baddbmm(w_in, shared.transpose(1, 2), d_places)
    return {
        "w_in": w_in,
        "b_in": b_in.squeeze(1),
        "w_query": w_query.view_as(params["w_query"]),
        "w_key": w_key.view_as(params["w_key"]),
        "w_value": w_value,
        "w_out": bmm(slope.read, params["w_label"].transpose(1, 2)),
        "w_label": bmm(params["w_out"].transpose(1, 2), slope.read),
        "b_label": slope.bias,
    }
