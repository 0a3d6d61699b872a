#!/bin/sh
# Builds least-queued.wasm. Needs python 3.10 or newer with venv; the compiler comes from PyPI.
set -eu
cd "$(dirname "$0")"
version=0.25.1
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}/componentize-py-$version

if ! [ -x "$tools/bin/componentize-py" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$version"
fi

# --stub-wasi: policies get no WASI.
"$tools/bin/componentize-py" --quiet --wit-path wit --world scheduler \
    componentize --stub-wasi policy --output least-queued.wasm
ls -l least-queued.wasm
