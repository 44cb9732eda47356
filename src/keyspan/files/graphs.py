"""Graphs from files: text of `source,target`, SciPy's sparse `.npz`, and networkx graphs in memory."""

from __future__ import annotations

import importlib
import re
from array import array
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, MissingExtra
from keyspan.files import npz
from keyspan.files.edges import MAX_ITEMS, canonical_edges
from keyspan.files.paths import name_of, reading, replacing, shown

LIMIT = 2**30  # bytes of text: some hundred million edges
LONGEST = 2**16  # bytes of a line; a file without line ends is not a table

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER_LIKE = re.compile(r"[+-]?(\.?[0-9].*|nan|inf|infinity)", re.IGNORECASE | re.DOTALL)


def read_graph(path: str | Path) -> NDArray[np.int64]:
    """Read a directed graph, by the suffix of its file.

    `.npz`: a sparse square matrix saved by SciPy, nonzero entries are edges. Anything else: UTF-8 text, one
    `source,target` a line; `.csv` is split at commas, `.tsv` at tabs, other suffixes at what the first row has. A
    header, blank lines and lines that begin with `#` are skipped.    returns: (edges, 2), unique, sorted
    """
    if Path(path).suffix.lower() == ".npz":
        return npz.read_adjacency(path)
    name = name_of(path)
    items, lines = array("q"), array("q")
    with reading(path, LIMIT) as (handle, _):
        for row, (line, source, target) in enumerate(_rows(handle, name, Path(path).suffix.lower())):
            if row == 0 and _is_header(source, target, name):
                continue
            items.append(_item(source, name, line))
            items.append(_item(target, name, line))
            lines.append(line)
    edges = np.array(items, dtype=np.int64).reshape(-1, 2)
    return canonical_edges(edges, name, np.array(lines, dtype=np.int64))


def write_graph(edges: NDArray[np.integer[Any]], path: str | Path) -> None:
    """Write a graph as CSV with a header (as TSV when the suffix is `.tsv`), sorted. edges: (edges, 2)"""
    rows = canonical_edges(edges, "edges")
    suffix = Path(path).suffix.lower()
    if suffix == ".npz":
        raise BadInput(f"A graph must be written as text, but got `{name_of(path)}`. End the name in .csv or .tsv.")
    delimiter = "\t" if suffix == ".tsv" else ","
    with replacing(path) as handle:
        handle.write(f"source{delimiter}target\n".encode())
        for start in range(0, len(rows), 2**16):
            block = rows[start : start + 2**16].tolist()
            handle.write("".join(f"{source}{delimiter}{target}\n" for source, target in block).encode())


def from_networkx(graph: Any) -> NDArray[np.int64]:
    """The edges of a networkx graph whose nodes are the integers 0..m-1; an undirected edge counts both ways.

    returns: (edges, 2), unique, sorted lexicographically
    """
    try:
        networkx = importlib.import_module("networkx")
    except ImportError:
        raise MissingExtra("Graphs from networkx need it installed. Use: pip install 'keyspan[graph]'.") from None
    if not isinstance(graph, networkx.Graph):
        raise BadInput(f"A graph must be a networkx graph, but got {type(graph).__name__}. Pass nx.DiGraph.")
    odd = [node for node in graph.nodes if not _is_node(node, len(graph))]
    if odd:
        raise BadInput(
            f"The nodes of a networkx graph must be the integers 0..{len(graph) - 1}, but got {shown(odd[0])}. "
            "Relabel them with networkx.convert_node_labels_to_integers."
        )
    pairs = [(int(u), int(v)) for u, v in graph.edges()]
    if not graph.is_directed():
        pairs += [(v, u) for u, v in pairs if u != v]
    return canonical_edges(np.array(pairs, dtype=np.int64).reshape(-1, 2), "the networkx graph")


def _is_node(node: object, count: int) -> bool:
    return isinstance(node, int | np.integer) and not isinstance(node, bool) and 0 <= int(node) < count


def _rows(handle: BinaryIO, name: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """The rows of a table of two columns. yields: (line number, field, field)"""
    delimiter = {".csv": ",", ".tsv": "\t"}.get(suffix)
    for line in count(1):
        raw = handle.readline(LONGEST + 1)
        if not raw:
            return
        text = _text(raw, name, line)
        if not text or text.startswith("#"):
            continue
        if delimiter is None:
            delimiter = "\t" if "\t" in text else ","
        fields = text.split(delimiter)
        if len(fields) != 2:
            mark = "a tab" if delimiter == "\t" else "a comma"
            raise BadInput(
                f"Every row of `{name}` must have two fields, but got {len(fields)} in {shown(text)} on line {line}. "
                f"Write source and target with {mark} between them."
            )
        yield line, fields[0].strip().strip('"'), fields[1].strip().strip('"')


def _text(raw: bytes, name: str, line: int) -> str:
    if len(raw) > LONGEST:
        raise BadInput(f"A line of `{name}` must be short, but got over {LONGEST} bytes on line {line}. Use rows.")
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x}"
        raise BadInput(f"`{name}` must be UTF-8 text, but got {byte} on line {line}. Save it as UTF-8 CSV.") from None
    if "\0" in text:
        raise BadInput(f"`{name}` must be text, but got a zero byte on line {line}. Save it as UTF-8 CSV.")
    return text.strip()


def _is_header(source: str, target: str, name: str) -> bool:
    """Whether the first row holds two names rather than two numbers."""
    if not source or not target or _NUMBER_LIKE.fullmatch(source) or _NUMBER_LIKE.fullmatch(target):
        return False
    if (source.lower(), target.lower()) == ("target", "source"):
        raise BadInput(f"The columns of `{name}` must be source,target, but got target,source. Swap the columns.")
    return True


def _item(text: str, name: str, line: int) -> int:
    """One field as an item number."""
    if not _INTEGER.fullmatch(text):
        raise BadInput(f"Items in `{name}` must be integers, but got {shown(text)} on line {line}. Number them from 0.")
    value = int(text) if len(text) <= 40 else (-MAX_ITEMS if text[0] == "-" else MAX_ITEMS)
    if value < 0:
        raise BadInput(f"Items in `{name}` must be >= 0, but got {shown(text)} on line {line}. Number them from 0.")
    if value >= MAX_ITEMS:
        raise BadInput(f"Items in `{name}` must be below 2^31, but got {shown(text)} on line {line}. Count from 0.")
    return value
