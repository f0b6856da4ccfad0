#!/usr/bin/env bash
# fuzz_long.sh SECONDS [TARGET...]: fuzzes every target (or those named) for SECONDS, two at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
tools/build.sh fuzz fuzzers
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.cpp; do
    targets+=("$(basename "$source" .cpp)")
  done
fi
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c \
  "tools/run_fuzzer.sh build/fuzz/tests/fuzz/{} tests/fuzz/corpus/{} build/fuzz-long/{} $seconds >build/fuzz-long-{}.log 2>&1 \
   && echo '{}: clean after $seconds s' || { echo '{}: FAILED, see build/fuzz-long-{}.log'; exit 1; }"
