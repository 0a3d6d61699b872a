#!/bin/sh
# Builds the scheduler of every language as LANGUAGE.wasm in a folder (default: target/languages).
#     policy-sdk/templates/build-all.sh [FOLDER [LANGUAGE...]]
# For each language the script makes and builds a project outside of the repository, as the author of a policy does. It
# uses the program at CONDUCTOR (default: target/release/conductor).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
conductor=${CONDUCTOR:-$root/target/release/conductor}
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
    "$conductor" policy new least-queued --lang "$language" --dir "$work/$language"
    # Interpreters need more than the usual limits.
    "$conductor" policy build "$work/$language" --cpu-ms 100 --memory-mib 64
    mv "$work/$language/least-queued.wasm" "$out/$language.wasm"
    rm -rf "${work:?}/$language"
done
