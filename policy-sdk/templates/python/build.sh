#!/bin/sh
# Builds least-queued.wasm. Requires python 3.10 or newer with venv; the compiler comes from PyPI.
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
    case $1 in
    venv) echo "  python3 -m venv $2 && $2/bin/pip install $3==$4" >&2 ;;
    *) echo "  $*" >&2 ;;
    esac
    [ "${CONDUCTOR_INSTALL:-}" = 1 ] || exit 1
    "$@"
}
# FOLDER PACKAGE VERSION: a virtual environment with one package of PyPI.
venv() {
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check "$2==$3"
}
version=0.25.1
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}/componentize-py-$version

if ! [ -x "$tools/bin/componentize-py" ]; then
    install componentize-py venv "$tools" componentize-py "$version"
fi

# --stub-wasi: policies have no WASI.
"$tools/bin/componentize-py" --quiet --wit-path wit --world scheduler \
    componentize --stub-wasi policy --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
