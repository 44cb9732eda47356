"""Which key head a query head asks, for every shape of groups."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from keyspan.advice.checkpoints.layout import head_map


def test_every_shape_of_groups_is_a_repeat_interleave() -> None:
    for kv_heads in range(1, 65):
        for group in range(1, 64 // kv_heads + 1):
            found = head_map(kv_heads * group, kv_heads)
            assert list(found) == torch.arange(kv_heads).repeat_interleave(group).tolist()


@given(kv_heads=st.integers(1, 128), group=st.integers(1, 64), width=st.integers(1, 3))
def test_keys_taken_by_the_map_are_keys_repeated(kv_heads: int, group: int, width: int) -> None:
    keys = torch.arange(kv_heads * width).reshape(kv_heads, width)
    taken = keys.numpy()[np.array(head_map(kv_heads * group, kv_heads))]
    assert np.array_equal(taken, torch.repeat_interleave(keys, group, dim=0).numpy())
