#!/usr/bin/env bash
# A full-size language model placed on two GPUs, compared with the baselines and drawn; then a small
# one that is trained for real. Everything is written to the folder given as the first argument.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: examples/demo.sh FOLDER}
mkdir -p "$out"
files=$out/rnnlm.pesto

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say pesto place zoo:RNNLM-2-2048 -m v100x2-nvlink -o "$out/rnnlm.meta" --report "$out/rnnlm.html"
say pesto compare "$files/profile.json" --strategies single,expert,m-etf,m-sct,heft,fastt,metis --quiet
say python examples/timelines.py "$files/profile.json" "$files/placement.json" "$out/rnnlm.png"
say python examples/reimport.py "$out/rnnlm.meta"
say python examples/train_placed.py "$out"
printf '\nSee %s for the devices over time, %s for all details.\n' "$out/rnnlm.png" "$out/rnnlm.html"
