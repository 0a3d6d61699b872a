#!/usr/bin/env bash
# Installs what `cargo prebuild` needs on a Debian machine where rustup has no wasm target.
set -euo pipefail
target=$(rustc --print target-libdir --target wasm32-unknown-unknown 2>/dev/null || true)
if [ -d "$target" ] || [ -x /usr/bin/wasm-ld-22 ]; then exit 0; fi
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || { echo 'needs root on a Debian machine' >&2; exit 1; }
apt-get update -qq
apt-get install -y -qq --no-install-recommends rustc-web cargo-web rust-web-src lld-22
