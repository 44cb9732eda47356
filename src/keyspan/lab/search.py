"""Search: (question, verdicts so far) -> the members wanted next, or the answer. Pure: it trains and stores nothing.

The path of a search is a function of the question and of the verdicts on that path, never of what else is in a store, so
a search that is asked again, or was killed, walks the same path and gives the same answer. For every arm:

1. both ends of the bracket are measured, and the bracket is moved outwards until it holds the crossing;
2. bisection, all arms' candidates of a round together, until two adjacent levels disagree;
3. an arm that can no longer beat a budget that passes elsewhere is left alone (a question that climbs begins with one arm,
   and asks of the others first of all whether they hold at less than the best so far);
4. `guard` levels on both sides of the crossing are measured too, in the arms that attain it; of a load, also the levels
   at the multiples `beyond` of the crossing (more examples than are held, of which the largest part may be held).

A question whose goal is a peak walks another path, `peak`.

The first `pilot` replicates alone decide where to go. The answer is computed from all of them. A round knows the rounds
before it and nothing else, although the verdicts of later ones may be at hand: that is what keeps the path the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from keyspan.errors import BadInput
from keyspan.lab import peak
from keyspan.lab.crossing import Crossing, Table, cross, method_of
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


Memo = dict[tuple[int | None, int, int], list[tuple[Run, str]]]  # the runs of a level of an arm at a start, with their ids


def propose(question: Question, verdicts: Verdicts, memo: Memo | None = None) -> Wanted | Answer:
    """The members wanted next, or the answer if nothing is missing. verdicts: by run id

    memo: of an earlier call with this question; it saves making its runs again, and changes nothing else
    """
    book = _Book(question, verdicts, {} if memo is None else memo)
    paths: list[list[int]] = [[] for _ in question.arms]
    guarded = False
    while True:
        new = _round(book, paths)
        if not any(new) and not guarded:
            new, guarded = _guards(book, paths), True
        if not any(new):
            return _answer(book, paths)
        for path, levels in zip(paths, new, strict=True):
            path += levels
        wanted = [
            run for arm, path in zip(question.arms, paths, strict=True) for level in path for run in book.missing(arm, level)
        ]
        if wanted:
            unique = {run.run_id: run for run in wanted}
            return Wanted(tuple(unique.values()), book.seen)


class _Book:
    """The question with its verdicts looked up; remembers runs, whose ids cost a hash."""

    def __init__(self, question: Question, verdicts: Verdicts, memo: Memo) -> None:
        self.question, self.verdicts, self._runs = question, verdicts, memo
        self._seen: set[str] = set()

    @property
    def seen(self) -> int:
        """Members on the path that are measured."""
        return len(self._seen)

    def _begun(self, arm: Arm, level: int, start: int) -> list[tuple[Run, str]]:
        """One start of every replicate at a level."""
        key = (arm.heads, level, start)
        if key not in self._runs:
            self._runs[key] = [(run, run.run_id) for run in self.question.runs(arm, level, start)]
        return self._runs[key]

    def tries(self, arm: Arm, level: int) -> list[list[tuple[Run, str]]]:
        """The starts that every replicate has tried or must try now, all together: the next one where the last has missed
        the target, as long as it was near, and unless the level is lost already because all must hold it."""
        out = [[first] for first in self._begun(arm, level, 0)]
        for start in range(1, self.question.starts):
            last = [tried[-1][1] for tried in out]
            if not all(run_id in self.verdicts for run_id in last):
                break
            missed = [self._missed(run_id) for run_id in last]
            again = [miss and self._near(run_id) for miss, run_id in zip(missed, last, strict=True)]
            if not any(again) or (self.question.criterion == "all" and missed != again):
                break
            for tried, more, following in zip(out, again, self._begun(arm, level, start), strict=True):
                if more:
                    tried.append(following)
        return out

    def _missed(self, run_id: str) -> bool:
        verdict = self.verdicts[run_id]
        return not verdict.measured or self._score(verdict, run_id) < self.question.target

    def _near(self, run_id: str) -> bool:
        """Whether another start is worth a try after this one."""
        verdict = self.verdicts[run_id]
        return not verdict.measured or verdict.scores.get("f1_best", self._score(verdict, run_id)) >= self.question.near

    def missing(self, arm: Arm, level: int) -> list[Run]:
        runs = [known for tried in self.tries(arm, level) for known in tried]
        self._seen |= {run_id for _, run_id in runs if run_id in self.verdicts}
        return [run for run, run_id in runs if run_id not in self.verdicts]

    def scores(self, arm: Arm, level: int) -> list[float | None]:
        """The question's score of every replicate at a level, by its best start; None where every start failed."""
        return [max(self._known(tried), default=None) for tried in self.tries(arm, level)]

    def _known(self, tried: list[tuple[Run, str]]) -> list[float]:
        found = [(self.verdicts[run_id], run_id) for _, run_id in tried]
        return [self._score(verdict, run_id) for verdict, run_id in found if verdict.measured]

    def _score(self, verdict: Verdict, run_id: str) -> float:
        try:
            return verdict.score(self.question.score)
        except BadInput as error:
            got = str(error).rstrip(".")
            raise BadInput(f"{got} in the record of {run_id}. Remove it with `keyspan runs remove {run_id}`.") from error

    def mean(self, arm: Arm, level: int) -> float:
        """Mean score of the pilot at a level; a failed member counts as nothing."""
        scores = self.scores(arm, level)[: self.question.pilot]
        return sum(s or 0.0 for s in scores) / len(scores)

    def past(self, arm: Arm, level: int) -> bool:
        """Whether the pilot puts a level past the crossing: a budget that passes, or a load that no longer does."""
        passes = meets(self.question, self.scores(arm, level)[: self.question.pilot])
        return passes if self.question.knob == "budget" else not passes


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


