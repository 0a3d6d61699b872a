#!/bin/sh
# Builds the program for packages with profile-guided optimisation (PGO) and fat link-time optimisation (LTO):
#
#   config/deploy/pgo.sh target/pgo
#   config/deploy/tarball.sh target/pgo/conductor target/packages
#
# The script builds the program twice and runs `load proxy-cpu` between the builds. This takes three to four times as
# long as `cargo build --release`. The profile depends on the toolchain of the machine, so it is not in the repository.
set -eu
mkdir -p "${1:?usage: config/deploy/pgo.sh FOLDER}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
rustup component add llvm-tools
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata

echo '== build of the instrumented program' >&2
rm -rf "$out/counts"
# The process that compiles policies has no environment, so LLVM_PROFILE_FILE does not set its profile path. Its sandbox
# kills it if it writes a file. The default profile path therefore cannot exist, and this process writes no profile.
RUSTFLAGS="-Cprofile-generate=/dev/null" CARGO_INCREMENTAL=0 \
    cargo build --release --locked -p conductor --target "$host" --target-dir "$out/instrumented"

echo '== profile under load' >&2
cargo build --release --locked -p load
LLVM_PROFILE_FILE="$out/counts/%p.profraw" \
    target/release/load proxy-cpu --conductor "$out/instrumented/$host/release/conductor" \
    --systems round-robin,cache-aware-live,default-live --scenarios 1k,32k,32k-turn,sse,burst --rounds 1 --window-s 2
"$profdata" merge -o "$out/conductor.profdata" "$out/counts"

echo '== build of the optimised program' >&2
# RUSTFLAGS enables LTO, since cargo's setting would change the names of functions. The profile refers to them by name.
RUSTFLAGS="-Cprofile-use=$out/conductor.profdata -Clto=fat -Cembed-bitcode=yes" CARGO_INCREMENTAL=0 \
    cargo build --release --locked -p conductor --target "$host" --target-dir "$out/guided"
cp "$out/guided/$host/release/conductor" "$out/conductor"
rm -rf "$out/instrumented" "$out/counts"
