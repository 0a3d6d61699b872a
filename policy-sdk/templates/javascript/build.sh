#!/bin/sh
# Builds least-queued.wasm. Needs node 20 or newer with npm; the compiler comes from the npm registry.
set -eu
cd "$(dirname "$0")"
version=0.4.5
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}/componentize-qjs-$version

if ! [ -x "$tools/node_modules/.bin/componentize-qjs" ]; then
    npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "componentize-qjs@$version"
fi

# --sync: the router calls a policy as a plain function, not as an async one. --stub-wasi: policies get no WASI.
"$tools/node_modules/.bin/componentize-qjs" --wit wit --world scheduler --js policy.mjs \
    --sync --stub-wasi --output least-queued.wasm
ls -l least-queued.wasm
