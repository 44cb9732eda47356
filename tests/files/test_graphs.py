"""Graphs as text, and from networkx."""

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.files.refusals import label, refused

from keyspan.errors import MissingExtra
from keyspan.files.edges import canonical_edges
from keyspan.files.graphs import from_networkx, read_graph, write_graph

EDGES = [[0, 3], [0, 5], [2, 2], [7, 1]]
ids = st.integers(0, 2**31 - 1)
edge_lists = st.lists(st.tuples(ids, ids), min_size=1, max_size=30, unique=True)


@pytest.mark.parametrize(
    "name, text",
    [
        ("plain.csv", "7,1\n0,5\n2,2\n0,3\n"),
        ("header.csv", "source,target\n7,1\n0,5\n2,2\n0,3"),
        ("names.csv", "from,to\n7,1\n0,5\n2,2\n0,3"),
        ("quoted.csv", '"source","target"\n"7","1"\n0,5\n2,2\n0,3\n'),
        ("bom.csv", "\ufeffsource,target\n7,1\n0,5\n2,2\n0,3\n"),
        ("bom-only.csv", "\ufeff7,1\n0,5\n2,2\n0,3\n"),
        ("windows.csv", "source,target\r\n7,1\r\n0,5\r\n2,2\r\n0,3\r\n"),
        ("comments.csv", "# a graph\n\nsource,target\n#\n 7 , 1 \n\n0,5\n2,2\n  # done\n0,3\n\n"),
        ("zeros.csv", "007,+1\n0,05\n2,2\n-0,3\n"),
        ("tabs.tsv", "source\ttarget\n7\t1\n0\t5\n2\t2\n0\t3\n"),
        ("tabs.txt", "7\t1\n0\t5\n2\t2\n0\t3\n"),
        ("commas.edges", "# x\ty\n7,1\n0,5\n2,2\n0,3\n"),
        ("UPPER.CSV", "7,1\n0,5\n2,2\n0,3\n"),
    ],
)
def test_text_is_read_and_sorted(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    edges = read_graph(path)
    assert edges.dtype == np.int64 and edges.tolist() == EDGES
    assert read_graph(str(path)).tolist() == EDGES


@pytest.mark.parametrize(
    "name, content, mentions",
    [
        ("g.csv", b"0,1\n2\n", ("g.csv", "line 2", "1 in '2'", "a comma")),
        ("g.csv", b"0,1\n2,3,4\n", ("line 2", "3 in '2,3,4'")),
        ("g.csv", b"source,target,weight\n0,1,5\n", ("line 1", "two fields", "3 in")),
        ("g.csv", b"0\t1\n", ("line 1", "a comma")),
        ("g.tsv", b"0,1\n", ("line 1", "a tab")),
        ("g.txt", b"0 1\n", ("line 1", "'0 1'")),
        ("g.csv", b"0,1\r2,3\r", ("line 1", "3 in")),
        ("g.csv", b"# c\n\n0,1\n1.5,2\n", ("integers", "'1.5'", "line 4")),
        ("g.csv", b"1.5,2\n", ("integers", "'1.5'", "line 1")),
        ("g.csv", b"1,2.0\n", ("'2.0'",)),
        ("g.csv", b"nan,nan\n", ("'nan'", "line 1")),
        ("g.csv", b"0,1\n,2\n", ("''", "line 2")),
        ("g.csv", b",\n", ("''", "line 1")),
        ("g.csv", b"0,1\na,b\n", ("'a'", "line 2")),
        ("g.csv", b"0,1\n1_0,2\n", ("'1_0'", "line 2")),
        ("g.csv", "0,1\n\u0661,2\n".encode(), ("integers", "line 2")),
        ("g.csv", b"0,-3\n", (">= 0", "'-3'", "line 1")),
        ("g.csv", b"0,1\n0,2147483648\n", ("2^31", "'2147483648'", "line 2")),
        ("g.csv", b"0," + b"9" * 5000 + b"\n", ("2^31", "999", "line 1")),
        ("g.csv", b"0,-" + b"9" * 5000 + b"\n", (">= 0", "line 1")),
        ("g.csv", b"3,4\n0,1\n\n3,4\n0,1\n", ("(3, 4)", "lines 1 and 4")),
        ("g.csv", b"a,b\n3,4\n3,4\n3,4\n", ("(3, 4)", "lines 2 and 3")),
        ("g.csv", b"target,source\n0,1\n", ("source,target", "Swap")),
        ("g.csv", b"source,target\n", ("at least one edge",)),
        ("g.csv", b"\n\n# nothing\n", ("at least one edge",)),
        ("g.csv", b"0,1\n\xff\xfe\n", ("UTF-8", "0xff", "line 2")),
        ("g.csv", "0,1\n".encode("utf-16"), ("UTF-8", "0xff", "line 1")),
        ("g.csv", b"\x00\x01\x02,\x03", ("zero byte", "line 1")),
        ("g.csv", b"0,1\n" + b"7" * 70_000, ("line 2", "65536 bytes")),
        ("g.csv", b"0,1\x1b[31m\n", ("\\x1b", "line 1")),
    ],
    ids=label,
)
def test_bad_text_is_refused(tmp_path: Path, name: str, content: bytes, mentions: tuple[str, ...]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    refused(lambda: read_graph(path), *mentions)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, suffix=st.sampled_from([".csv", ".tsv", ".txt"]))
def test_text_round_trip(tmp_path: Path, edges: list[tuple[int, int]], suffix: str) -> None:
    path = tmp_path / f"graph{suffix}"
    write_graph(np.array(edges), path)
    assert [tuple(edge) for edge in read_graph(path).tolist()] == sorted(edges)
    assert path.read_text().splitlines()[0] in ("source,target", "source\ttarget")


def test_writing_is_checked(tmp_path: Path) -> None:
    refused(lambda: write_graph(np.array([[0, 1], [0, 1]]), tmp_path / "g.csv"), "(0, 1)", "twice")
    refused(lambda: write_graph(np.array([[0, 1]]), tmp_path / "g.npz"), "g.npz", ".csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "edges, mentions",
    [
        (np.zeros((3, 5), dtype=np.int64), ("(n, 2)", "(3, 5)")),
        (np.zeros(7, dtype=np.int64), ("(7,)",)),
        (np.zeros((0, 2), dtype=np.int64), ("at least one edge",)),
        (np.array([[0.0, 1.0]]), ("integers", "float64")),
        (np.array([[True, False]]), ("integers", "bool")),
        ([[0, 1], [2]], ("several lengths",)),
        ([[0, 2**70]], ("integers", "object")),
        (np.array([[0, 2**63 + 5]], dtype=np.uint64), ("2^31", str(2**63 + 5))),
        (np.array([[-1, 0]], dtype=np.int8), (">= 0", "-1")),
    ],
    ids=label,
)
def test_bad_edges_are_refused(edges: object, mentions: tuple[str, ...]) -> None:
    refused(lambda: canonical_edges(edges, "edges"), *mentions)  # type: ignore[arg-type]


@given(edges=edge_lists)
def test_canonical_edges_sort_as_pairs_do(edges: list[tuple[int, int]]) -> None:
    assert [tuple(edge) for edge in canonical_edges(edges, "edges").tolist()] == sorted(edges)


def test_networkx_directed_and_undirected() -> None:
    directed = nx.DiGraph([(0, 1), (1, 0), (2, 2), (4, 3)])
    assert from_networkx(directed).tolist() == [[0, 1], [1, 0], [2, 2], [4, 3]]
    undirected = nx.Graph([(1, 0), (2, 2), (np.int64(3), 1)])
    assert from_networkx(undirected).tolist() == [[0, 1], [1, 0], [1, 3], [2, 2], [3, 1]]


def test_bad_networkx_graphs_are_refused() -> None:
    refused(lambda: from_networkx(nx.DiGraph([("a", 0)])), "0..1", "'a'", "convert_node_labels_to_integers")
    refused(lambda: from_networkx(nx.DiGraph([(0, 7)])), "0..1", "7")
    refused(lambda: from_networkx(nx.DiGraph([(0, 1.0)])), "1.0")
    refused(lambda: from_networkx(nx.DiGraph([(0, -1)])), "-1")
    refused(lambda: from_networkx(nx.DiGraph([(False, 1)])), "False")
    refused(lambda: from_networkx(nx.empty_graph(5)), "at least one edge")
    refused(lambda: from_networkx(nx.MultiDiGraph([(0, 1), (0, 1)])), "(0, 1)", "twice")
    refused(lambda: from_networkx([[0, 1]]), "list")


def test_without_networkx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtra, match=r"keyspan\[graph\]"):
        from_networkx(object())
