#!/usr/bin/env bash
# The main job on a full-size graph: export, profile, compare, solve, apply; then a placed graph
# that runs for real. Everything is written to the folder given as the first argument.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: examples/demo.sh FOLDER}
mkdir -p "$out"

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say pesto export zoo:RNNLM-2-2048 -o "$out/rnnlm.meta"
say pesto profile "$out/rnnlm.meta" --machine v100x2-nvlink -o "$out/rnnlm.profile.json"
say pesto solve "$out/rnnlm.profile.json" -o "$out/rnnlm.placement.json" --time-limit 60
say pesto compare "$out/rnnlm.profile.json" --time-limit 60 --quiet
say pesto apply "$out/rnnlm.meta" "$out/rnnlm.placement.json" -o "$out/rnnlm.placed.meta"
say python examples/reimport.py "$out/rnnlm.placed.meta"
say python examples/train_placed.py "$out"
