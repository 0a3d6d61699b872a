#!/bin/sh
# Builds least-queued.wasm. Requires node 20 or newer with npm; the compiler comes from the npm registry.
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
    echo "  $*" >&2
    [ "${CONDUCTOR_INSTALL:-}" = 1 ] || exit 1
    "$@"
}
version=0.4.5
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}/componentize-qjs-$version

if ! [ -x "$tools/node_modules/.bin/componentize-qjs" ]; then
    install componentize-qjs npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "componentize-qjs@$version"
fi

# --sync: the router calls a policy as a synchronous function. --stub-wasi: policies have no WASI.
"$tools/node_modules/.bin/componentize-qjs" --wit wit --world scheduler --js policy.mjs \
    --sync --stub-wasi --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
