#!/usr/bin/env bash
# What a GPU machine is asked: the GPU tests, the speeds, the largest member, certificates of many items, the thresholds of
# docs/law.md, and members handed out by `--hand-out`.
# usage: benchmarks/gpu.sh OUT PART...     parts: tests speeds large certify law members
# law wants box/law.jsonl, from `python -m keyspan.studies.law --groups gpu --hand-out box/law.jsonl` on a machine with a store;
# it goes on where it was stopped, and `keyspan runs import OUT/law` brings its records home.
# Needs Python with torch, Triton, NumPy and pytest; nothing is installed. Logs and records go to OUT.
set -u
out=$1; shift
mkdir -p "$out"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
bench() { name=$1; shift; "$python" -m keyspan.bench "$@" --json >"$out/$name.json" 2>"$out/$name.err"; echo "$name: exit $?"; }

{ date -u +%FT%TZ; git rev-parse HEAD 2>/dev/null; nvidia-smi -L; "$python" -c 'import torch, triton, numpy; print(torch.__version__, triton.__version__, numpy.__version__)'; } >"$out/machine.txt" 2>&1
for part in "$@"; do
  began=$(date +%s)
  case $part in
    tests)  # in as many processes as there are files and classes: most of their time is Triton compiling
      for which in "tests/attention/test_kernels.py -k InSingle" "tests/attention/test_kernels.py -k 'not InSingle'" \
                   "tests/attention/test_channel.py" "tests/attention/test_linear.py" "tests/lab"; do
        name=$(echo "tests-$which" | tr -cs 'a-zA-Z0-9_.-' '-')
        eval "timeout ${TEST_SECONDS:-150} $python -m pytest -o minversion=6 -W ignore -q -m gpu $which" >"$out/$name.log" 2>&1 &
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
    members)
      "$python" -m keyspan.lab.worker "${MEMBERS:-box/members.jsonl}" --out "$out/records" --minutes "${MINUTES:-8}" 2>"$out/members.err"
      echo "members: exit $?"; tail -n 2 "$out/members.err" ;;
  esac
  echo "$part took $(($(date +%s) - began)) s"
done