def _round(book: _Book, paths: list[list[int]]) -> list[list[int]]:
    """The levels that every arm wants next, given the levels on its path so far."""
    if not book.question.search:
        return [[] if path else list(arm.levels) for arm, path in zip(book.question.arms, paths, strict=True)]
    if book.question.goal == "peak":
        arms = zip(book.question.arms, paths, strict=True)
        return [peak.following(arm.levels, arm.low, arm.high, {n: book.mean(arm, n) for n in path}) for arm, path in arms]
    best = min((c for c in _crossings(book, paths) if c is not None), default=None)
    if book.question.climb is not None:
        return _climb(book, paths, best)
    return [_next(book, arm, path, best) for arm, path in zip(book.question.arms, paths, strict=True)]


def _climb(book: _Book, paths: list[list[int]], best: int | None) -> list[list[int]]:
    """The first arm's levels; once it is closed, those of its neighbours, and on outwards as long as an arm is the best.

    How D_K* depends on the heads has one valley (docs/law.md), so that an arm beyond one that cannot beat its neighbour is
    left alone. Where no arm so far reaches the target at all, the next ones are searched as the first.
    """
    arms, first = book.question.arms, book.question.climb
    assert first is not None
    new: list[list[int]] = [[] for _ in arms]
    new[first] = _next(book, arms[first], paths[first], best)
    if new[first]:
        return new
    found = _crossings(book, paths)
    for step in (-1, 1):
        here = first
        while 0 <= here + step < len(arms) and (paths[here + step] or found[here] == best):
            here += step
            new[here] = _challenge(book, arms[here], paths[here], best)
            if new[here]:
                break
    return new


def _challenge(book: _Book, arm: Arm, path: list[int], best: int | None) -> list[int]:
    """What an arm wants next that is tried against the best so far: first of all, to hold at less."""
    if best is None:
        return _next(book, arm, path, best)
    if not path:
        return [level for level in arm.levels if level < best][-1:]
    held = [level for level in path if book.past(arm, level)]
    if not held:
        return []
    low = min(arm.low, *held)
    return [low] if low not in path else _next(book, replace(arm, low=low, high=min(held)), path, best)


