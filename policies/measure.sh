#!/usr/bin/env sh
# Simulates every built-in policy on every load and cluster shape, with a table and a page for each: the figures of README.md.
#
#   policies/measure.sh FOLDER [conversation_trace.jsonl]
#
# Without Mooncake's trace (source: host/simulator/README.md) it runs the generated loads only. CONDUCTOR: the binary.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?"failed to measure: name a folder for the results"}
trace=${2:-}
conductor=${CONDUCTOR:-$root/target/release/conductor}
[ -x "$conductor" ] || cargo build --release --locked --package conductor --manifest-path "$root/Cargo.toml"
mkdir -p "$folder"

all='random round-robin least-request least-tokens power-of-two load-weighted session-affinity consistent-hash-bounded-load prefix-hash longest-match
sglang-cache-aware preble-e2 lmetric dynamo-kv-cost priced-ttft cache-aware ttft-queue'

# measure NAME MOONCAKE ARGUMENTS...: mooncake-alg1 gets `transfer-share = 1` without fetching, and with exact costs, which include
# the fetched part. Learned costs do not include it.
measure() {
    name=$1 mooncake=$2
    shift 2
    # shellcheck disable=SC2086
    "$conductor" simulate $all "$mooncake" --queue-timeout-s 120 "$@" --html "$folder/$name.html" >"$folder/$name.txt"
    echo "$folder/$name.txt"
}
priced='mooncake-alg1={"transfer-share":1}'

if [ -n "$trace" ]; then
    for costs in exact learnt; do
        measure "conversation-prefill-$costs" "$priced" --trace "$trace" --prefill-only --costs $costs --speeds 1,1.5,2
        fetching=mooncake-alg1
        [ $costs = learnt ] || fetching=$priced
        measure "conversation-prefill-fetch-$costs" "$fetching" --trace "$trace" --prefill-only --costs $costs --fetch cheapest --speeds 1,1.5,2
    done
    measure conversation-8-and-8 "$priced" --trace "$trace" --workers 8 --decode 8 --tbt-limit-ms 300 --speeds 1,2
    measure conversation-mixed "$priced" --trace "$trace" --workers 16 --speeds 1,2
fi
for mix in conversation agents shared-prompt rag long-context bursts; do
    measure "mix-$mix" "$priced" --mix $mix --seed 201 --speeds 1,1.5
done
