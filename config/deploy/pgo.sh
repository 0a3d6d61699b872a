#!/bin/sh
# Builds the program with a profile of its own traffic (profile-guided optimisation) and as one unit (link-time
# optimisation), for packages:
#
#   config/deploy/pgo.sh target/pgo
#   config/deploy/tarball.sh target/pgo/conductor target/packages
#
# It builds the program twice, which takes three to four times as long as `cargo build --release`, and runs
# `load proxy-cpu` between the builds. The profile is of this machine's toolchain, so it is not in the repository.
set -eu
mkdir -p "${1:?usage: config/deploy/pgo.sh FOLDER}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
rustup component add llvm-tools
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata

echo '== program that counts' >&2
rm -rf "$out/counts"
# The process that compiles policies has no environment and may write no file: a write would end it by a signal. Its
# profile has a path that cannot exist, so it is lost.
RUSTFLAGS="-Cprofile-generate=/dev/null" CARGO_INCREMENTAL=0 \
    cargo build --release --locked -p conductor --target "$host" --target-dir "$out/instrumented"

echo '== traffic' >&2
cargo build --release --locked -p load
LLVM_PROFILE_FILE="$out/counts/%p.profraw" \
    target/release/load proxy-cpu --conductor "$out/instrumented/$host/release/conductor" \
    --systems round-robin,cache-aware-live,default-live --scenarios 1k,32k,32k-turn,sse,burst --rounds 1 --window-s 2
"$profdata" merge -o "$out/conductor.profdata" "$out/counts"

echo '== program' >&2
# Not by cargo's own setting: it would change the names of functions, by which the profile is found.
RUSTFLAGS="-Cprofile-use=$out/conductor.profdata -Clto=fat -Cembed-bitcode=yes" CARGO_INCREMENTAL=0 \
    cargo build --release --locked -p conductor --target "$host" --target-dir "$out/guided"
cp "$out/guided/$host/release/conductor" "$out/conductor"
rm -rf "$out/instrumented" "$out/counts"
