"""Pairs of tokens, as a file has them, found in a model's vocabulary."""

from __future__ import annotations

from pathlib import Path

from keyspan.advice.checkpoints.layout import Layout
from keyspan.advice.recovery import Relation, relation_of
from keyspan.errors import BadInput
from keyspan.files.checkpoints import Checkpoint
from keyspan.files.pairs import Pairs, read_pairs
from keyspan.files.paths import name_of, shown
from keyspan.files.vocabularies import read_vocabulary

FEWEST = 2  # pairs; one cannot be shuffled


def read_relation(checkpoint: Checkpoint, layout: Layout, path: str | Path) -> Relation:
    """Read pairs of ids or words. A pair with a word that is not one token is left out, and counted."""
    pairs, name = read_pairs(path), name_of(path)
    items = checkpoint.shape(layout.embeddings.tokens)[0]
    found = _ids(pairs, items, name) if pairs.ids else _words(pairs, checkpoint, items, name)
    left_out = len(pairs.rows) - len(found)
    if len({token for token, _ in found.values()}) < 2 or len(found) < FEWEST:
        first = next((word for pair in pairs.rows if pair not in found for word in pair), pairs.rows[0][0])
        got = f"{len(found)} of {len(pairs.rows)}, without e.g. {shown(first)}"
        raise BadInput(f"`{name}` must relate words that are one token each, but got {got}. Give token ids or other words.")
    return relation_of(list(found.values()), list(found), left_out)


def _ids(pairs: Pairs, items: int, name: str) -> dict[tuple[str, str], tuple[int, int]]:
    for pair in pairs.rows:
        for field in pair:
            if int(field) >= items:
                raise BadInput(f"Token ids in `{name}` must be below {items}, but got {shown(field)}. Check the model.")
    return {pair: (int(pair[0]), int(pair[1])) for pair in pairs.rows}


def _words(pairs: Pairs, checkpoint: Checkpoint, items: int, name: str) -> dict[tuple[str, str], tuple[int, int]]:
    vocabulary = read_vocabulary(checkpoint.folder)
    if vocabulary is None:
        got = f"words such as {shown(pairs.rows[0][0])}, and no tokenizer.json, vocab.json or vocab.txt"
        raise BadInput(f"`{name}` must hold token ids, but got {got}. Give ids, or copy the tokenizer.")
    found = {}
    for pair in pairs.rows:
        source, target = vocabulary.find(pair[0]), vocabulary.find(pair[1])
        if source is not None and target is not None and max(source, target) < items:
            found[pair] = (source, target)
    return found
