#!/usr/bin/env bash
# What a GPU machine is asked: the speeds, the largest member, whether all speeds give one answer, the best first-order recipe,
# other block sizes, the GPU tests, certificates of many items, the thresholds of docs/law.md, members handed out by `--hand-out`,
# and the tiers `paper` of softmax, values, the block and attention in use today.
# usage: benchmarks/gpu.sh OUT PART...     parts: speeds large same hinge tune certify law tests members model labels sequences; `all`
# is all of them but certify, law, model, labels and sequences, in eight minutes: each has its time, and what is left goes to members,
# if MEMBERS (box/members.jsonl) is there
# law wants box/law.jsonl, from `python -m keyspan.studies.law --groups gpu --hand-out box/law.jsonl` on a machine with a store;
# it goes on where it was stopped, and `keyspan runs import OUT/law` brings its records home
# model: questions written where keyspan is installed, as `keyspan reproduce adler:softmax --tier paper --hand-out
# box/softmax.jsonl` (so values and block; modern:heads as box/heads.jsonl). MODEL_MINUTES (60) each; the same call goes on where
# it stopped, and `keyspan runs import OUT/softmax` brings records home
# sequences: decoders in a fleet beside one at a time, then the grid of `keyspan reproduce harma:capacity --tier paper --hand-out
# box/sequences.jsonl`, SEQUENCES_MINUTES (30) of it; the same call goes on where it stopped
# labels: the 342 runs of Mahdavi et al., written as `keyspan reproduce mahdavi --tier paper --seed S --hand-out box/labels-S.jsonl`
# for S = 0 1 2 ...; LABELS_MINUTES (9) each, logged by the worker, and the same call goes on where it stopped
# Needs Python with torch, Triton, NumPy and pytest; nothing is installed. Logs and records go to OUT.
set -u
out=$1; shift
mkdir -p "$out"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
start=$(date +%s)
left() { echo $((${SECONDS_IN_ALL:-470} - $(date +%s) + start)); }
bench() {
  name=$1; shift
  timeout "${BENCH_SECONDS:-90}" "$python" -m keyspan.bench "$@" --json >"$out/$name.json" 2>"$out/$name.err"; echo "$name: exit $?"
}
worker() {  # MEMBERS OUT MINUTES
  "$python" -m keyspan.lab.worker "$1" --out "$2" --minutes "$3" 2>"$2.err"; echo "$2: exit $?"; tail -n 1 "$2.err"
}

{ date -u +%FT%TZ; git rev-parse HEAD 2>/dev/null; nvidia-smi -L; "$python" -c 'import torch, triton, numpy; print(torch.__version__, triton.__version__, numpy.__version__)'; } >"$out/machine.txt" 2>&1
[ "$*" != all ] || set -- speeds large same hinge tune tests members
for part in "$@"; do
  began=$(date +%s)
  case $part in
    tests)  # in as many processes as there are files and classes: most of their time is Triton compiling
      for which in "tests/attention/test_kernels.py -k InSingle" "tests/attention/test_kernels.py -k 'not InSingle'" \
                   "tests/attention/test_channel.py" "tests/attention/test_linear.py" "tests/lab tests/acceptance"; do
        name=$(echo "tests-$which" | tr -cs 'a-zA-Z0-9_.-' '-')
        eval "timeout ${TEST_SECONDS:-120} $python -m pytest -o minversion=6 -W ignore -q -m gpu $which" >"$out/$name.log" 2>&1 &
      done
      wait
      tail -qn 1 "$out"/tests-*.log ;;
    speeds)
      for arithmetic in ${ARITHMETICS:-bf16 tf32 fp32}; do
        bench "speed-$arithmetic" --device cuda --arithmetic "$arithmetic" --no-growth --rounds 3 --seconds 0.3 \
          --case 128x32x4x8 --case 1024x128x16x16
      done ;;
    large)
      "$python" -m keyspan.bench.large 4096x256x16x32 8192x256x16x32 16384x256x16x32 32768x256x16x32 \
        --device cuda --arithmetic bf16 --steps 5 >"$out/large.jsonl" 2>"$out/large.err"; cat "$out/large.jsonl"; tail -n 3 "$out/large.err" ;;
    certify)  # CERTIFY_MOON=1: a million items as well
      sizes="32768x256 262144x1024"; [ -n "${CERTIFY_MOON:-}" ] && sizes="$sizes 1048576x4096"
      for size in $sizes; do
        timeout "${CERTIFY_SECONDS:-600}" "$python" -m keyspan.bench.certify --items "${size%x*}" --d-model "${size#*x}" \
          --levels "${LEVELS:-bf16,fp32,fp64}" --device cuda >"$out/certify-$size.json" 2>"$out/certify-$size.err"
        echo "certify $size: exit $?"; tail -n 2 "$out/certify-$size.err"
      done ;;
    law)
      "$python" -m keyspan.lab.worker "${LAW:-box/law.jsonl}" --out "$out/law" --minutes "${MINUTES:-8}" --device cuda 2>"$out/law.err"
      echo "law: exit $?"; tail -n 2 "$out/law.err" ;;
    same)  # D_K* of two cells in three arithmetics; each fused search is held to the CPU's by `runs import` and the ledger
      "$python" - >"$out/same.jsonl" <<'EOF'
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.specs import canonical
for items, d_model in ((128, 32), (128, 16)):
    for arithmetic in ("fp32", "tf32", "bf16"):
        print(canonical(relations_question(Relations(items=items, d_model=d_model), arithmetic=arithmetic).to_json()))
