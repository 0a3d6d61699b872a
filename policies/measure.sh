#!/usr/bin/env sh
# Simulates the built-in policies on named loads: the figures of README.md. Each load gets a page and a JSON report.
#
#   policies/measure.sh FOLDER [TRACE|- [LOAD...]]
#
# TRACE is Mooncake's conversation_trace.jsonl (source: host/simulator/README.md); `-` is none. Loads, all by default:
#
#   shipped   8 workers that compute prompts one after the other, with the shipped defaults of the router
#   research  the same with a queue of 120 s: the replay of our research, and of earlier figures
#   fleet     16 mixed workers as an operator has them: chunked prefill, learned costs, late events, the shipped queue
#   pairs     8 prefill and 8 decode workers
#   mixes     generated loads on 8 mixed workers
#
# Only `mixes` needs no trace. CONDUCTOR: the binary. POLICIES: other policies than the built-in ones.
# policies/tables.py FOLDER --update writes them into README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?"failed to measure: name a folder for the results"}
trace=${2:--}
[ $# -lt 2 ] && shift 1 || shift 2
loads=${*:-shipped research fleet pairs mixes}
conductor=${CONDUCTOR:-$root/target/release/conductor}
[ -x "$conductor" ] || cargo build --release --locked --package conductor --manifest-path "$root/Cargo.toml"
mkdir -p "$folder"

all=${POLICIES:-'random round-robin least-request least-tokens power-of-two load-weighted session-affinity
consistent-hash-bounded-load prefix-hash longest-match sglang-cache-aware preble-e2 lmetric dynamo-kv-cost priced-ttft
cache-aware dualmap kairos skywalker predicted-latency ttft-queue'}
# Whether Algorithm 1 of Mooncake subtracts a fetch from its predictions itself. Exact costs contain fetches already;
# learned ones do not.
off='mooncake-alg1={"prefetch":"off"}'
in_costs='mooncake-alg1={"prefetch":"in-costs"}'
subtracted='mooncake-alg1={"prefetch":"subtracted"}'

# measure NAME MOONCAKE ARGUMENTS...
measure() {
    name=$1 mooncake=$2
    shift 2
    # shellcheck disable=SC2086
    "$conductor" simulate $all "$mooncake" "$@" --tenants 8 --html "$folder/$name.html" --json >"$folder/$name.json"
    echo "$folder/$name.json"
}

# prefill NAME ARGUMENTS...: without and with fetching, with exact and learned costs.
prefill() {
    family=$1
    shift 1
    for costs in exact learnt; do
        fetching=$subtracted
        [ $costs = learnt ] || fetching=$in_costs
        measure "$family-$costs" "$off" "$@" --costs $costs
        measure "$family-fetch-$costs" "$fetching" "$@" --costs $costs --fetch cheapest
    done
}

for load in $loads; do
    [ "$load" = mixes ] || [ -f "$trace" ] || { echo "skipped $load: no trace" >&2; continue; }
    case $load in
    shipped) prefill shipped --trace "$trace" --prefill-only --speeds 1,1.5,2,3 ;;
    research) prefill research --trace "$trace" --prefill-only --speeds 1,1.5,2 --queue-timeout-s 120 ;;
    fleet)
        measure fleet "$off" --trace "$trace" --workers 16 --event-lag-ms 1000 --tbt-limit-ms 300 --speeds 1,1.5,2
        measure fleet-fetch "$subtracted" --trace "$trace" --workers 16 --event-lag-ms 1000 --tbt-limit-ms 300 \
            --speeds 1,1.5,2 --fetch cheapest
        ;;
    pairs)
        measured=$all
        all="$all pd-pairing netkv"
        measure pairs "$off" --trace "$trace" --workers 8 --decode 8 --tbt-limit-ms 300 --speeds 1,2
        all=$measured
        ;;
    mixes)
        for mix in conversation agents shared-prompt rag long-context bursts; do
            measure "mix-$mix" "$off" --mix $mix --seed 201 --speeds 1,1.5
        done
        ;;
    *) echo "failed to measure: there is no load \`$load\`" >&2 && exit 2 ;;
    esac
done
