"""The architect: how many heads, and how wide, must a layer have to hold what it is meant to know?

    python examples/architect.py [GRAPH.csv]

First the size of a large layer, from a law that was measured on small ones, at once. Then the graph of a file: a small
organisation in which everybody reports to somebody and some people have two managers.
"""

import sys
import tempfile
from pathlib import Path

import keyspan
from keyspan.files.graphs import read_graph, write_graph


def show(title: str, design: dict[str, object]) -> None:
    """Print a design and what else would do."""
    budget = design["key_budget"]
    assert isinstance(budget, dict) and isinstance(design["alternatives"], list)
    used = int(str(design["heads"])) * int(str(design["d_key"]))
    print(title)
    print(f"  {design['heads']} heads x d_key {design['d_key']} = D_K {used}, {design['parameters']:,} parameters")
    print(
        f"  likely between {budget['low']} and {budget['high']}; never below {budget['lower_bound']:.1f}, whatever the weights"
    )
    for other in design["alternatives"]:
        verdict = "enough for a solver" if other["feasible"] else "too few heads"
        print(f"  or {other['heads']} heads x d_key {other['d_key']}: {other['parameters']:,} parameters, {verdict}")


def organisation() -> list[tuple[int, int]]:
    """Who reports to whom, on 40 people."""
    line = [(person, (person - 1) // 3) for person in range(1, 40)]
    return line + [(person, person - 10) for person in range(20, 40, 5)]


def main(graph: Path) -> None:
    """Size a large layer, then one for the graph."""
    large = keyspan.design(items=50_000, d_model=1024).to_dict()
    show("50,000 facts, each with one answer, in 1024 dimensions:", large)
    edges = read_graph(graph)
    items = int(edges.max()) + 1
    small = keyspan.design(items=items, d_model=16, edge_list=edges).to_dict()
    show(f"the {len(edges)} relations of {graph.name}, among {items} items in 16 dimensions:", small)
    for note in small["notes"]:
        print(f"  note: {note}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            main(Path(sys.argv[1]))
        else:
            import numpy as np

            write_graph(np.array(organisation()), Path(folder) / "organisation.csv")
            main(Path(folder) / "organisation.csv")
