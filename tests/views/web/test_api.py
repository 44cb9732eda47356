"""The page's API: no token no data, our host alone, reading alone, no path of the disk; and answers that follow the store."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from tests.browser.made import AUDIT, fill, many
from tests.cli.asked import Oracle, ask, knows
from tests.files.refusals import refused

from keyspan.evidence.record import make_record
from keyspan.evidence.store import open_store
from keyspan.papers.ledger import ledger
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.questions import relations_question
from keyspan.theory.bounds import law
from keyspan.views.web.app import make_app, static_files
from keyspan.views.web.guard import Guard
from keyspan.views.web.server import Address, serve
from keyspan.views.web.state import State, read_audit

TOKEN = "a-token-that-nobody-guesses"
HOST = "127.0.0.1:9"


def guarded(state: State) -> Any:
    return Guard(make_app(state), TOKEN, (HOST,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the store with some cells lies."""
    place = tmp_path_factory.mktemp("page")
    with open_store(f"sqlite:///{place / 'page.db'}") as store:
        fill(store)
    return place


@pytest.fixture(scope="module")
def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'page.db'}"


@pytest.fixture(scope="module")
def state(url: str, folder: Path) -> Iterator[State]:
    made = State(url, folder, json.loads(AUDIT))
    made.look()
    yield made
    made.close()


@pytest.fixture
def client(state: State) -> TestClient:
    return TestClient(guarded(state), base_url=f"http://{HOST}/{TOKEN}/", raise_server_exceptions=False)


def got(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- who may ask ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "api/state", "/api/state", "//api/state", "wrong/api/state", TOKEN[:-1] + "/api/state", TOKEN + "x/"]
)
def test_no_token_no_data(state: State, path: str) -> None:
    client = TestClient(guarded(state), base_url=f"http://{HOST}")
    answer = client.get(f"http://{HOST}/{path}" if not path.startswith("/") else f"http://{HOST}{path}")
    assert answer.status_code == 403 and "token" in answer.text and TOKEN not in answer.text and "page.db" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:10", "localhost.evil.example:9", ""])
