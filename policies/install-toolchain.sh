#!/usr/bin/env bash
# Checks for a toolchain for `cargo prebuild`: rustup's wasm target or Debian's packages. Without one, the script prints
# the commands that install it and fails. With --install, the script installs Debian's packages.
set -euo pipefail
target=$(rustc --print target-libdir --target wasm32-unknown-unknown 2>/dev/null || true)
if [ -d "$target" ] || [ -x /usr/bin/wasm-ld-22 ]; then exit 0; fi
packages='rustc-web cargo-web rust-web-src lld-22'
if [ "${1:-}" != --install ]; then
    echo 'found no compiler for policies. Run either' >&2
    echo '  rustup target add wasm32-unknown-unknown' >&2
    echo "or, as root on Debian, $0 --install, which runs" >&2
    echo "  apt-get install --no-install-recommends $packages" >&2
    exit 1
fi
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] ||
    { echo 'failed to install: this needs root on a Debian machine' >&2; exit 1; }
# Short timeouts, since apt without a network would try every mirror for minutes.
quick='-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1'
# shellcheck disable=SC2086
apt-get $quick update -qq
# shellcheck disable=SC2086
apt-get $quick install -y -qq --no-install-recommends $packages
