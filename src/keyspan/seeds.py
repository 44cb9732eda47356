"""Random streams: `(identity, purpose, index)` -> numbers, the only source of randomness in the package.

The generator is Philox4x32-10 (Salmon et al., SC'11), written here in integer operations, because NumPy promises no
stream across versions. Everything that is not an integer is made from additions, multiplications, divisions and square
roots alone, in a fixed order. IEEE 754 rounds those one way, so an instance has equal bits on every machine.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require

Float = NDArray[np.float64]
Single = NDArray[np.float32]
Int = NDArray[np.int64]
Words = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_32 = np.uint64(32)
_PIECE = 2**13  # counters whose words are made together


def philox(counters: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 of every counter. counters: (n, 4), 32-bit words; key: two 32-bit words; returns: (n, 4)."""
    c0, c1, c2, c3 = (counters[:, i].copy() for i in range(4))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _32) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def log(x: Float) -> Float:
    """Natural logarithm of positive finite numbers to about 1 ulp, with the same bits everywhere."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < math.sqrt(0.5)
    mantissa, exponent = np.where(small, mantissa * 2.0, mantissa), exponent - small
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = np.zeros_like(z)
    for odd in range(23, 1, -2):  # 2 artanh(s), |s| < 0.172: the next term is below 1e-18
        series = (series + 1.0 / odd) * z
    return np.asarray(exponent * math.log(2.0) + 2.0 * s * (1.0 + series), dtype=np.float64)


def exp(x: Float) -> Float:
    """Exponential to about 1 ulp, with the same bits everywhere."""
    n = np.rint(x * (1.0 / math.log(2.0)))
    r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10  # ln 2 in two pieces
    series = np.ones_like(r)
    for k in range(14, 0, -1):
        series = 1.0 + series * r * (1.0 / k)
    return np.asarray(np.ldexp(series, n.astype(np.int32)), dtype=np.float64)


def tree_sum(x: Float) -> Float:
    """Sum over the last axis by halving: a fixed order of additions, whatever the machine's vector width."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        folded = x[..., :half] + x[..., half : 2 * half]
        x = folded if x.shape[-1] % 2 == 0 else np.concatenate([folded, x[..., -1:]], axis=-1)
    return x[..., 0]


class Stream:
    """A sequence of random numbers that is a function of `(identity, purpose, index)` and nothing else.

    Draws are taken one after another: `Stream(a, b).normal((3, 2))` is the same numbers on every machine, and a stream
    with another identity, purpose or index is independent of it.
    """

    def __init__(self, identity: str, purpose: str, index: int = 0) -> None:
        digest = hashlib.sha256(f"{identity}\x00{purpose}\x00{index}".encode()).digest()
        words = np.frombuffer(digest[:16], dtype="<u4")
        self._key = (int(words[0]), int(words[1]))
        self._high = (int(words[2]), int(words[3]))  # upper half of the counter: 128 bits of identity in all
        self._next = 0

    def words(self, count: int) -> Words:
        """The next `count` words of 64 random bits, made in pieces that a core's cache holds. returns: (count,)"""
        blocks = -(-count // 2)
        pairs = np.empty((blocks, 2), dtype=np.uint64)
        for start in range(0, blocks, _PIECE):
            position = np.arange(self._next + start, self._next + min(start + _PIECE, blocks), dtype=np.uint64)
            counters = np.empty((len(position), 4), dtype=np.uint64)
            counters[:, 0], counters[:, 1] = position & _LOW, position >> _32
            counters[:, 2], counters[:, 3] = self._high
            block = philox(counters, self._key)
            pairs[start : start + len(position), 0] = block[:, 0] | (block[:, 1] << _32)
            pairs[start : start + len(position), 1] = block[:, 2] | (block[:, 3] << _32)
        self._next += blocks
        return pairs.reshape(-1)[:count]

    def uniform(self, count: int) -> Float:
        """Uniform numbers in [0, 1) with 53 random bits. returns: (count,)"""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def fractions(self, shape: tuple[int, ...]) -> Single:
        """Uniform numbers in [0, 1) with 24 random bits, which a float32 holds exactly; two to a word. returns: `shape`"""
        count = math.prod(shape)
        out = np.empty((-(-count // 2), 2), dtype=np.float32)
        for start in range(0, len(out), _PIECE):
            words = self.words(min(_PIECE, len(out) - start))
            piece = out[start : start + len(words)]
            piece[:, 0] = words >> np.uint64(40)
            piece[:, 1] = (words >> np.uint64(8)) & np.uint64(0xFFFFFF)
        out *= np.float32(2.0**-24)
        return out.reshape(-1)[:count].reshape(shape)

    def normal(self, shape: tuple[int, ...]) -> Float:
        """Standard normal numbers, by Marsaglia's polar method (it needs a logarithm and no sine). returns: `shape`"""
        count = math.prod(shape)
        parts: list[Float] = []
        have = 0
        while have < count:
            pairs = (count - have + 1) // 2
            uv = 2.0 * self.uniform(2 * (pairs + pairs // 3 + 8)).reshape(-1, 2) - 1.0
            s = uv[:, 0] * uv[:, 0] + uv[:, 1] * uv[:, 1]
            keep = (s > 0.0) & (s < 1.0)
            uv, s = uv[keep], s[keep]
            parts.append((uv * np.sqrt(-2.0 * log(s) / s)[:, None]).reshape(-1))
            have += parts[-1].size
        return np.concatenate(parts)[:count].reshape(shape) if parts else np.zeros(shape)

    def signs(self, shape: tuple[int, ...]) -> Float:
        """Fair signs, -1.0 or +1.0. returns: `shape`"""
        bits = self.words(math.prod(shape)) >> np.uint64(63)
        return np.where(bits == 1, 1.0, -1.0).reshape(shape)

    def integers(self, below: int, count: int) -> Int:
        """Uniform integers in [0, below), without bias. returns: (count,)"""
        require(1 <= below <= 2**63, "`1 <= below <= 2^63`", below, "Draw from at least one value.")
        limit = 2**64 - 2**64 % below
        out = np.empty(0, dtype=np.uint64)
        while out.size < count:
            words = self.words(count - out.size)
            out = np.concatenate([out, words if limit == 2**64 else words[words < np.uint64(limit)]])
        return (out % np.uint64(below)).astype(np.int64)

    def permutation(self, n: int) -> Int:
        """A uniform permutation of 0..n-1: the order of n random words. returns: (n,)"""
        return np.argsort(self.words(n), kind="stable").astype(np.int64)

    def subsets(self, rows: int, n: int, size: int) -> Int:
        """For every row a uniform subset of 0..n-1, sorted. returns: (rows, size)"""
        require(0 <= size <= n, "`0 <= size <= n`", f"size={size}, n={n}", "Ask for a smaller subset.")
        if size * size <= n:  # few enough that most draws have no repeat: draw again those that have one
            out = np.sort(self.integers(n, rows * size).reshape(rows, size), axis=1)
            while True:
                again = np.flatnonzero((out[:, 1:] == out[:, :-1]).any(axis=1))
                if again.size == 0:
                    return out
                out[again] = np.sort(self.integers(n, again.size * size).reshape(-1, size), axis=1)
        out = np.empty((rows, size), dtype=np.int64)
        for row in range(rows):  # one row of keys at a time keeps the memory at n words
            out[row] = np.sort(np.argsort(self.words(n), kind="stable")[:size])
        return out
