#!/bin/sh
# Builds the core module of least-queued into CONDUCTOR_OUT (default: build). `conductor policy build` runs this
# script, makes a component of the module, and checks it. Requires Rust 1.95 or newer with the target
# wasm32-unknown-unknown, or Debian's packages below.
set -eu
cd "$(dirname "$0")"
out=${CONDUCTOR_OUT:-$PWD/build}
# install PROGRAM COMMAND...: installs a missing program if CONDUCTOR_INSTALL is 1. Without it, prints the command and
# fails.
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
target=wasm32-unknown-unknown
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/build}"
# The default stack of 1 MiB triples the cost of a new instance. Paths in panic messages are the same on
# every machine.
export RUSTFLAGS="-Clink-arg=-zstack-size=65536 -Ctarget-feature=+simd128 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"

has_target() {
    ls "$(rustc --print target-libdir --target $target 2>/dev/null)"/libstd-* >/dev/null 2>&1
}
has_debian() {
    [ -x /usr/bin/wasm-ld-22 ] && [ -x /usr/bin/cargo ] && [ -d /usr/lib/rustlib/src ]
}
if ! has_target && ! has_debian; then
    if command -v rustup >/dev/null; then
        install "the target $target" rustup target add $target
    else
        install "a compiler for $target" apt-get install -qq --no-install-recommends rustc-web cargo-web rust-web-src lld-22
    fi
fi
if has_target; then
    cargo build --release --locked --target $target
else
    # Debian's compiler builds the standard library from source.
    env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22 \
        /usr/bin/cargo build --release --locked --target $target -Zbuild-std=std,panic_abort
fi
mkdir -p "$out"
cp "$CARGO_TARGET_DIR/$target/release/least_queued.wasm" "$out/least-queued.wasm"
