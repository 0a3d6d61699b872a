#!/usr/bin/env sh
# Simulates the built-in policies on named loads, for the figures of README.md. Writes a page and a JSON report for each
# load.
#
#   policies/measure.sh FOLDER [TRACE|- [LOAD...]]
#
# TRACE is Mooncake's conversation_trace.jsonl (source: host/simulator/README.md), or `-` for no trace. By default the
# script simulates all loads:
#
#   shipped   8 workers that compute prompts one after the other, with the default settings of the router
#   research  the same with a queue timeout of 120 s, as in our research and in earlier figures
#   fleet     16 mixed workers as in production: chunked prefill, learned costs, late events, the default queue timeout
#   pairs     8 prefill and 8 decode workers
#   mixes     generated loads on 8 mixed workers
#
# Every load except `mixes` needs a trace. Environment: CONDUCTOR is the binary, and POLICIES replaces the list of
# policies. `policies/tables.py FOLDER --update` writes the results into README.md.
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
# Settings of Mooncake's Algorithm 1: whether its predictions subtract the time saved by a fetch. Exact costs already
# include fetches. Learned costs do not.
off='mooncake-alg1={"prefetch":"off"}'
in_costs='mooncake-alg1={"prefetch":"in-costs"}'
subtracted='mooncake-alg1={"prefetch":"subtracted"}'

# measure NAME MOONCAKE ARGUMENTS...: simulates one load and writes its page and its JSON report.
measure() {
    name=$1 mooncake=$2
    shift 2
    # shellcheck disable=SC2086
    "$conductor" simulate $all "$mooncake" "$@" --tenants 8 --html "$folder/$name.html" --json >"$folder/$name.json"
    echo "$folder/$name.json"
}

# prefill NAME ARGUMENTS...: simulates a load without and with fetching, each with exact and with learned costs.
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
