#!/usr/bin/env bash
# build.sh PRESET TARGET...: configures the preset once and builds the targets.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
if [ ! -f "build/$preset/build.ninja" ]; then
  echo "==> configuring build/$preset"
  cmake --preset "$preset" >/dev/null
fi
if ! ninja -C "build/$preset" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
  echo "==> building build/$preset ($*)"
  ninja -C "build/$preset" -j "${JOBS:-$(nproc)}" --quiet "$@"
fi
