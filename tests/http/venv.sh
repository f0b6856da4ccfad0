#!/usr/bin/env bash
# venv.sh DIRECTORY [REQUIREMENTS]: a Python environment with these packages, made anew when that file changed.
set -euo pipefail
requirements=${2:-$(dirname "$0")/requirements.txt}
cmp -s "$requirements" "$1/requirements.txt" && exit 0
rm -rf "$1"
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
cp "$requirements" "$1/requirements.txt"
