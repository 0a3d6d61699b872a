#!/usr/bin/env bash
# Prints how to install the toolchain of `cargo prebuild` on a Debian machine without rustup's wasm target;
# --install installs it.
set -euo pipefail
target=$(rustc --print target-libdir --target wasm32-unknown-unknown 2>/dev/null || true)
if [ -d "$target" ] || [ -x /usr/bin/wasm-ld-22 ]; then exit 0; fi
packages='rustc-web cargo-web rust-web-src lld-22'
if [ "${1:-}" != --install ]; then
    echo 'found no compiler for policies. Run either' >&2
    echo '  rustup target add wasm32-unknown-unknown' >&2
    echo "or, on Debian, as root, $0 --install, which runs" >&2
    echo "  apt-get install --no-install-recommends $packages" >&2
    exit 1
fi
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || { echo 'failed to install: this needs root on a Debian machine' >&2; exit 1; }
# Short timeouts: without a network, apt would try every mirror for minutes.
quick='-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1'
# shellcheck disable=SC2086
apt-get $quick update -qq
# shellcheck disable=SC2086
apt-get $quick install -y -qq --no-install-recommends $packages
