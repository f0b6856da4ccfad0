#!/usr/bin/env bash
# test.sh standard|all: builds and runs the tests, each stage with its time, and closes with the summaries that ctest
# printed. A stage that fails does not stop the later ones; the exit status tells.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=$1
jobs=${JOBS:-$(nproc)}
mkdir -p build
summaries=build/test-summaries.txt
: >"$summaries"
failed=0

# stage PRESET TARGETS LABEL_REGEX: an empty regex runs every test of the preset.
stage() {
  local preset=$1 targets=$2 labels=$3 start=$SECONDS
  echo "==> $preset: build"
  # shellcheck disable=SC2086
  if ! tools/build.sh "$preset" $targets; then
    echo "$preset: build FAILED" | tee -a "$summaries"
    failed=1
    return
  fi
  local built=$((SECONDS - start)) log=build/ctest-$preset.log
  echo "==> $preset: built in ${built} s, testing${labels:+ (labels: $labels)}"
  if ! ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error ${labels:+-L "$labels"} 2>&1 | tee "$log"; then
    failed=1
  fi
  {
    echo "--- $preset: built in ${built} s, tested in $((SECONDS - start - built)) s"
    sed -n '/tests passed/,$p' "$log" | grep -vE '^(Label Time|$|[a-z]+ +=)'
  } >>"$summaries"
}

stage release all ""
if [ "$mode" = all ]; then
  for preset in dev asan tsan; do
    stage "$preset" all ""
  done
  stage fuzz fuzzers fuzz
  echo "==> tidy: build"
  tools/build.sh tidy all || { echo "tidy: FAILED" >>"$summaries"; failed=1; }
else
  stage asan "tests_unit tests_property fuzzers" "unit|property|fuzz"
  stage tsan tests_threaded threaded
fi
echo
echo "==> all stages, ${SECONDS} s"
cat "$summaries"
exit $failed
