"""The theorist: how do measured capacities compare with the law and with what is proven?

    python examples/theorist.py [STORE-URL]

Three cells of growing crowding (items / d_model). For each, the key budget D_K* that gradient training needs, beside the
law m' ln m' / d and Warren's lower bound. The records stay in the store: asked again, it answers at once.
"""

import sys
import tempfile
from pathlib import Path

import keyspan

ITEMS = 24
WIDTHS = (24, 16, 12)


def main(store: str) -> None:
    """Measure three cells and print D_K* beside the law and the lower bound."""
    lab = keyspan.Lab(store=store, jobs=1)  # such small cells take moments
    print(f"{'d_model':>7} {'D_K*':>5} {'interval':>10} {'heads':>5} {'law':>6} {'D_K*/law':>8} {'proven':>6}")
    for d_model in WIDTHS:
        cell = keyspan.Relations(items=ITEMS, d_model=d_model, graph=keyspan.graphs.permutation())
        found = keyspan.measure(cell, lab=lab, seeds=2, steps=600, heads=[1, 2]).to_dict()
        budget = found["key_budget"]
        interval = f"[{budget['low']}, {budget['high']}]"
        if budget["estimate"] is None:
            print(f"{d_model:7}  no number of heads tried reaches an F1 of {found['target']}")
            continue
        cells = (d_model, budget["estimate"], interval, found["heads"], found["law"], found["ratio"], found["lower_bound"])
        print("{:7} {:5} {:>10} {:5} {:6.1f} {:8.2f} {:6.2f}".format(*cells))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'lab.db'}")