def _crossings(book: _Book, paths: list[list[int]]) -> list[int | None]:
    """The first level past the crossing of every arm, by the pilot replicates."""
    found = [_crossing(book, arm, path) for arm, path in zip(book.question.arms, paths, strict=True)]
    return [None if i is None else arm.levels[i] for arm, i in zip(book.question.arms, found, strict=True)]


def _next(book: _Book, arm: Arm, path: list[int], best: int | None) -> list[int]:
    """Both ends of the bracket, then one level at a time, until the crossing is closed or cannot matter."""
    levels = arm.levels
    low, high = levels.index(arm.low), levels.index(arm.high)
    if not path:
        return list(dict.fromkeys([levels[low], levels[high]]))
    short = [level for level in path if not book.past(arm, level)]
    if best is not None and short and levels[min(levels.index(max(short)) + 1, len(levels) - 1)] > best:
        return []  # whatever this arm's crossing is, another arm has a smaller one
    while True:
        below, above = book.past(arm, levels[low]), book.past(arm, levels[high])
        if below and low > 0:
            high, low = low, _outwards(levels, low, -1)
            candidate = low
        elif not above and high < len(levels) - 1:
            low, high = high, _outwards(levels, high, +1)
            candidate = high
        elif below or not above or high - low <= 1:
            return []  # closed, or the arm's levels end before the crossing
        else:
            candidate = (low + high) // 2
        if levels[candidate] not in path:
            return [levels[candidate]]
        if low < candidate < high:
            low, high = (low, candidate) if book.past(arm, levels[candidate]) else (candidate, high)


def _outwards(levels: tuple[int, ...], index: int, direction: int) -> int:
    """The level about twice or half as far out, at least one step away."""
    if direction > 0:
        return next((i for i in range(index + 1, len(levels)) if levels[i] >= 2 * levels[index]), len(levels) - 1)
    return next((i for i in range(index - 1, -1, -1) if 2 * levels[i] <= levels[index]), 0)


def _crossing(book: _Book, arm: Arm, path: list[int]) -> int | None:
    """Index of the first level past the crossing, by the pilot replicates."""
    short = max((level for level in path if not book.past(arm, level)), default=0)
    past = [level for level in path if level > short]
    return arm.levels.index(min(past)) if past else None


def _guards(book: _Book, paths: list[list[int]]) -> list[list[int]]:
    """More levels around the crossing, in the arms that attain the answer."""
    question = book.question
    if not question.search or (question.guard == 0 and not question.beyond) or question.goal == "peak":
        return [[] for _ in paths]
    found = _crossings(book, paths)
    best = min((level for level in found if level is not None), default=None)
    out: list[list[int]] = []
    for arm, path, level in zip(question.arms, paths, found, strict=True):
        if level is None or level != best:
            out.append([])
            continue
        i = arm.levels.index(level)
        near = range(max(0, i - 1 - question.guard), min(len(arm.levels), i + 1 + question.guard)) if question.guard else ()
        wanted = [*(arm.levels[k] for k in near), *(_nearest(arm, times * level) for times in question.beyond)]
        out.append([level for level in dict.fromkeys(wanted) if level not in path])
    return out


def _nearest(arm: Arm, size: float) -> int:
    """The smallest level of an arm that is not below a size, or its last."""
    return next((level for level in arm.levels if level >= size), arm.levels[-1])


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
    odd = tuple(_non_monotone(book, paths)) if question.goal == "crossing" else ()
    return Answer(overall, best, arms, probes, odd, failed, method_of(question))


def _probes(book: _Book, paths: list[list[int]]) -> Iterator[Probe]:
    for arm, path in zip(book.question.arms, paths, strict=True):
        for level in sorted(path):
            for run, run_id in (tried for replicate in book.tries(arm, level) for tried in replicate):
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
