#!/usr/bin/env sh
# Simulates one policy with the router's default settings, such as the queue timeout. Prints the figures of
# ttft-queue/README.md.
#
#   policies/measure-default.sh conversation_trace.jsonl [POLICY]
#
# POLICY is a name or a component, optionally with parameters. Each line has the setting, the mean and the maximum time
# to first token, the share of all requests within the limits, and the share of refused requests.
# Environment: CONDUCTOR is the binary, and SEED the seed of the mixes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
trace=${1:?"failed to measure: name Mooncake's conversation trace (host/simulator/README.md)"}
policy=${2:-ttft-queue}
conductor=${CONDUCTOR:-$root/target/release/conductor}
[ -x "$conductor" ] || cargo build --release --locked --package conductor --manifest-path "$root/Cargo.toml"

# number KEY: prints the first value of a key in the JSON on stdin.
number() {
    grep -o "\"$1\":[-0-9.e]*" | head -n 1 | cut -d: -f2
}

# measure NAME ARGUMENTS...: runs one simulation and prints its line.
measure() {
    name=$1
    shift
    row=$("$conductor" simulate "$@" --json | tr -d ' \n' | sed 's/.*"rows":\[//')
    times=$(printf '%s' "$row" | sed 's/.*"ttft-s":{\([^}]*\)}.*/{\1}/')
    # Skips the breakdown, which has a key `requests` before the total number of requests.
    requests=$(printf '%s' "$row" | sed 's/.*"rejected-early"://' | number requests)
    refused=$(printf '%s' "$row" | number rejected)
    printf '%-34s mean %7.2f s, max %6.1f s, within 30 s %6.2f %%, within both %6.2f %%, refused %5.2f %%, after prefill %s\n' "$name" \
        "$(printf '%s' "$times" | number mean)" "$(printf '%s' "$times" | number max)" \
        "$(printf '%s' "$row" | number within-ttft | awk '{ print 100 * $1 }')" \
        "$(printf '%s' "$row" | number effective | awk '{ print 100 * $1 }')" \
        "$(echo "$refused $requests" | awk '{ print 100 * $1 / $2 }')" "$(printf '%s' "$row" | number rejected-after-prefill)"
}

for costs in exact learnt; do
    for speed in 1 1.5 2 3; do
        measure "8 workers, fetch, $costs, x$speed" "$policy" --trace "$trace" --prefill-only --fetch cheapest --costs $costs --speeds $speed
    done
done
for speed in 1 1.5 2; do
    measure "8 workers, no fetch, exact, x$speed" "$policy" --trace "$trace" --prefill-only --costs exact --speeds $speed
done
for size in '64 16' '256 64'; do
    # shellcheck disable=SC2086
    set -- $size
    measure "$1 workers, fetch, exact, x$2" "$policy" --trace "$trace" --prefill-only --fetch cheapest --costs exact --workers "$1" --speeds "$2"
done
measure '8 workers, no knowledge, exact, x2' "$policy" --trace "$trace" --prefill-only --fetch cheapest --costs exact --knowledge none --speeds 2
measure '8 and 2 that refuse, exact, x2' "$policy" --trace "$trace" --decode 2 --decode-refuses --fetch cheapest --costs exact --speeds 2
for mix in conversation agents shared-prompt rag long-context bursts; do
    for speed in 1 2; do
        measure "16 mixed, $mix, learnt, x$speed" "$policy" --mix $mix --seed "${SEED:-101}" --requests 2000 --workers 16 --event-lag-ms 100 --speeds $speed
    done
done
