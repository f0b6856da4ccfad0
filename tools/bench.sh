#!/usr/bin/env bash
# Runs every micro benchmark with the machine's name above the figures. Figures of a shared machine are ratios within one
# run, not absolutes.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
for program in build/release/bench/micro/bench_*; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    echo "==> $(basename "$program")"
    "$program" --benchmark_counters_tabular=true "$@"
  fi
done
echo "==> packed kernels"
build/release/trine bench kernels
