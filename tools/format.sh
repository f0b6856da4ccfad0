#!/usr/bin/env bash
# format.sh [--check]: clang-format 16 over every tracked C++ file.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files -z '*.h' '*.cpp' | xargs -0 -n 16 -P "$(nproc)" clang-format-16 "${mode[@]}"
