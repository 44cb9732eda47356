"""An audit's figures and page: data exact, bytes repeated, nothing fetched, readable without pictures."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.advice.made import gpt2, llama, save
from tests.files.refusals import refused

from keyspan.advice.audit import audit
from keyspan.errors import BadInput
from keyspan.views import audit as data
from keyspan.views.audit_draw import DRAWINGS, draw_map, draw_spectra
from keyspan.views.audit_page import check_folder, page, write_audit


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a small model, with pairs to look for and every singular value."""
    folder = save(tmp_path_factory.mktemp("audited") / "model", *llama(num_key_value_heads=2))
    (folder / "pairs.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(20)))
    return audit(folder, relations=folder / "pairs.csv", spectra=True).to_dict()


@pytest.fixture(scope="module")
def written(answer: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its figures and page."""
    out = tmp_path_factory.mktemp("written")
    files = write_audit(answer, out)
    assert sorted(files) == sorted(str(path) for path in out.iterdir())
    return out


# --- the data ------------------------------------------------------------------------------------------------------


def test_maps_are_the_answers_numbers(answer: dict[str, Any]) -> None:
    used, stable = data.used_info(answer), data.stable_info(answer)
    assert used.layers == (0, 1, 2) and (used.low, used.high) == (0.0, 1.0)
    for row, other, layer in zip(used.values, stable.values, answer["layers"], strict=True):
        assert [8 * value for value in row] == pytest.approx(layer["effective_rank"])
        assert [8 * value for value in other] == pytest.approx(layer["stable_rank"])
    assert [list(row) for row in data.symmetry_info(answer).values] == [layer["symmetry"] for layer in answer["layers"]]
    angles = [layer["overlap"]["smallest_angle"] for layer in answer["layers"]]
    assert [list(row) for row in data.overlap_info(answer).values] == [pytest.approx(row) for row in angles]


def test_the_map_of_pairs_marks_what_was_found(answer: dict[str, Any]) -> None:
    changed = answer | {"relations": answer["relations"] | {"found": [[1, 3]]}}
    found = data.relations_info(changed)
    assert found is not None and found.marked == ((1, 3),) and "Marked: layer 1 head 3." in found.alt_text
    assert found.rows()[7]["layer"] == 1 and found.rows()[7]["head"] == 3
    assert found.rows()[7]["f1"] == answer["layers"][1]["relations"]["heads"][3]["f1"]
    assert data.relations_info(answer | {"relations": None}) is None


def test_spectra_are_medians_and_ends(answer: dict[str, Any]) -> None:
    made = {"layers": [{"layer": 4, "spectrum": [[4.0, 2.0], [2.0, 2.0], [10.0, 1.0], [0.0, 0.0]]}]}
    (line,) = data.spectra_info(made).layers
    assert line.place == (0.5, 1.0) and line.middle == (1.0, 0.5) and line.low == (1.0, 0.1) and line.high == (1.0, 1.0)
    assert "0.50 in layer 4" not in data.spectra_info(made).alt_text  # halfway down is the first of two
    wide = {"layers": [{"layer": 0, "spectrum": [[float(500 - i) for i in range(500)]]}]}
    (line,) = data.spectra_info(wide).layers
    assert len(line.place) == data.POINTS and line.place[-1] == 1.0 and line.middle[0] == 1.0
    assert len(data.spectra_info(answer).rows()) == 3 * 8
    assert data.spectra_info({"layers": [{"layer": 0, "spectrum": [[0.0]]}]}).layers == ()


def test_words_for_pictures(answer: dict[str, Any]) -> None:
    info = data.HeadLayerMap("Title", "label", "x", (3, 5), ((0.5, 0.25), (0.75, 1.0)), 0.0, 1.0)
    assert info.alt_text == (
        "Title: a map of 2 layers by 2 heads. Lowest 0.25 (layer 3 head 1), median 0.62, highest 1.00 (layer 5 head 1)."
    )
    assert info.rows()[2] == {"layer": 5, "head": 0, "x": 0.75}


# --- the pictures --------------------------------------------------------------------------------------------------


def test_every_head_is_drawn(answer: dict[str, Any]) -> None:
    info, axes = data.used_info(answer), Figure().add_subplot()
    draw_map(info, [axes])
    (mesh,) = axes.collections
    drawn = mesh.get_array()
    assert drawn is not None and drawn.flatten().tolist() == pytest.approx([v for row in info.values for v in row])
    assert axes.yaxis_inverted() and axes.get_ylabel() == "layer"


def test_a_line_for_every_layer(answer: dict[str, Any]) -> None:
    info, axes = data.spectra_info(answer), Figure().add_subplot()
    draw_spectra(info, [axes])
    assert [tuple(np.asarray(line.get_ydata())) for line in axes.lines] == [one.middle for one in info.layers]
    draw_spectra(data.Spectra(()), [Figure().add_subplot()])


def test_bytes_repeat(answer: dict[str, Any], written: Path, tmp_path: Path) -> None:
    write_audit(json.loads(json.dumps(answer)), tmp_path)
    one, two = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (written, tmp_path))
    assert one == two and set(one) == {"audit.html"} | {
        f"audit-{name}.{suffix}" for name in DRAWINGS for suffix in ("svg", "png", "csv", "pdf")
    }


def test_the_data_lies_beside_the_picture(answer: dict[str, Any], written: Path) -> None:
    for name, drawing in DRAWINGS.items():
        info = drawing.info(answer)
        with open(written / f"audit-{name}.csv", newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert len(rows) == len(info.rows()) > 0, name
        picture = (written / f"audit-{name}.svg").read_text().replace("&lt;", "<").replace("&gt;", ">")
        assert info.alt_text in picture, name


# --- the page ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page has: tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else(answer: dict[str, Any], written: Path) -> None:
    text = (written / "audit.html").read_text()
    found = Page(text)
    assert not {"script", "link", "iframe", "object", "form"} & {tag for tag, _ in found.tags}
    assert "://" not in re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", text)
    pictures = [attributes for tag, attributes in found.tags if tag == "img"]
    assert len(pictures) == len(DRAWINGS)
    for picture in pictures:
        assert (picture["src"] or "").startswith("data:image/svg+xml;base64,") and len(picture["alt"] or "") > 60
    assert len([tag for tag, _ in found.tags if tag == "tr"]) == 1 + 3
    words = " ".join(found.text.split())
    summary = answer["summary"]
    assert f"has {summary['key_budget']} dimensions, uses {summary['used']:.0f}" in words
    assert "no head recovers them above chance (F1 above" in words
    assert all(note in words for note in answer["notes"])
    assert ("html", {"lang": "en"}) in found.tags


def test_the_page_of_another_model(tmp_path: Path) -> None:
    """No pairs, no rotary positions, one head, and a name that would break out of the page."""
    folder = save(tmp_path / "<script>alert(1)</script>", *gpt2(n_head=1))
    answer = audit(folder, spectra=True).to_dict()
    text = page(answer, [])
    assert "<script" not in text and "&lt;script&gt;" in text and "Given pairs" not in text
    assert [name for name, drawing in DRAWINGS.items() if drawing.info(answer) is None] == ["relations"]
    for name in ("used", "overlap", "spectra"):
        DRAWINGS[name].draw(DRAWINGS[name].info(answer), [Figure().add_subplot()])


def test_where_a_page_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(lambda: check_folder(tmp_path / "file"), "--out", "folder")
    with pytest.raises(BadInput, match="`--out` must be where one can write"):
        check_folder(tmp_path / "file" / "below")
    refused(lambda: check_folder(3), "`out`", "got 3")  # type: ignore[arg-type]
