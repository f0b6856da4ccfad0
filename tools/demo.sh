#!/usr/bin/env bash
# Runs a real model: SmolLM2-135M-Instruct, fetched once into $TRINE_HOME.
set -euo pipefail
cd "$(dirname "$0")/.."
build/release/trine pull smollm2-135m
echo "==> trine run smollm2-135m -p 'Explain in three sentences why the sky is blue.' --temperature 0 -n 120"
build/release/trine run smollm2-135m -p 'Explain in three sentences why the sky is blue.' --temperature 0 -n 120
