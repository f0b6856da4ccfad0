#!/usr/bin/env bash
# venv.sh DIRECTORY: a Python environment with requirements.txt, made anew when that file changed.
set -euo pipefail
requirements=$(dirname "$0")/requirements.txt
cmp -s "$requirements" "$1/requirements.txt" && exit 0
rm -rf "$1"
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
cp "$requirements" "$1/requirements.txt"
