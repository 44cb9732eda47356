"""Search: (question, verdicts so far) -> the members wanted next, or the answer. Pure: it trains and stores nothing.

The path of a search is a function of the question and of the verdicts on that path, never of what else is in a store, so
a search that is asked again, or was killed, walks the same path and gives the same answer. For every arm:

1. both ends of the bracket are measured, and the bracket is moved outwards until it holds the crossing;
2. bisection, all arms' candidates of a round together, until two adjacent levels disagree;
3. `guard` levels on both sides of the crossing are measured too, where they can bear on the answer.

The first `pilot` replicates alone decide where to go. The answer is computed from all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keyspan.lab.crossing import METHODS, Crossing, Table, cross
from keyspan.specs import Arm, Question, Run
from keyspan.verdict import Status, Verdict

Verdicts = Mapping[str, Verdict]


@dataclass(frozen=True)
class Wanted:
    """Members to measure before the next call, and how far along the search is."""

    runs: tuple[Run, ...]
    measured: int


@dataclass(frozen=True)
class Probe:
    """One member that the answer rests on."""

    heads: int | None
    level: int
    replicate: int
    run: Run
    verdict: Verdict


@dataclass(frozen=True)
class ArmAnswer:
    """What one number of heads gave. estimate is None where no level of the arm reaches the target."""

    heads: int | None
    crossing: Crossing
    levels: tuple[int, ...]
    means: tuple[float | None, ...]


@dataclass(frozen=True)
class Answer:
    """A capacity with its interval, and everything it rests on.

    crossing: the answer over all arms (for a budget: the smallest)    best: index of the arm that attains it
    non_monotone: (heads, lower level, higher level) where the lower passes and the higher does not
    """

    crossing: Crossing
    best: int | None
    arms: tuple[ArmAnswer, ...]
    probes: tuple[Probe, ...]
    non_monotone: tuple[tuple[int | None, int, int], ...]
    failed: int
    method: str


def propose(question: Question, verdicts: Verdicts) -> Wanted | Answer:
    """The members wanted next, or the answer if nothing is missing. verdicts: by run id"""
    book = _Book(question, verdicts)
    paths = [_path(book, arm) for arm in question.arms]
    if not any(book.missing(arm, level) for arm, path in zip(question.arms, paths, strict=True) for level in path):
        paths = [path + extra for path, extra in zip(paths, _guards(book, paths), strict=True)]
    wanted = [
        run
        for arm, path in zip(question.arms, paths, strict=True)
        for level in path
        for run in book.missing(arm, level)
    ]
    if wanted:
        unique = {run.run_id: run for run in wanted}
        return Wanted(tuple(unique.values()), book.seen)
    return _answer(book, paths)


class _Book:
    """The question with its verdicts looked up; remembers runs, whose ids cost a hash."""

    def __init__(self, question: Question, verdicts: Verdicts) -> None:
        self.question, self.verdicts, self.seen = question, verdicts, 0
        self._runs: dict[tuple[int | None, int], list[tuple[Run, str]]] = {}

    def runs(self, arm: Arm, level: int) -> list[tuple[Run, str]]:
        key = (arm.heads, level)
        if key not in self._runs:
            self._runs[key] = [(run, run.run_id) for run in self.question.runs(arm, level)]
            self.seen += sum(run_id in self.verdicts for _, run_id in self._runs[key])
        return self._runs[key]

    def missing(self, arm: Arm, level: int) -> list[Run]:
        return [run for run, run_id in self.runs(arm, level) if run_id not in self.verdicts]

    def scores(self, arm: Arm, level: int) -> list[float | None]:
        """The question's score of every replicate at a level; None where the member failed."""
        found = [self.verdicts[run_id] for _, run_id in self.runs(arm, level)]
        return [v.score(self.question.score) if v.measured else None for v in found]

    def passes(self, arm: Arm, level: int) -> bool | None:
        """Whether the pilot replicates meet the target here; None if one of them is missing."""
        pilot = self.runs(arm, level)[: self.question.pilot]
        if any(run_id not in self.verdicts for _, run_id in pilot):
            return None
        return meets(self.question, self.scores_of(pilot))

    def scores_of(self, runs: list[tuple[Run, str]]) -> list[float | None]:
        found = [self.verdicts[run_id] for _, run_id in runs]
        return [v.score(self.question.score) if v.measured else None for v in found]


def meets(question: Question, scores: list[float | None]) -> bool:
    """Whether these replicates meet the target by the question's criterion. A failed member meets nothing."""
    known = [s for s in scores if s is not None]
    if question.criterion == "any":
        return any(s >= question.target for s in known)
    if not known or len(known) < len(scores):
        return False
    if question.criterion == "all":
        return all(s >= question.target for s in known)
    return sum(known) / len(known) >= question.target


