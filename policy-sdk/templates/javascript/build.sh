#!/bin/sh
# Builds least-queued.wasm. Requires node 20 or newer with npm; the compiler comes from the npm registry.
set -eu
cd "$(dirname "$0")"
# Where least-queued.wasm goes; `conductor policy build` checks it there before it replaces the one here.
out=${CONDUCTOR_OUT:-$PWD}
# PROGRAM COMMAND...: installs a program that is not there into .tools; only with CONDUCTOR_INSTALL=1, else says how.
install() {
    case ${CONDUCTOR_INSTALL:-} in
    1) echo "build.sh: installs $1, which is missing; this may take minutes:" >&2 ;;
    *) echo "build.sh: $1 is missing. Set CONDUCTOR_INSTALL=1 (conductor policy build --install) to have it installed by" >&2 ;;
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
