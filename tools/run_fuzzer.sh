#!/usr/bin/env bash
# run_fuzzer.sh BINARY CORPUS WORKDIR SECONDS [libFuzzer options]
# Replays the committed corpus (any crash fails), then fuzzes for SECONDS in WORKDIR so that the tree stays
# unchanged. The time limit of one input is far above the milliseconds it takes, because it is wall time and machines are shared.
# A crashing input is left in WORKDIR; turn it into a unit test and add it to the corpus.
set -euo pipefail
binary=$1 corpus=$2 work=$3 seconds=$4
shift 4
[ -n "$(ls -A "$corpus" 2>/dev/null)" ] || { echo "no seed corpus in $corpus" >&2; exit 1; }
mkdir -p "$work"
"$binary" -runs=0 -timeout=30 -rss_limit_mb=4096 "$@" "$corpus"
exec "$binary" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -artifact_prefix="$work/" \
  -print_final_stats=0 -verbosity=0 "$@" "$work" "$corpus"