EOF
      worker "$out/same.jsonl" "$out/same" "${SAME_MINUTES:-1}" ;;
    hinge)  # exact recovery by the best first-order recipe at D_K 32, in three seeds
      "$python" - >"$out/hinge.jsonl" <<'EOF'
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.specs import canonical
for items, d_model in ((512, 64), (1024, 128)):
    asked = relations_question(Relations(items=items, d_model=d_model), heads=[4], key_budgets=[24, 28, 32], recipe="hinge")
    print(canonical(asked.to_json()))
EOF
      worker "$out/hinge.jsonl" "$out/hinge" "${HINGE_MINUTES:-1}"
      "$python" - "$out/hinge/records.jsonl" <<'EOF'
import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    p, c = r["run"]["problem"], r["run"]["instrument"]
    print(p["items"], p["d_model"], c["heads"] * c["d_key"], r["run"]["replicate"], r["verdict"].get("exact"), r["provenance"]["steps"])
EOF
      ;;
    tune)
      timeout "${TUNE_SECONDS:-75}" "$python" -m keyspan.bench.tune 1024x128x16x16 --device cuda --arithmetic bf16 --members 64 \
        >"$out/tune.jsonl" 2>"$out/tune.err"; cat "$out/tune.jsonl" ;;
    model)
      for figure in softmax values block heads; do
        if [ -f "${MODEL:-box}/$figure.jsonl" ]; then worker "${MODEL:-box}/$figure.jsonl" "$out/$figure" "${MODEL_MINUTES:-60}"
        else echo "$figure: not handed out"; fi
      done ;;
    sequences)
      "$python" -m keyspan.bench.decoders --device cuda --members 256 >"$out/decoders.json" 2>"$out/decoders.err"; cat "$out/decoders.json"
      if [ -f "${SEQUENCES:-box/sequences.jsonl}" ]; then worker "${SEQUENCES:-box/sequences.jsonl}" "$out/sequences" "${SEQUENCES_MINUTES:-30}"
      else echo "sequences: not handed out"; fi ;;
    labels)
      for file in "${LABELS:-box}"/labels-*.jsonl; do
        if [ -f "$file" ]; then worker "$file" "$out/$(basename "$file" .jsonl)" "${LABELS_MINUTES:-9}"
        else echo "labels: none handed out"; fi
      done ;;
    members)
      minutes=${MINUTES:-$(($(left) / 60))}
      if [ -f "${MEMBERS:-box/members.jsonl}" ] && [ "$minutes" -ge 1 ]; then
        worker "${MEMBERS:-box/members.jsonl}" "$out/records" "$minutes"
      else echo "members: none, or no time left"; fi ;;
  esac
  echo "$part took $(($(date +%s) - began)) s"
done
