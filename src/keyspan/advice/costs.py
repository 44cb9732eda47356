"""What queries and keys of so many heads cost: parameters, floating-point operations, bytes in the key cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keyspan.advice.choosing import Limits


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one layer's queries and keys.

    key_budget: h d_k, of the queries    kv_heads: key heads, each read by `gqa_group` query heads    flops_per_item: to make an
    item's queries and keys, 2 d (h + kv) d_k    flops_per_pair: to score a pair, 2 h d_k    cache_numbers, cache_bytes: of an
    item's keys, kv d_k numbers
    """

    key_budget: int
    kv_heads: int
    query_parameters: int
    key_parameters: int
    parameters: int
    flops_per_item: int
    flops_per_pair: int
    cache_numbers: int
    cache_bytes: int


def cost(heads: int, d_key: int, d_model: int, limits: Limits) -> Cost:
    """The cost of h heads of width d_k."""
    kv_heads = -(-heads // limits.gqa_group)
    queries, keys = d_model * heads * d_key, d_model * kv_heads * d_key
    return Cost(
        key_budget=heads * d_key,
        kv_heads=kv_heads,
        query_parameters=queries,
        key_parameters=keys,
        parameters=queries + keys,
        flops_per_item=2 * (queries + keys),
        flops_per_pair=2 * heads * d_key,
        cache_numbers=kv_heads * d_key,
        cache_bytes=kv_heads * d_key * limits.key_bytes,
    )
