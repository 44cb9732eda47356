"""Graphs, embeddings, tokens of contexts and sequences, by the name of a family or the path of a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keyspan.errors import BadInput
from keyspan.files.arrays import read_array
from keyspan.files.contents import Contents
from keyspan.files.graphs import read_graph
from keyspan.files.tokens import read_tokens
from keyspan.problems import embeddings as emb
from keyspan.problems import graphs
from keyspan.problems.contexts import TOKENS, Tokens
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.sequences import Sequences
from keyspan.problems.sources import Source


def looks_like_file(name: str) -> bool:
    """Whether a name is meant as a path: it has a suffix or a separator, or something lies there.

    `file` is how a spec calls what came from one, so as a name it can only be meant as a path.
    """
    return name == "file" or "." in name or os.sep in name or os.path.exists(name)


def graph_from(
    name: str,
    contents: Contents,
    *,
    items: int | None = None,
    edges: int | None = None,
    degree: int | None = None,
    exponent: float | None = None,
    loops: bool = True,
) -> Graph:
    """A graph spec. A file is read now, kept in `contents` by its hash, and known by that from then on."""
    if name in graphs.FAMILIES[:-1] or not looks_like_file(name):
        if name in ("regular", "out-regular") and degree is None:
            degree = 2
        return Graph(name=name, edges=edges, degree=degree, exponent=exponent, loops=loops)
    for flag, value in (("--edges", edges), ("--degree", degree), ("--exponent", exponent)):
        if value is not None:
            raise BadInput(f"`{flag}` must be left out with a graph file, but got {value}. The file says what its edges are.")
    rows = read_graph(name)
    graphs.check_edges(rows, int(rows.max(initial=0)) + 1 if items is None else items, loops)
    return Graph(name="file", content=contents.put(rows, source=name), edges=len(rows))


def embeddings_from(
    name: str,
    contents: Contents,
    *,
    items: int | None = None,
    d_model: int | None = None,
    ones: int | None = None,
    clusters: int | None = None,
    correlation: float | None = None,
) -> Embeddings:
    """An embeddings spec; a file is read now and kept by its hash.

    sparse without `ones` takes an eighth of d_model; clustered takes an eighth of the items as clusters, and 0.5.
    """
    given = {"--ones": ones, "--clusters": clusters, "--correlation": correlation}
    if name in emb.FAMILIES[:-1] or not looks_like_file(name):
        if name == "sparse" and ones is None and d_model is not None:
            ones = max(1, d_model // 8)
        if name == "clustered":
            clusters = max(1, (items or 8) // 8) if clusters is None else clusters
            correlation = 0.5 if correlation is None else correlation
        return Embeddings(name=name, ones=ones, clusters=clusters, correlation=correlation)
    for flag, value in given.items():
        if value is not None:
            raise BadInput(f"`{flag}` must be left out with an embeddings file, but got {value}. The file has its rows.")
    rows = read_array(name)
    if (items is not None and d_model is not None) and rows.shape != (items, d_model):
        fix = f"Use --items {rows.shape[0]} --d-model {rows.shape[1]}."
        raise BadInput(f"The embeddings must be (items, d_model) = ({items}, {d_model}), but got {rows.shape}. {fix}")
    return Embeddings(name="file", content=contents.put(np.ascontiguousarray(rows), source=name))


def sequences_from(
    contents: Contents,
    *,
    length: int,
    file: str | Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
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
) -> Sequences:
    """A problem of sequences. A file is read now and kept by its hash; its vocabulary is its own."""
    if file is not None:
        options = {"--vocab": vocabulary, "--source": None if source == "uniform" else source, "--graph": graph}
        for flag, value in options.items():
            if value is not None:
                raise BadInput(f"`{flag}` must be left out with a file, but got {value}. The file says what its tokens are.")
        held = read_tokens(file, length, tokenizer)
        kept = Source(name="file", content=contents.put(held.tokens.astype(np.float64), source=file))
        most = len(held.tokens)
        if library > most:
            raise BadInput(f"`--library <= {most}`, all that the file holds, must hold, but got {library}. Ask for fewer.")
        return Sequences(length=length, vocabulary=held.vocabulary, prompt=prompt, source=kept, library=library)
    if tokenizer is not None:
        raise BadInput(f"`--tokenizer` must go with a file, but got {tokenizer} and none. Give --file, or leave it out.")
    vocabulary = 64 if vocabulary is None else vocabulary
    graphed = source in ("triplets", "walks")
    options_of_graph = {"edges": edges, "degree": degree, "exponent": exponent if graphed else None}
    made = None
    if graph is not None or (graphed and (edges is not None or degree is not None)):
        usual = "permutation" if source == "triplets" else "out-regular"
        items = vocabulary - ((relations or 1) if source == "triplets" else 0)
        made = graph_from(graph or usual, contents, items=items, **options_of_graph)  # type: ignore[arg-type]
    asked = Source(
        name=source,
        prefixes=prefixes,
        exponent=None if graphed else exponent,
        spread=spread,
        relations=relations,
        graph=made,
    )
    return Sequences(length=length, vocabulary=vocabulary, prompt=prompt, source=asked, library=library)


class GivenTokens(NamedTuple):
    """A tokens spec, and how many rows its file has (None for a family)."""

    tokens: Tokens
    rows: int | None

    @property
    def content(self) -> str | None:
        """The hash of the file's rows."""
        return self.tokens.content


def tokens_from(name: str, contents: Contents, *, d_model: int | None = None) -> GivenTokens:
    """A tokens spec; a file is read now and kept by its hash."""
    if name in TOKENS[:-1] or not looks_like_file(name):
        return GivenTokens(Tokens(name=name), None)
    rows = read_array(name)
    if d_model is not None and rows.shape[1] != d_model:
        raise BadInput(f"`--d-model` must be the columns of the tokens, but got {d_model}. Use --d-model {rows.shape[1]}.")
    return GivenTokens(Tokens(name="file", content=contents.put(np.ascontiguousarray(rows), source=name)), len(rows))
