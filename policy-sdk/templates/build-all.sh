#!/bin/sh
# Builds the scheduler of every language into a folder (default: target/languages), as LANGUAGE.wasm.
#     policy-sdk/templates/build-all.sh [FOLDER [LANGUAGE...]]
# Each template is built as a copy outside of the repository, next to the router's contract, as its author
# will build it.
set -eu
templates=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$templates/../.." && pwd)
out=${1:-$root/target/languages}
[ $# -gt 0 ] && shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
# The compilers are kept between runs.
CONDUCTOR_TOOLS=${CONDUCTOR_TOOLS:-$root/target/language-tools}
export CONDUCTOR_TOOLS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ $# -gt 0 ] || set -- c cpp zig rust assemblyscript go javascript python
for language in "$@"; do
    echo "== $language"
    cp -R "$templates/$language" "$work/"
    rm -rf "$work/$language/build" "$work/$language/wit"
    mkdir "$work/$language/wit"
    cp "$root/wit/policy.wit" "$work/$language/wit/"
    "$work/$language/build.sh"
    mv "$work/$language/least-queued.wasm" "$out/$language.wasm"
    rm -rf "${work:?}/$language"
done