def _past(book: _Book, arm: Arm, level: int) -> bool | None:
    """Whether a level lies past the crossing: a budget that passes, or a load that no longer does."""
    passes = book.passes(arm, level)
    return passes if passes is None or book.question.knob == "budget" else not passes


def _path(book: _Book, arm: Arm) -> list[int]:
    """The levels of one arm that are measured or wanted now, in the order they came up."""
    if not book.question.search:
        return list(arm.levels)
    levels = arm.levels
    low, high = levels.index(arm.low), levels.index(arm.high)
    path = list(dict.fromkeys([levels[low], levels[high]]))
    while True:
        below, above = _past(book, arm, levels[low]), _past(book, arm, levels[high])
        if below is None or above is None:
            return path
        if below and low > 0:
            high, low = low, _outwards(levels, low, -1)
            path.append(levels[low])
        elif not above and high < len(levels) - 1:
            low, high = high, _outwards(levels, high, +1)
            path.append(levels[high])
        elif below or not above or high - low <= 1:
            return path  # closed, or the arm's levels end before the crossing
        else:
            middle = (low + high) // 2
            path.append(levels[middle])
            past = _past(book, arm, levels[middle])
            if past is None:
                return path
            low, high = (low, middle) if past else (middle, high)


def _outwards(levels: tuple[int, ...], index: int, direction: int) -> int:
    """The level about twice or half as far out, at least one step away."""
    if direction > 0:
        return next((i for i in range(index + 1, len(levels)) if levels[i] >= 2 * levels[index]), len(levels) - 1)
    return next((i for i in range(index - 1, -1, -1) if 2 * levels[i] <= levels[index]), 0)


def _pilot_crossing(book: _Book, arm: Arm, path: list[int]) -> int | None:
    """Index of the first level past the crossing, by the pilot replicates."""
    inside = [level for level in path if not _past(book, arm, level)]
    past = [level for level in path if _past(book, arm, level) and level > max(inside, default=0)]
    return arm.levels.index(min(past)) if past else None


def _guards(book: _Book, paths: list[list[int]]) -> list[list[int]]:
    """More levels around the crossing, in the arms that attain the answer."""
    question = book.question
    if not question.search or question.guard == 0:
        return [[] for _ in paths]
    found = [_pilot_crossing(book, arm, path) for arm, path in zip(question.arms, paths, strict=True)]
    values = [arm.levels[i] for arm, i in zip(question.arms, found, strict=True) if i is not None]
    out: list[list[int]] = []
    for arm, path, i in zip(question.arms, paths, found, strict=True):
        if i is None or arm.levels[i] != min(values):
            out.append([])
            continue
        near = range(max(0, i - 1 - question.guard), min(len(arm.levels), i + 1 + question.guard))
        out.append([arm.levels[k] for k in near if arm.levels[k] not in path])
    return out


def _answer(book: _Book, paths: list[list[int]]) -> Answer:
    question = book.question
    tables = [
        Table(levels=arm.levels, probed={level: tuple(book.scores(arm, level)) for level in sorted(path)})
        for arm, path in zip(question.arms, paths, strict=True)
    ]
    overall, each, best = cross(question, tables, meets)
    arms = tuple(
        ArmAnswer(arm.heads, crossing, tuple(table.probed), tuple(table.means()))
        for arm, table, crossing in zip(question.arms, tables, each, strict=True)
    )
    probes = tuple(_probes(book, paths))
    failed = sum(p.verdict.status is not Status.MEASURED for p in probes)
    odd = tuple(_non_monotone(book, paths))
    return Answer(overall, best, arms, probes, odd, failed, METHODS[question.knob])


def _probes(book: _Book, paths: list[list[int]]) -> Iterator[Probe]:
    for arm, path in zip(book.question.arms, paths, strict=True):
        for level in sorted(path):
            for run, run_id in book.runs(arm, level):
                yield Probe(arm.heads, level, run.replicate, run, book.verdicts[run_id])


def _non_monotone(book: _Book, paths: list[list[int]]) -> Iterator[tuple[int | None, int, int]]:
    """Adjacent probed levels that are in the wrong order: past the crossing, then not."""
    for arm, path in zip(book.question.arms, paths, strict=True):
        ordered = sorted(path)
        passed = [meets(book.question, book.scores(arm, level)) for level in ordered]
        wrong = (True, False) if book.question.knob == "budget" else (False, True)
        for i in range(len(ordered) - 1):
            if (passed[i], passed[i + 1]) == wrong:
                yield arm.heads, ordered[i], ordered[i + 1]
