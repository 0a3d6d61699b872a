#!/usr/bin/env sh
# Has every built-in policy place every load on every shape of a cluster, and writes a table and a page for each: the figures of README.md.
#
#   policies/measure.sh FOLDER [conversation_trace.jsonl]
#
# Without Mooncake's trace (host/simulator/README.md says where to get it) the generated loads alone. CONDUCTOR: the binary to use.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?"failed to measure: name a folder for the results"}
trace=${2:-}
conductor=${CONDUCTOR:-$root/target/release/conductor}
[ -x "$conductor" ] || cargo build --release --locked --package conductor --manifest-path "$root/Cargo.toml"
mkdir -p "$folder"

all='random round-robin least-request least-tokens power-of-two load-weighted session-affinity consistent-hash-bounded-load prefix-hash longest-match
sglang-cache-aware preble-e2 lmetric dynamo-kv-cost priced-ttft cache-aware conductor'

# measure NAME MOONCAKE ARGUMENTS...: Mooncake's policy gets `transfer-share = 1` where nothing is fetched, and where costs are exact:
# those have what is fetched in them already. Costs that are learnt do not.
measure() {
    name=$1 mooncake=$2
    shift 2
    # shellcheck disable=SC2086
    "$conductor" simulate $all "$mooncake" --queue-timeout-s 120 "$@" --html "$folder/$name.html" >"$folder/$name.txt"
    echo "$folder/$name.txt"
}
priced='mooncake={"transfer-share":1}'

if [ -n "$trace" ]; then
    for costs in exact learnt; do
        measure "conversation-prefill-$costs" "$priced" --trace "$trace" --prefill-only --costs $costs --speeds 1,1.5,2
        fetching=mooncake
        [ $costs = learnt ] || fetching=$priced
        measure "conversation-prefill-fetch-$costs" "$fetching" --trace "$trace" --prefill-only --costs $costs --fetch cheapest --speeds 1,1.5,2
    done
    measure conversation-8-and-8 "$priced" --trace "$trace" --workers 8 --decode 8 --tbt-limit-ms 300 --speeds 1,2
    measure conversation-mixed "$priced" --trace "$trace" --workers 16 --speeds 1,2
fi
for mix in conversation agents shared-prompt rag long-context bursts; do
    measure "mix-$mix" "$priced" --mix $mix --seed 201 --speeds 1,1.5
done
