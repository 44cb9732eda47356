"""What a layer knows of all pairs of tokens: the question (Dana, Pydi and Chevaleyre 2025)."""

from __future__ import annotations

from keyspan.lab import recipes
from keyspan.problems.pairs import PairLayer, Pairs
from keyspan.runners.questions import replicates, whole
from keyspan.specs import Arm, Question


def pairs_question(
    tokens: int, *, heads: int, d_key: int, d_model: int, seeds: int = 5, seed: int = 0, steps: int | None = None
) -> Question:
    """The accuracy on all pairs of `tokens` tokens of a layer trained by the recipe `association`."""
    tokens = whole(tokens, "tokens", "Try 50.")
    return Question(
        problem=Pairs(tokens=tokens),
        instrument=PairLayer(heads=heads, d_key=d_key, d_model=d_model),
        recipe=recipes.association() if steps is None else recipes.association(steps=steps),
        stopping=recipes.PAPER_STOPPING,
        arithmetic="fp32",
        knob="load",
        arms=(Arm(heads=None, levels=(tokens,), low=tokens, high=tokens),),
        replicates=replicates(seeds, seed),
        score="accuracy",
        target=0.99,
        guard=0,
        search=False,
    )