def test_another_host_is_nobody(client: TestClient, host: str) -> None:
    """A name that an attacker points to 127.0.0.1 is not ours."""
    assert client.get("api/state", headers={"host": host}).status_code == 421
    assert client.get("api/state", headers={"host": HOST}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_it_only_reads(client: TestClient, method: str) -> None:
    answer = client.request(method, "api/state")
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD"


def test_a_websocket_is_refused(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("api/state"):
        pass


def test_every_answer_says_what_a_browser_must_not_do(client: TestClient) -> None:
    for path in ("", "static/app.js", "api/state", "api/cells/none", "nowhere"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer" and "no-store" in headers["cache-control"]
        assert "access-control-allow-origin" not in headers
    for path, code in (("http://127.0.0.1:9/x", 403), ("api/state", 421)):
        answer = client.get(path, headers={} if code == 403 else {"host": "evil"})
        assert answer.status_code == code and "content-security-policy" in answer.headers


TRAVERSALS = (
    *("static/../state.py", "static/%2e%2e/state.py", "static/..%2fstate.py", "static//etc/passwd", "static/%2fetc%2fpasswd"),
    *(
        "static/app.js%00.css",
        "static/..\\state.py",
        "api/../../../etc/passwd",
        "static/",
        "static/.",
        "%2e%2e/%2e%2e/etc/passwd",
    ),
)


def test_no_address_reaches_the_disk(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.get("")
    monkeypatch.setattr("builtins.open", lambda *a, **k: pytest.fail("a file was opened"))
    monkeypatch.setattr(Path, "read_bytes", lambda *a: pytest.fail("a file was read"))
    for path in TRAVERSALS:
        answer = client.get(f"http://{HOST}/{TOKEN}/{path}")
        assert answer.status_code in (403, 404, 405, 422), path
        assert "root:" not in answer.text and "import" not in answer.text, path


def test_the_static_files_are_ours_and_name_nobody_else(client: TestClient) -> None:
    names = set(static_files())
    assert {"index.html", "app.js", "charts.js", "style.css"} <= names
    for name in names:
        text = static_files()[name][0].decode("utf-8")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text, name
        assert "innerHTML" not in text and "eval(" not in text and "document.write" not in text, name
        assert client.get(f"static/{name}").headers["content-type"].startswith(static_files()[name][1])


def test_the_store_stays_as_it_is(client: TestClient, state: State, folder: Path) -> None:
    before = hashlib.sha256((folder / "page.db").read_bytes()).hexdigest()
    for path in ("api/state", "api/cells", "api/ledger", "api/design?items=9&d_model=4"):
        assert client.get(path).status_code == 200
    assert state.store.read_only and hashlib.sha256((folder / "page.db").read_bytes()).hexdigest() == before


# --- what it answers -----------------------------------------------------------------------------------------------


def test_design_is_quick_and_right(client: TestClient) -> None:
    answer = got(client, "api/design", items=128, d_model=16)
    assert answer["here"]["law"] == law(128, 16) and answer["asked"]["edges"] == 128
    assert [(p["x"], p["heads"]) for p in answer["along_items"]["measured"]] == [(32, 2), (64, 2), (128, 4)]
    for point in answer["along_items"]["measured"]:
        assert point["low"] < point["y"] == point["high"] and point["y"] >= 1.2 * law(point["x"], 16)
    curve = next(line for line in answer["along_items"]["lines"] if line["id"] == "law")
    assert curve["style"] == "dashed" and all(p["y"] == pytest.approx(law(p["x"], 16)) for p in curve["points"])
    certain = next(line for line in answer["along_items"]["lines"] if line["id"] == "certain")
    assert certain["style"] == "dotted" and any(p == {"x": 128, "y": 128.0} for p in certain["points"])
    times = []
    for items in range(200, 220):
        start = time.process_time()
        got(client, "api/design", items=items, d_model=37, target=0.9)
        times.append(time.process_time() - start)
    assert sorted(times)[len(times) // 2] < 0.05, "half of the answers take less than 50 ms"


@pytest.mark.parametrize(
    "asked, moved",
    [
        ({"items": 8, "d_model": 4, "edges": 1000}, {"edges": 63}),
        ({"items": 8, "d_model": 4, "edges": 5, "heads": 999}, {"heads": 5}),
        ({"items": 2**24, "d_model": 2**16, "edges": 2**40}, {"edges": 2**40}),
        ({"items": 2, "d_model": 1}, {"edges": 2}),
    ],
)
def test_sizes_that_do_not_go_together_are_moved(client: TestClient, asked: dict[str, int], moved: dict[str, int]) -> None:
    answer = got(client, "api/design", **asked)
    assert {name: answer["asked"][name] for name in moved} == moved


def test_a_lower_target_needs_less(client: TestClient) -> None:
    high, low = (got(client, "api/design", items=128, d_model=16, target=t)["along_items"]["measured"] for t in (0.99, 0.5))
    assert all(a["y"] > b["y"] for a, b in zip(high, low, strict=True))


def test_cells_and_their_curves(client: TestClient) -> None:
    listed = got(client, "api/cells", limit=500)
    assert listed["total"] == len(listed["cells"]) == 6 and sum(c["runs"] for c in listed["cells"]) > 100
    assert {c["title"] for c in got(client, "api/cells", text="128 ITEMS d_model")["cells"]} == {
        "permutation on 128 items, d_model 16, gaussian",
        "permutation on 128 items, d_model 32, gaussian",
    }
    first = next(c for c in listed["cells"] if "128 items, d_model 16" in c["title"])
    whole = got(client, f"api/cells/{first['id']}")
    assert [line["line"] for line in whole["lines"]] == [1, 2, 4, 8]
    for line in whole["lines"]:
        for point in line["points"]:
            assert point["seeds"] == 3 and point["low"] <= point["y"] <= point["high"] and 0 <= point["y"] <= 1
    assert {m["name"]: m["style"] for m in whole["marks"]} == {
        "law m′ ln m′ / d": "dashed",
        "lower bound, proven": "dashed",
        "explicit weights, certain": "dotted",
    }
    runs = got(client, f"api/cells/{first['id']}/runs", limit=7)
    assert len(runs["runs"]) == 7 and runs["total"] == first["runs"]
    record = got(client, f"api/runs/{runs['runs'][0]['run_id']}")
    assert record["run_id"] == runs["runs"][0]["run_id"] and record["run"]["problem"]["items"] == 128
    labels = next(c for c in listed["cells"] if c["kind"] == "dichotomies")
    load = got(client, f"api/cells/{labels['id']}")
    assert (
        load["x_label"] == "examples T"
        and load["marks"][0]["value"] == 8.0
        and load["capacity"]["low"] <= load["capacity"]["high"]
    )


def test_what_is_not_there(client: TestClient) -> None:
    for path in (
        f"api/cells/c{'0' * 24}",
        f"api/cells/c{'0' * 24}/runs",
        f"api/runs/r{'0' * 24}",
        "api/audit/99/0",
        "api/audit/0/99",
    ):
        answer = client.get(path)
        assert answer.status_code == 404 and "There is no such" in answer.json()["detail"]
    for path in (
        "api/cells/x",
        "api/design?items=1&d_model=4",
        "api/cells?limit=0",
        "api/design?items=nan&d_model=4",
    ):
        assert client.get(path).status_code in (404, 422)


def test_the_audit_without_its_spectra_and_head_by_head(client: TestClient) -> None:
    found = got(client, "api/audit")
    assert len(found["layers"]) == 6 and all("spectrum" not in layer for layer in found["layers"])
    head = got(client, "api/audit/2/1")
    assert head["values"] == json.loads(AUDIT)["layers"][2]["spectrum"][1] and head["d_key"] == 16


def test_the_ledger_is_that_of_the_command(client: TestClient, url: str) -> None:
    found, own = got(client, "api/ledger"), ledger(store=url).to_dict()
    assert [(c["id"], c["status"], c["measured"]) for c in found["claims"]] == [
        (c["id"], c["status"], c["measured"]) for c in own["claims"]
    ]
    assert found["bits"] == own["bits"] and found["run_ids"] == len(own["run_ids"])


MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_schemathesis_finds_nothing(state: State, mode: Any) -> None:
    """What the description allows is answered as described, what it forbids is refused; never a server's error."""
    app = Guard(make_app(state), TOKEN, ("localhost", "testserver"))
    schema = schemathesis.openapi.from_asgi(f"/{TOKEN}/openapi.json", app)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= 9
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=PATIENT)
        def check(case: Any) -> None:
            case.call_and_validate()

        with suppress(Unsatisfiable):  # without parameters there is nothing to be wrong
            check()


@given(path=st.text(max_size=40), query=st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=3))
@settings(max_examples=100, deadline=None)
def test_any_address_is_answered_or_refused(state: State, path: str, query: dict[str, str]) -> None:
    client = TestClient(guarded(state), base_url=f"http://{HOST}", raise_server_exceptions=False)
    for prefix in (f"/{TOKEN}/", f"/{TOKEN}/api/", "/"):
        answer = client.get(f"http://{HOST}{prefix}{quote(path)}", params=query)
        assert answer.status_code in (200, 307, 403, 404, 405, 422), (prefix, path, answer.status_code)


# --- following -----------------------------------------------------------------------------------------------------


def test_new_runs_are_taken_in_and_removed_ones_let_go(tmp_path: Path) -> None:
    """The store comes into being after the page; then it grows, and then a run is removed."""
    url = f"sqlite:///{tmp_path / 'later.db'}"
    state = State(url, tmp_path)
    assert state.about()["runs"] == 0 and state.index.cells() == []
    question = relations_question(Relations(items=16, d_model=8), heads=[2], key_budgets=[4, 8], seeds=2)
    runs = [run for arm in question.arms for level in arm.levels for run in question.runs(arm, level)]
    with open_store(url) as store:
        store.put(make_record(runs[0], knows(runs[0])))
        assert state.about()["runs"] == 1
        version = state.index.version
        store.put_all(make_record(run, knows(run)) for run in runs[1:])
        assert state.about()["runs"] == 4 and state.index.version > version
        (cell,) = state.index.cells()
        assert [(x, len(scores)) for x, scores in cell.lines()[2]] == [(4, 2), (8, 2)]
        store.remove(runs[0].run_id)
        assert state.about()["runs"] == 3
        (cell,) = state.index.cells()
        assert [len(scores) for _, scores in cell.lines()[2]] == [1, 2] and cell.runs == 3
        assert not state.index.refresh()
    state.close()


def test_who_looks_while_another_does_does_not_wait(state: State) -> None:
    with state._looking:
        assert state.about()["reading"] is True
    assert state.about()["reading"] is False


def test_a_store_of_many_runs_is_read_in_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    url = f"sqlite:///{tmp_path / 'many.db'}"
    with open_store(url) as store:
        store.put_all(many(2000))
    state = State(url, None)
    tracemalloc.start()
    state.look()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.about()["runs"] == 2000 and kept / 2000 < 600, "bytes a run"
    state.close()


# --- the server and the verb ---------------------------------------------------------------------------------------


def test_an_address_is_told_before_anything_is_answered(url: str) -> None:
    stop, ready, told = threading.Event(), threading.Event(), list[Address]()
    arguments: dict[str, Any] = {"told": told.append, "ready": ready, "stop": stop}
    thread = threading.Thread(target=serve, args=(url,), kwargs=arguments, daemon=True)
    thread.start()
    assert ready.wait(30)
    address = told[0]
    assert address.url.startswith("http://127.0.0.1:") and len(address.token) >= 32
    with TestClient(guarded(State(url, None)), base_url=address.url) as other:  # another app knows another token
        assert other.get("api/state").status_code in (403, 421)
    import httpx

    assert httpx.get(f"{address.url}api/state").json()["store"] == url
    refused(lambda: serve(url, port=address.port), "free")
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "content",
    ["", "no json", "[]", "{}", '{"layers": []}', '{"layers": [{"layer": 0}]}', "[" * 10_000,
     '{"layers": [{"layer": 0, "heads": 2, "d_key": 4, "effective_rank": [1.0], "stable_rank": [1.0, 2.0]}]}'],
)  # fmt: skip
def test_a_file_that_is_no_audit_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(content)
    refused(lambda: read_audit(tmp_path / "audit.json"), "audit.json")


def test_a_kept_audit_is_read(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(AUDIT)
    assert read_audit(tmp_path / "audit.json")["folder"] == "a-model"
    ran = ask("ui", "--audit", tmp_path / "none.json")
    assert ran.code == 2 and "none.json" in ran.err


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = ask("ui")
    assert ran.code == 2 and "keyspan[ui]" in ran.err and ran.out == ""


def test_another_runner_is_seen_while_it_runs(tmp_path: Path) -> None:
    """What `live` says is what the page shows."""
    url = f"sqlite:///{tmp_path / 'page.db'}"
    seen: list[list[dict[str, Any]]] = []
    state = State(url, tmp_path)

    class Slow(Oracle):
        def run(self, *given: Any, **more: Any) -> Any:
            for record in super().run(*given, **more):
                seen.append(state.about()["running"])
                yield record

    from keyspan.runners import live

    question = relations_question(Relations(items=16, d_model=8), heads=[2], key_budgets=[4, 8], seeds=2)
    with open_store(url) as store, live.watching(tmp_path, None) as watcher:
        driver.answer([question], store, Slow(), watcher)
    assert seen and seen[0][0]["members"] == 4 and seen[0][0]["round"] == 1
    assert state.about()["running"] == []
    state.close()
