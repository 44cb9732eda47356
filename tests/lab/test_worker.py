"""`python -m keyspan.lab.worker`: members and questions in, whole records out, and on again after a kill."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keyspan.evidence.record import Record
from keyspan.files.contents import Contents
from keyspan.files.weights import read_weights
from keyspan.lab import recipes, worker
from keyspan.lab.judge import judge_channel
from keyspan.lab.search import Answer, propose
from keyspan.problems import graphs
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.runners import inputs
from keyspan.runners.questions import relations_question
from keyspan.specs import Channel, Run, Spec, Stopping, canonical


def member(replicate: int = 0, steps: int = 60, **changes: object) -> Run:
    problem = Relations(items=13, d_model=11, **changes)  # type: ignore[arg-type]
    return Run(
        problem=problem,
        replicate=replicate,
        instrument=Channel(heads=2, d_key=3),
        recipe=recipes.gradient(steps=steps),
        stopping=Stopping(check_every=20),
    )


def write(path: Path, specs: list[Spec]) -> Path:
    path.write_text("".join(canonical(spec.to_json()) + "\n" for spec in specs))
    return path


def records(out: Path) -> list[Record]:
    return [Record.from_line(line) for line in (out / "records.jsonl").read_text().splitlines()]


def command(members: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "keyspan.lab.worker", str(members), "--out", str(out), "--device", "cpu", *more]


def test_members_become_records_once(tmp_path: Path) -> None:
    runs = [member(i) for i in range(3)]
    source, out = write(tmp_path / "members.jsonl", list(runs)), tmp_path / "out"
    done = subprocess.run(command(source, out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(r.run_id for r in records(out)) == sorted(r.run_id for r in runs)
    before = (out / "records.jsonl").read_bytes()
    again = subprocess.run(command(source, out), capture_output=True, text=True, check=False)
    assert again.returncode == 0
    assert (out / "records.jsonl").read_bytes() == before


def test_a_question_is_searched_to_its_end(tmp_path: Path) -> None:
    question = relations_question(Relations(items=13, d_model=13), heads=[1], seeds=2, steps=300)
    source, out = write(tmp_path / "question.jsonl", [question]), tmp_path / "out"
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    answer = propose(question, {r.run_id: r.verdict for r in records(out)})
    assert isinstance(answer, Answer)
    assert answer.crossing.estimate is not None
    assert {p.run.run_id for p in answer.probes} == {r.run_id for r in records(out)}


def test_a_torn_line_is_cut_off_and_its_member_trained_again(tmp_path: Path) -> None:
    runs = [member(i) for i in range(2)]
    source, out = write(tmp_path / "members.jsonl", list(runs)), tmp_path / "out"
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    whole = records(out)
    text = (out / "records.jsonl").read_text()
    (out / "records.jsonl").write_text(text[: len(text) - 40])
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    after = records(out)
    assert sorted(r.content for r in after) == sorted(r.content for r in whole)
    assert after[0].to_line() == whole[0].to_line()


def test_out_of_time_it_leaves_checkpoints_and_goes_on(tmp_path: Path) -> None:
    source, out = write(tmp_path / "members.jsonl", [member(steps=400)]), tmp_path / "out"
    assert worker.main([str(source), "--out", str(out), "--device", "cpu", "--minutes", "0"]) == 3
    assert records(out) == []
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    assert len(records(out)) == 1


def test_a_signal_stops_it_at_a_checkpoint_and_the_bits_stay(tmp_path: Path) -> None:
    long = Run(
        problem=Relations(items=61, d_model=16),
        replicate=0,
        instrument=Channel(heads=4, d_key=3),
        recipe=recipes.gradient(steps=9000),
        stopping=Stopping(retire_exact=False),
    )
    source, out = write(tmp_path / "members.jsonl", [long]), tmp_path / "out"
    process = subprocess.Popen(command(source, out), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:  # it says how far it is twice a second
        if "step" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert (out / "checkpoints" / f"{long.run_id}.safetensors").exists()
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    assert not (out / "checkpoints" / f"{long.run_id}.safetensors").exists()
    straight = tmp_path / "straight"
    assert worker.main([str(source), "--out", str(straight), "--device", "cpu"]) == 0
    (resumed,), (undisturbed,) = records(out), records(straight)
    assert resumed.provenance["weights"] == undisturbed.provenance["weights"]
    assert resumed.content == undisturbed.content


def test_files_travel_beside_the_members_by_their_hash(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    edges = graphs.make(graphs.permutation(), 13, "p", Contents(None))
    sha = Contents(folder).put(edges)
    run = member(graph=graphs.Graph(name="file", content=sha, edges=13))
    source, out = write(tmp_path / "members.jsonl", [run]), tmp_path / "out"
    assert worker.main([str(source), "--out", str(out), "--device", "cpu"]) == 0
    assert records(out)[0].run_id == run.run_id
    bare = write(tmp_path / "elsewhere.jsonl", [run])
    (folder / f"{sha}.npy").unlink()
    assert worker.main([str(bare), "--out", str(tmp_path / "out2"), "--device", "cpu"]) == 2


def test_the_path_of_a_file_stands_in_provenance_and_in_no_id(tmp_path: Path) -> None:
    made = {}
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "ring.csv").write_text("".join(f"{i},{(i + 1) % 13}\n" for i in range(13)))
        np.save(folder / "rows.npy", np.eye(13, 11) + 0.5)
        contents = Contents(folder / "files")
        graph = inputs.graph_from(str(folder / "ring.csv"), contents, items=13)
        rows = inputs.embeddings_from(str(folder / "rows.npy"), contents, items=13, d_model=11)
        source = write(folder / "members.jsonl", [member(steps=20, graph=graph, embeddings=rows)])
        assert worker.main([str(source), "--out", str(folder / "out"), "--device", "cpu"]) == 0
        (made[name],) = records(folder / "out")
        assert made[name].provenance["graph_file"] == str(folder / "ring.csv")
        assert made[name].provenance["embeddings_file"] == str(folder / "rows.npy")
    assert made["a"].run_id == made["b"].run_id and made["a"].content == made["b"].content


def test_weights_are_kept_and_judge_the_same(tmp_path: Path) -> None:
    run = member(steps=300)
    source, out = write(tmp_path / "members.jsonl", [run]), tmp_path / "out"
    assert worker.main([str(source), "--out", str(out), "--device", "cpu", "--weights", str(tmp_path / "w")]) == 0
    kept = read_weights(tmp_path / "w" / f"{run.run_id}.safetensors")
    assert kept.embeddings is not None
    assert kept.edges is not None
    verdict = judge_channel(RelationInstance(None, kept.edges, kept.embeddings), kept.w_query, kept.w_key, kept.bias)
    assert verdict == records(out)[0].verdict


def test_a_record_is_written_after_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not leave a record whose weights are missing: the store would never train that member again."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = member()
    source, out, weights = write(tmp_path / "members.jsonl", [run]), tmp_path / "out", tmp_path / "w"
    argv = [str(source), "--out", str(out), "--device", "cpu", "--weights", str(weights)]
    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_weights", full)
        assert worker.main(argv) == 2
        assert records(out) == []
        said = io.StringIO()
        patch.setattr(sys, "stdin", io.StringIO(json.dumps({"runs": [run.to_json()]}) + "\n"))
        patch.setattr(sys, "stdout", said)
        assert worker.main(["--serve", "--device", "cpu", "--weights", str(weights)]) == 0
        messages = [json.loads(line) for line in said.getvalue().splitlines()]
        (error,) = [m["error"] for m in messages if "error" in m]
        assert "No space left" in error and "Check the path" in error and not any("record" in m for m in messages)
    assert worker.main(argv) == 0
    assert [r.run_id for r in records(out)] == [run.run_id] == [path.stem for path in weights.iterdir()]


def one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a call says that is refused: exit code 2 and one line."""
    try:
        code: object = worker.main(argv)
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    assert code == 2 and said.out == ""
    assert said.err.startswith("keyspan: ") and said.err.endswith(".\n") and said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"nonsense\n", ":1"),
        (b"{}\n", "family"),
        (b'{"family":"run","version":99}\n', "version"),
        (b'{"family":"arm"}\n', ":1"),
        (b'\n{"family":"\xff"}\n', ":2 is not"),
        (b"[" * 100_000 + b"]" * 100_000, ":1 is nested too deep"),
    ],
    ids=["words", "empty", "newer", "arm", "bytes", "deep"],
)
def test_bad_members_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, says: str
) -> None:
    source = tmp_path / "members.jsonl"
    source.write_bytes(text)
    assert says in one_line([str(source), "--out", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--out", "{}/file"], "`--out` must be a folder"),
        (["--out", "{}/file/deeper"], "Check the path"),
        (["--out", "{}/out", "--weights", "{}/file"], "`--weights` must be a folder"),
        (["--out", "{}/out", "--weights", "{}/file/deeper"], "`--weights` must be where one can write"),
        (["--out", "{}/out", "--minutes", "-1"], "`--minutes >= 0` must hold, but got -1.0"),
        (["--out", "{}/out", "--minutes", "nan"], "got nan"),
        (["--out", "{}/out", "--minutes", "inf"], "got inf"),
        (["--out", "{}/out", "--minutes", "soon"], "invalid float value: 'soon'"),
        (["--out", "{}/out", "--device", "tpu"], "--device"),
        (["--out", "{}/bytes"], "records.jsonl:2"),
        (["--out", "{}/words"], "records.jsonl:1"),
    ],
)
def test_a_bad_call_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    source = write(tmp_path / "members.jsonl", [member()])
    (tmp_path / "file").write_text("a file")
    for name, content in (("bytes", b"\n\xff\xfe\n"), ("words", b"hello\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_bytes(content)
    assert says in one_line([str(source), *(word.replace("{}", str(tmp_path)) for word in more)], capsys)


def test_no_file_no_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert worker.main([str(tmp_path / "none.jsonl")]) == 2
    assert worker.main([]) == 2
    assert capsys.readouterr().err.count("keyspan: ") == 2


def test_serving_speaks_the_protocol_and_ends_with_its_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "keyspan.lab.worker", "--serve", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    work = json.dumps({"runs": [member(i).to_json() for i in range(2)]}) + "\n"
    out, _ = process.communicate(work, timeout=120)
    messages = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert messages[0] == {"ready": "cpu"}
    assert [next(iter(m)) for m in messages if "progress" not in m] == ["ready", "record", "record", "idle"]


def test_a_record_that_reached_nobody_keeps_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = member(steps=200)
    kept = tmp_path / f"{run.run_id}.safetensors"

    class Deaf(io.StringIO):
        def write(self, text: str) -> int:
            if '"record"' in text:
                raise BrokenPipeError
            return super().write(text)

    shards = json.dumps({"runs": [run.to_json()]}) + "\n"
    for listener, left in ((Deaf(), True), (io.StringIO(), False)):
        kept.write_bytes(b"damaged, and so not used")
        monkeypatch.setattr(sys, "stdin", io.StringIO(shards))
        monkeypatch.setattr(sys, "stdout", listener)
        assert worker.main(["--serve", "--device", "cpu", "--checkpoints", str(tmp_path)]) == 0
        assert kept.exists() is left


def test_a_worker_whose_driver_is_gone_stops_by_itself() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "keyspan.lab.worker", "--serve", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=writing,
        text=True,
    )
    os.close(writing)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"runs": [member(steps=10**7).to_json()]}) + "\n")
    process.stdin.flush()
    os.read(reading, 10)
    os.close(reading)  # nobody listens any more; its input stays open
    began = time.monotonic()
    process.wait(timeout=60)
    assert time.monotonic() - began < 30
    process.stdin.close()
