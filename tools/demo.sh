#!/usr/bin/env bash
# Runs a real model: SmolLM2-135M-Instruct, fetched once into $TRINE_HOME. Installs and builds what is missing
# first, and says so when nothing was.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$(mktemp)
trap 'rm -f "$started"' EXIT
installed=$(tools/setup.sh packages.txt | tee /dev/stderr)
tools/build.sh release trine
pulled=$(build/release/trine pull smollm2-135m)
echo "$pulled"
model=$(cut -f 2 <<<"$pulled")
if [ -z "$installed" ] && [ ! build/release/trine -nt "$started" ] &&
  [ ! "$(dirname "$model")/manifest.json" -nt "$started" ]; then
  echo "==> nothing had to be set up: packages, program and model are in place"
fi
echo "==> trine run smollm2-135m -p 'Explain in three sentences why the sky is blue.' --temperature 0 -n 120"
build/release/trine run smollm2-135m -p 'Explain in three sentences why the sky is blue.' --temperature 0 -n 120
