"""Problem families as a sweep asks for them: the fields of a cell, the questions it turns into, the row of its answer.

A family is added here, in one place (`FAMILIES`): a function whose keyword arguments are the fields of a cell, with types and
defaults, and which returns the cell's questions; and a function that says what their answers are called in a table.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from keyspan.decoders import Decoder
from keyspan.errors import BadInput, shown
from keyspan.files.contents import Contents
from keyspan.lab.search import Answer
from keyspan.problems.contexts import Labels
from keyspan.problems.relations import Relations
from keyspan.runners import inputs
from keyspan.runners.grids import Point, parsed
from keyspan.runners.labels import TARGET, labels_question, yielded
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.runners.sequences import ask_sequences, read_cell
from keyspan.specs import Question
from keyspan.theory.bounds import law

Row = dict[str, Any]
T = typing.TypeVar("T")


@dataclass
class Context:
    """What all cells of a sweep share. folder: where relative paths begin    seed: the command line's

    A file that ten thousand cells name is read once.
    """

    contents: Contents
    folder: Path
    seed: int = 0
    _read: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """The hashes of what was read from files."""
        return sorted(str(found.content) for found in self._read.values())

    def once(self, read: Callable[..., T], name: str, **options: Any) -> T:
        """A graph or item vectors, by the name of a family or of a file."""
        if "." not in name and os.sep not in name:
            return read(name, self.contents, **options)
        key = (read, name, *options.items())
        if key not in self._read:
            self._read[key] = read(str(self.folder / name), self.contents, **options)
        found: T = self._read[key]
        return found


@dataclass(frozen=True)
class Family:
    """build: a cell's questions    row: what their answers came to, under names that a CSV of cells has, too"""

    build: Callable[..., list[Question]]
    row: Callable[[Sequence[Question], Sequence[Answer]], Row]


def _relations(
    context: Context,
    *,
    items: int,
    d_model: int,
    graph: str = "permutation",
    edges: int | None = None,
    degree: int | None = None,
    exponent: float | None = None,
    loops: bool = True,
    embeddings: str = "gaussian",
    ones: int | None = None,
    heads: list[int] | int | None = None,
    key_budgets: list[int] | int | None = None,
    seeds: int = 3,
    seed: int | None = None,
    target: float | None = None,
    recipe: str = "gradient",
    criterion: str | None = None,
    threshold: str = "own",
    steps: int | None = None,
    arithmetic: str = "fp32",
) -> list[Question]:
    """As `keyspan measure relations` asks."""
    options = {"edges": edges, "degree": degree, "exponent": exponent, "loops": loops}
    problem = Relations(
        items=items,
        d_model=d_model,
        graph=context.once(inputs.graph_from, graph, items=items, **options),
        embeddings=context.once(inputs.embeddings_from, embeddings, items=items, d_model=d_model, ones=ones),
    )
    asked = {"target": target, "recipe": recipe, "criterion": criterion, "threshold": threshold}
    question = relations_question(
        problem,
        heads=heads,
        key_budgets=key_budgets,
        seeds=seeds,
        seed=context.seed if seed is None else seed,
        steps=steps,
        arithmetic=arithmetic,
        **asked,  # type: ignore[arg-type]
    )
    return [question]


def _relations_row(questions: Sequence[Question], answers: Sequence[Answer]) -> Row:
    (question,), (answer,) = questions, answers
    problem, crossing = question.problem, answer.crossing
    assert isinstance(problem, Relations)
    found = law(problem.edges, problem.d_model)
    best = None if answer.best is None else answer.arms[answer.best].heads
    estimate = crossing.estimate
    ratio = estimate / found if estimate and found else None
    interval = {"key_budget": _int(estimate), "low": _int(crossing.low), "high": _int(crossing.high)}
    return {"edges": problem.edges} | interval | {"best_heads": best, "law": found, "ratio": ratio}


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _dichotomies(context: Context, *, dimension: int, seeds: int = 200, seed: int | None = None) -> list[Question]:
    """As `keyspan calibrate` asks: the separator's capacity, and the gradient's."""
    return calibration_questions(dimension, seeds=seeds, seed=context.seed if seed is None else seed)


def _dichotomies_row(questions: Sequence[Question], answers: Sequence[Answer]) -> Row:
    solver, gradient = answers
    crossing = solver.crossing
    interval = {"examples": crossing.estimate, "low": crossing.low, "high": crossing.high}
    return interval | {"gradient": gradient.crossing.estimate}


