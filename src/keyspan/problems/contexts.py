"""Labelled contexts: how many of them does a layer of attention memorise? (Mahdavi, Liao and Thrampoulidis 2024)

An example is a context of n tokens, a query token and a label that has nothing to do with them. Tokens are numbers that a
float32 holds, so that a layer trained in float32 and a judge in float64 see the same.

T: examples    n: context    d: d_model
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import Batch, ContentSource, digest_of
from keyspan.seeds import Stream
from keyspan.specs import Spec

CONTEXTS = ("random", "fixed", "perm")
TASKS = ("classes", "values")
TOKENS = ("uniform", "gaussian", "file")
CLASSES = 100
BAG = 500  # tokens that contexts of the kind `perm` are drawn from
TOLERANCE = 0.005  # of a value: 100 values can be told apart on [0, 1), as many as there are classes
ROWS = 8  # tokens of a context are padded to a multiple of this

Single = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Tokens(Spec, family="tokens", version=1):
    """How tokens are made: uniform on [0, 1) (the paper's), gaussian, or rows of a file.

    content: hash of the rows that came from a file
    """

    name: str = "uniform"
    content: str | None = field(default=None, metadata={"absent": None})

    def check(self) -> None:
        rule = f"`--tokens` in {'|'.join(TOKENS[:-1])} or a .npy/.safetensors file"
        require(self.name in TOKENS, rule, repr(self.name), "Choose a family, or give a file that exists.")
        require((self.name == "file") == (self.content is not None), "`content` with file only", self.content, "Read it.")


@dataclass(frozen=True, kw_only=True)
class Labels(Spec, family="labels", version=1):
    """T labelled (context, query) pairs.

    context: n    d_model: d    examples: T (None: as many as are asked for)
    contexts: random (fresh for every example), fixed (one for all), perm (n of `bag` tokens, in random order)
    task: classes (one of `classes`, uniform) or values (uniform on [0, 1), right within `tolerance`)
    Where a field does not apply it is None.
    """

    context: int
    d_model: int
    examples: int | None = None
    contexts: str = "random"
    task: str = "classes"
    classes: int | None = None
    tolerance: float | None = None
    bag: int | None = None
    tokens: Tokens = Tokens()

    static: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def check(self) -> None:
        require(1 <= self.context <= 2**16, "`1 <= --context <= 65536`", self.context, "Try 32.")
        require(1 <= self.d_model <= 2**16, "`1 <= --d-model <= 65536`", self.d_model, "Try 64.")
        require(
            self.examples is None or 1 <= self.examples <= 2**24, "`1 <= --examples <= 16777216`", self.examples, "Try 500."
        )
        require(self.contexts in CONTEXTS, f"`--contexts` in {'|'.join(CONTEXTS)}", repr(self.contexts), "Choose one.")
        require(self.task in TASKS, f"`--task` in {'|'.join(TASKS)}", repr(self.task), "Choose one.")
        self._resolve("classes", self.task == "classes", CLASSES, "with the task classes only")
        self._resolve("tolerance", self.task == "values", TOLERANCE, "with the task values only")
        self._resolve("bag", self.contexts == "perm" and self.tokens.name != "file", BAG, "with perm contexts and no file only")
        require(self.classes is None or 2 <= self.classes <= 2**16, "`2 <= --classes <= 65536`", self.classes, "Try 100.")
        require(self.tolerance is None or 0 < self.tolerance < 0.5, "`0 < tolerance < 0.5`", self.tolerance, "Try 0.005.")
        enough = self.bag is None or self.context <= self.bag <= 2**20
        require(enough, "`context <= bag <= 1048576`", f"context={self.context}, bag={self.bag}", "Take a larger bag.")

    def _resolve(self, name: str, applies: bool, default: float, where: str) -> None:
        value = getattr(self, name)
        require(applies or value is None, f"`{name}` {where}", value, "Leave it out.")
        if applies and value is None:
            object.__setattr__(self, name, default)

    def with_load(self, examples: int) -> Labels:
        """The same problem with another number of examples."""
        return replace(self, examples=examples)

    @property
    def outputs(self) -> int:
        """Numbers that a layer answers with: one a class, or the value."""
        return self.classes or 1

    @property
    def shape(self) -> tuple[int, ...]:
        """What members share to share a crew: width, padded context, kind of contexts, outputs. Not T, which may differ."""
        return (self.d_model, -(-self.context // ROWS) * ROWS, CONTEXTS.index(self.contexts), self.outputs)

    def instance(self, problem_id: str, contents: ContentSource) -> LabelInstance:
        """Tokens and labels, drawn from the problem's id."""
        require(self.examples is not None, "an instance has a number of examples", None, "Use with_load(T).")
        count = int(self.examples or 0)
        draw = _Draw(self, problem_id, contents)
        queries, contexts, bag, index = draw.tokens(count)
        stream = Stream(problem_id, "labels")
        labels = stream.integers(self.classes, count) if self.classes else stream.fractions((count,))
        return LabelInstance(
            identity=problem_id,
            queries=queries,
            labels=labels,
            contexts=contexts,
            bag=bag,
            index=index,
            classes=self.classes,
            tolerance=self.tolerance,
        )

    def batch(self, step: int, instances: Sequence[LabelInstance]) -> Batch:
        """The instances themselves, each once. given: (distinct,)    which: (members,), positions in `given`

        Examples are not stacked: members may have different numbers of them, and those of one instance share it.
        """
        distinct = list({id(i): i for i in instances}.values())
        given = np.empty(len(distinct), dtype=object)
        given[:] = distinct
        place = {id(i): k for k, i in enumerate(distinct)}
        return {"given": given, "which": np.array([place[id(i)] for i in instances], dtype=np.int64)}


@dataclass(frozen=True)
class _Draw:
    """How the tokens of an instance are drawn."""

    spec: Labels
    problem_id: str
    contents: ContentSource

    def stream(self, purpose: str) -> Stream:
        return Stream(self.problem_id, purpose)

    def tokens(self, count: int) -> tuple[Single, Single | None, Single | None, Ints | None]:
        """Queries, contexts, bag and index of `LabelInstance`."""
        spec, n = self.spec, self.spec.context
        if spec.tokens.name == "file":
            return self._from_file(count)
        queries = self._fresh("queries", (count, spec.d_model))
        if spec.contexts == "perm":
            assert spec.bag is not None
            return queries, None, self._fresh("bag", (spec.bag, spec.d_model)), self._chosen(count, spec.bag)
        return queries, self._fresh("contexts", (count if spec.contexts == "random" else 1, n, spec.d_model)), None, None

    def _fresh(self, purpose: str, shape: tuple[int, ...]) -> Single:
        stream = self.stream(purpose)
        return stream.fractions(shape) if self.spec.tokens.name == "uniform" else stream.normal(shape).astype(np.float32)

    def _chosen(self, count: int, rows: int) -> Ints:
        """n different rows for every example, in random order. returns: (count, n)"""
        stream, n = self.stream("contexts"), self.spec.context
        picked = stream.subsets(count, rows, n)
        order = np.argsort(stream.words(count * n).reshape(count, n), axis=1, kind="stable")
        return np.asarray(np.take_along_axis(picked, order, axis=1))

    def _from_file(self, count: int) -> tuple[Single, Single | None, Single | None, Ints | None]:
        """Tokens are rows of the file: contexts take different ones; with a fixed context queries are the other rows,
        each once, since two labels for one input could not both be held."""
        spec = self.spec
        assert spec.tokens.content is not None
        rows = np.asarray(self.contents.get(spec.tokens.content), dtype=np.float64)
        require(rows.shape[1] == spec.d_model, "`--d-model` = columns of the tokens", rows.shape[1], "Use that many.")
        bag = rows.astype(np.float32)
        require(bool(np.isfinite(bag).all()), "tokens fit a float32", "larger ones", "Scale them down.")
        if spec.contexts == "fixed":
            fix = "Take fewer examples, or a larger file."
            require(count + spec.context <= len(bag), f"`examples + context <= rows` of the tokens ({len(bag)})", count, fix)
            order = self.stream("queries").permutation(len(bag))
            return bag[order[spec.context : spec.context + count]], bag[order[: spec.context]][None], None, None
        require(spec.context <= len(bag), f"`context <= rows` of the tokens ({len(bag)})", spec.context, "Use fewer.")
        return bag[self.stream("queries").integers(len(bag), count)], None, bag, self._chosen(count, len(bag))


@dataclass(frozen=True, eq=False)
class LabelInstance:
    """T labelled examples.

    queries: (T, d)    labels: (T,), classes or values    contexts: (T, n, d), or (1, n, d) if all share one, or None;
    then row j of context t is bag[index[t, j]]    bag: (rows, d)    index: (T, n)    identity: what the order of the
    examples in training is drawn from    classes, tolerance: of the task, None where it has none
    """

    identity: str
    queries: Single
    labels: NDArray[Any]
    contexts: Single | None
    bag: Single | None
    index: Ints | None
    classes: int | None
    tolerance: float | None

    @property
    def load(self) -> int:
        """T"""
        return len(self.queries)

    @property
    def shared(self) -> bool:
        """Whether all examples have one context."""
        return self.contexts is not None and len(self.contexts) == 1 and self.load > 1

    @property
    def bits(self) -> float:
        """T log2 of the classes, or of how many values can be told apart."""
        return self.load * math.log2(self.classes or 0.5 / (self.tolerance or 0.5))

    def context(self, examples: slice | Ints) -> Single:
        """The contexts of some examples. returns: (examples, n, d); (1, n, d) where all share one"""
        if self.contexts is not None:
            return self.contexts if len(self.contexts) == 1 else self.contexts[examples]
        assert self.bag is not None and self.index is not None
        return self.bag[self.index[examples]]

    @cached_property
    def best(self) -> float:
        """Highest accuracy: below 1 only where examples with other labels have the same query and context."""
        group, size = _groups(self.queries)
        twice = np.flatnonzero(size[group] > 1)
        if twice.size == 0:
            return 1.0
        inputs = [self.queries[twice]] if self.shared else [self.queries[twice], self.context(twice).reshape(len(twice), -1)]
        group, size = _groups(np.concatenate(inputs, axis=1))
        labels = self.labels[twice]
        if self.classes is None:
            most = _most_within(group, labels, self.tolerance or 0.0)
        else:
            pair, hits = np.unique(group * self.classes + labels, return_counts=True)
            each = np.zeros(len(size), dtype=np.int64)
            np.maximum.at(each, pair // self.classes, hits)
            most = int(each.sum())
        return float((self.load - len(twice) + most) / self.load)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tokens and labels."""
        return digest_of(*(a for a in (self.queries, self.contexts, self.bag, self.index, self.labels) if a is not None))

    def order(self, first: int, epochs: int) -> Ints:
        """Examples in the order of training, for some epochs, each a permutation of its own. returns: (epochs, T)

        Epochs are drawn in groups of a size fixed by T, so that few examples do not cost a draw each epoch.
        """
        group = epochs_at_once(self.load)
        wanted = range(first // group, (first + epochs - 1) // group + 1)
        words = [Stream(self.identity, "order", g).words(group * self.load).reshape(group, self.load) for g in wanted]
        rows = np.concatenate(words)[first - wanted.start * group :][:epochs]
        return np.argsort(rows, axis=1, kind="stable").astype(np.int64)


def epochs_at_once(examples: int) -> int:
    """Epochs whose orders are drawn together: about 2^15 words."""
    return max(1, 2**15 // examples)


def _groups(rows: Single) -> tuple[Ints, Ints]:
    """Which rows are equal. returns: the group of every row, the size of every group"""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    _, group, size = np.unique(whole, return_inverse=True, return_counts=True)
    return group.reshape(-1).astype(np.int64), size.astype(np.int64)


def _most_within(group: Ints, values: NDArray[Any], tolerance: float) -> int:
    """Over groups of equal inputs, the most values that one answer is right for."""
    order = np.lexsort((values, group))
    total, start = 0, 0
    for stop in (*(np.flatnonzero(np.diff(group[order])) + 1).tolist(), len(group)):
        mine = values[order[start:stop]].astype(np.float64)
        total += int((np.searchsorted(mine, mine + 2.0 * tolerance, side="right") - np.arange(len(mine))).max())
        start = stop
    return total
