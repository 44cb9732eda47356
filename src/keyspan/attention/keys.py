"""Keys in torch: shared by heads, made from a latent, normalised (`reference_heads.cache`, `.keys`, `.normalised`)."""

from __future__ import annotations

import torch

from keyspan.attention.reference_heads import NORM_EPS


def normalised(v: torch.Tensor, d_key: torch.Tensor) -> torch.Tensor:
    """Every query or key over its root mean square. v: (members, heads, d_key, items), zeros as padding    d_key: (members,)

    The padding stays zero; the mean is over a member's own dimensions.
    """
    mean = (v * v).sum(2, keepdim=True) / d_key[:, None, None, None]
    return v * torch.rsqrt(mean + NORM_EPS)


def shared(k: torch.Tensor, share: int, heads: int) -> torch.Tensor:
    """Every key head once for each head that reads it. k: (members, key heads, d_key, items)    returns: `heads` of them

    Head j reads key head j // share. Those beyond are padding, and get zeros.
    """
    if share == 1:
        return k
    out = k.unsqueeze(2).expand(-1, -1, share, -1, -1).flatten(1, 2)[:, :heads]
    missing = heads - out.shape[1]
    return torch.cat([out, out.new_zeros(len(out), missing, *out.shape[2:])], dim=1) if missing else out


def from_latent(w_up: torch.Tensor, latent: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """Keys made anew from what is cached. w_up: (members, heads, d_key, latent)    latent: (members, latent, items)

    content: (members, d_key), 1 where a dimension is made so, 0 where it is turned or padding    returns: (members, heads,
    d_key, items)
    """
    made: torch.Tensor = torch.bmm(w_up.flatten(1, 2), latent).unflatten(1, w_up.shape[1:3])
    return made * content[:, None, :, None]
