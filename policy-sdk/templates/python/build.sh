#!/bin/sh
# Builds least-queued.wasm. Requires python 3.10 or newer with venv; the compiler comes from PyPI.
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
version=0.25.1
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}/componentize-py-$version

if ! [ -x "$tools/bin/componentize-py" ]; then
    install componentize-py venv "$tools" componentize-py "$version"
fi

# --stub-wasi: policies have no WASI.
"$tools/bin/componentize-py" --quiet --wit-path wit --world scheduler \
    componentize --stub-wasi policy --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
