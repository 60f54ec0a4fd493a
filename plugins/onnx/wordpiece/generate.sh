#!/usr/bin/env bash
# Generates tables.go by asking the reference library (see probe.py). Needs Python 3 with venv, and Go; the library comes in the
# pinned version into a folder that is removed afterwards.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: tokenizers==0.23.3
"$work/venv/bin/python" probe.py >"$work/tables.go"
"$(go env GOROOT)/bin/gofmt" "$work/tables.go" >tables.go
