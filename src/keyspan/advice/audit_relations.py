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

FEWEST = 2  # different pairs; one cannot be shuffled


def read_relation(checkpoint: Checkpoint, layout: Layout, path: str | Path) -> Relation:
    """Read pairs of ids or words. A pair with a word that is not one token is left out, and counted."""
    pairs, name = read_pairs(path), name_of(path)
    items = checkpoint.shape(layout.embeddings.tokens)[0]
    tokens = _ids(pairs, items, name) if pairs.ids else _words(pairs, checkpoint, items, name)
    found = {pair: (tokens[pair[0]], tokens[pair[1]]) for pair in pairs.rows if tokens.keys() >= set(pair)}
    if len(set(found.values())) < FEWEST:
        missing = next((f", without {shown(word)}" for pair in pairs.rows for word in pair if word not in tokens), "")
        got = f"{len(found)} of {len(pairs.rows)}{missing}"
        raise BadInput(f"`{name}` must relate two pairs of words of one token each, but got {got}. Give others, or ids.")
    return relation_of(list(found.values()), list(found), len(pairs.rows) - len(found))


def _ids(pairs: Pairs, items: int, name: str) -> dict[str, int]:
    """Token ids by how they are written; each has to be one."""
    tokens = {field: int(field) for pair in pairs.rows for field in pair}
    for field, token in tokens.items():
        if token >= items:
            raise BadInput(f"Token ids in `{name}` must be below {items}, but got {shown(field)}. Check the model.")
    return tokens


def _words(pairs: Pairs, checkpoint: Checkpoint, items: int, name: str) -> dict[str, int]:
    """Token ids of those words that are one token."""
    vocabulary = read_vocabulary(checkpoint.folder)
    if vocabulary is None:
        got = f"words such as {shown(pairs.rows[0][0])}, and no tokenizer.json, vocab.json or vocab.txt"
        raise BadInput(f"`{name}` must hold token ids, but got {got}. Give ids, or copy the tokenizer.")
    looked = {word: vocabulary.find(word) for pair in pairs.rows for word in pair}
    return {word: token for word, token in looked.items() if token is not None and token < items}
