"""The data of an audit's figures: maps of heads by layers, spectra, overlaps; small frozen tuples that a test can check.

They are made from the JSON of `keyspan audit` alone (with `spectra`), so a page can be drawn again from a kept answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

POINTS = 64  # of a spectrum's line
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class HeadLayerMap:
    """A number for every head of every layer.

    layers: their numbers    values: by layer, by query head    low, high: ends of the scale    marked: (layer, head)
    """

    title: str
    label: str
    field: str
    layers: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    low: float
    high: float
    marked: tuple[tuple[int, int], ...] = ()

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [
            (value, layer, head) for layer, row in zip(self.layers, self.values, strict=True) for head, value in enumerate(row)
        ]
        low, high = min(each), max(each)
        middle = median(value for value, _, _ in each)
        marked = f" Marked: {', '.join(f'layer {a} head {b}' for a, b in self.marked)}." if self.marked else ""
        ends = [f"{value:.2f} (layer {layer} head {head})" for value, layer, head in (low, high)]
        size = f"{len(self.layers)} layers by {max(map(len, self.values))} heads"
        return f"{self.title}: a map of {size}. Lowest {ends[0]}, median {middle:.2f}, highest {ends[1]}.{marked}"

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            {"layer": layer, "head": head, self.field: value}
            for layer, row in zip(self.layers, self.values, strict=True)
            for head, value in enumerate(row)
        ]


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a layer's heads over the largest of each: the middle head, and the ends over heads.

    place: index over d_key, in (0, 1]
    """

    layer: int
    place: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Spectra:
    """A line for every layer."""

    layers: tuple[Spectrum, ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        halves = [
            (one.middle[min(range(len(one.place)), key=lambda i: abs(one.place[i] - 0.5))], one.layer) for one in self.layers
        ]
        steep, flat = min(halves), max(halves)
        return (
            f"Singular values of W_Q W_K^T over the largest, by index, for {len(self.layers)} layers. Halfway down, the median "
            f"head has {steep[0]:.2f} in layer {steep[1]} (the steepest) and {flat[0]:.2f} in layer {flat[1]} (the flattest)."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            {"layer": one.layer, "index_over_d_key": p, "median": m, "lowest": low, "highest": high}
            for one in self.layers
            for p, m, low, high in zip(one.place, one.middle, one.low, one.high, strict=True)
        ]


def used_info(answer: Answer) -> HeadLayerMap:
    """The share of each head's width that it uses: effective rank over d_key."""
    values = tuple(tuple(r / layer["d_key"] for r in layer["effective_rank"]) for layer in answer["layers"])
    return _map(answer, "Key budget used", "effective rank / d_key", "used", values, (0.0, 1.0))


def stable_info(answer: Answer) -> HeadLayerMap:
    """How much of a head's form lies in few directions: stable rank over d_key."""
    values = tuple(tuple(r / layer["d_key"] for r in layer["stable_rank"]) for layer in answer["layers"])
    return _map(answer, "Stable rank", "stable rank / d_key", "stable", values, (0.0, 1.0))


def overlap_info(answer: Answer) -> HeadLayerMap:
    """The cosine of the smallest principal angle between a head's queries and those of the head most like it."""
    values = tuple(tuple(o / 90 for o in layer["overlap"]["smallest_angle"]) for layer in answer["layers"])
    values = tuple(row or (1.0,) for row in values)  # a single head overlaps with none
    turned = tuple(tuple(90 * value for value in row) for row in values)
    return _map(
        answer, "Overlap of heads", "smallest angle to the nearest head (degrees)", "smallest_angle", turned, (0.0, 90.0)
    )


def symmetry_info(answer: Answer) -> HeadLayerMap:
    """Whether a head asks as it is asked: 1 symmetric, -1 antisymmetric."""
    values = tuple(tuple(layer["symmetry"]) for layer in answer["layers"])
    return _map(answer, "Symmetry of queries and keys", "<M, M^T> / |M|^2", "symmetry", values, (-1.0, 1.0))


def relations_info(answer: Answer) -> HeadLayerMap | None:
    """The F1 of the given pairs, or None where none were given."""
    if answer["relations"] is None:
        return None
    values = tuple(tuple(one["f1"] for one in layer["relations"]["heads"]) for layer in answer["layers"])
    marked = tuple((layer, head) for layer, head in answer["relations"]["found"])
    return _map(answer, "Given pairs recovered", "F1 at the best threshold", "f1", values, (0.0, 1.0), marked)


def spectra_info(answer: Answer) -> Spectra:
    """Singular values over the largest of each head; heads of zeros are left out."""
    lines = []
    for layer in answer["layers"]:
        heads = [[value / row[0] for value in row] for row in layer["spectrum"] if row[0] > 0]
        if not heads:
            continue
        width = len(heads[0])
        picked = (
            sorted({round(i * (width - 1) / max(1, POINTS - 1)) for i in range(POINTS)}) if width > POINTS else range(width)
        )
        columns = [[head[i] for head in heads] for i in picked]
        lines.append(
            Spectrum(
                layer=layer["layer"],
                place=tuple((i + 1) / width for i in picked),
                middle=tuple(median(column) for column in columns),
                low=tuple(min(column) for column in columns),
                high=tuple(max(column) for column in columns),
            )
        )
    return Spectra(tuple(lines))


def _map(
    answer: Answer,
    title: str,
    label: str,
    field: str,
    values: Sequence[Sequence[float]],
    scale: tuple[float, float],
    marked: tuple[tuple[int, int], ...] = (),
) -> HeadLayerMap:
    layers = tuple(layer["layer"] for layer in answer["layers"])
    return HeadLayerMap(title, label, field, layers, tuple(map(tuple, values)), *scale, marked)