def _labels(
    sweep: Context,
    *,
    heads: int,
    d_head: int,
    context: int,
    d_model: int,
    contexts: str = "random",
    task: str = "classes",
    classes: int | None = None,
    tokens: str = "uniform",
    examples: list[int] | int | None = None,
    seeds: int = 3,
    seed: int | None = None,
    target: float = TARGET,
    recipe: str = "fast",
    steps: int | None = None,
    arithmetic: str = "fp32",
) -> list[Question]:
    """As `keyspan measure labels` asks."""
    made = sweep.once(inputs.tokens_from, tokens, d_model=d_model)
    problem = Labels(context=context, d_model=d_model, contexts=contexts, task=task, classes=classes, tokens=made.tokens)
    question = labels_question(
        problem,
        heads=heads,
        d_head=d_head,
        examples=examples,
        seeds=seeds,
        seed=sweep.seed if seed is None else seed,
        target=target,
        recipe=recipe,
        steps=steps,
        arithmetic=arithmetic,
        rows=made.rows if contexts == "fixed" else None,
    )
    return [question]


def _labels_row(questions: Sequence[Question], answers: Sequence[Answer]) -> Row:
    (question,), (answer,) = questions, answers
    crossing, most = answer.crossing, yielded(question, answer.probes)
    found = {"largest": _int(crossing.estimate), "low": _int(crossing.low), "high": _int(crossing.high)}
    return found | dict(zip(("yield_low", "yield", "yield_high"), map(_int, most or (None,) * 3), strict=True))


def _sequences(
    context: Context,
    *,
    heads: int,
    length: int,
    d_model: int,
    d_head: int = 0,
    vocab: int | None = None,
    file: str | None = None,
    tokenizer: str | None = None,
    prompt: int = 2,
    library: int = 0,
    source: str = "uniform",
    prefixes: str = "",
    exponent: float | None = None,
    spread: float | None = None,
    relations: int | None = None,
    graph: str | None = None,
    edges: int | None = None,
    degree: int | None = None,
    measure: str | None = None,
    regime: str = "saturated",
    layers: int = 1,
    attention: str = "softmax",
    window: int | None = None,
    activation: str = "gelu",
    ff: str = "trained",
    positions: str = "learned",
    norm: str = "pre",
    tied: bool = False,
    seeds: int = 3,
    seed: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    arithmetic: str = "fp32",
) -> list[Question]:
    """As `keyspan measure sequences` asks; where saturated, steps and twice as many."""
    problem = inputs.sequences_from(
        context.contents,
        file=None if file is None else context.folder / file,
        tokenizer=tokenizer,
        length=length,
        vocabulary=vocab,
        prompt=prompt,
        library=library,
        source=source,
        prefixes=prefixes,
        exponent=exponent,
        spread=spread,
        relations=relations,
        graph=graph,
        edges=edges,
        degree=degree,
    )
    decoder = Decoder(
        heads=heads,
        d_model=d_model,
        d_head=d_head,
        layers=layers,
        attention=attention,
        window=window,
        activation=activation,
        ff=ff,
        positions=positions,
        norm=norm,
        tied=tied,
    )
    asked = ask_sequences(
        problem,
        decoder=decoder,
        measure=measure,
        regime=regime,
        seeds=seeds,
        seed=context.seed if seed is None else seed,
        steps=steps,
        batch=batch,
        arithmetic=arithmetic,
        contents=context.contents,
    )
    return list(asked.questions)


def _sequences_row(questions: Sequence[Question], answers: Sequence[Answer]) -> Row:
    cell = read_cell(questions, answers)
    found = {name: getattr(cell, name) for name in ("capacity", "low", "high", "mls", "status", "moved", "parameters")}
    return found | {"bits_per_parameter": cell.stored_per_parameter}


FAMILIES: dict[str, Family] = {
    "relations": Family(_relations, _relations_row),
    "labels": Family(_labels, _labels_row),
    "sequences": Family(_sequences, _sequences_row),
    "dichotomies": Family(_dichotomies, _dichotomies_row),
}


def family_of(name: str, where: str) -> Family:
    """A family by its name."""
    if name not in FAMILIES:
        raise BadInput(f"`family` of {where} must be one of {', '.join(FAMILIES)}, but got {shown(name)}. Choose one.")
    return FAMILIES[name]


@cache
def _model(name: str) -> Any:
    """The fields of a family's cells, for pydantic: what its `build` says of them."""
    from pydantic import ConfigDict, create_model

    build = FAMILIES[name].build
    hints = typing.get_type_hints(build)
    parameters = [p for p in inspect.signature(build).parameters.values() if p.kind is p.KEYWORD_ONLY]
    fields: dict[str, Any] = {p.name: (hints[p.name], ... if p.default is p.empty else p.default) for p in parameters}
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(f"{name}-cell", __config__=config, **fields)


def questions_of(point: Point, context: Context) -> list[Question]:
    """The questions of a cell; what its fields say is checked, and a rule that they break is said with the place."""
    family = family_of(point.family, point.where)
    cell = parsed(_model(point.family), dict(point.fields), point.where)
    try:
        return family.build(context, **{name: getattr(cell, name) for name in type(cell).model_fields})
    except BadInput as error:
        fields: Mapping[str, Any] = {k: v for k, v in point.fields.items() if not isinstance(v, list)}
        raise BadInput(f"{point.where}, at {shown(fields)}: {error}") from None
