#!/usr/bin/env sh
# Simulates several routers that share nothing, their loads, their loads and queues, or all state of [replicas]. Prints
# the tables of host/docs/operation/replicas.md.
#
#   policies/measure-replicas.sh conversation_trace.jsonl|- [POLICY]
#
# With `-` the script simulates only the generated mixes, without the trace. Each cell has the mean time to first token
# in seconds, and the share of the requests within 30 s in per cent. Environment: CONDUCTOR is the binary. ROUTERS,
# PERIODS and WORKERS replace the default numbers of routers, periods in milliseconds, and numbers of workers.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
trace=${1:?"failed to measure: name Mooncake's conversation trace (host/simulator/README.md), or -"}
policy=${2:-ttft-queue}
conductor=${CONDUCTOR:-$root/target/release/conductor}
routers=${ROUTERS:-2 4 8 16}
periods=${PERIODS:-1 5 20 100 1000}
[ -x "$conductor" ] || cargo build --release --locked --package conductor --manifest-path "$root/Cargo.toml"

# cell ARGUMENTS...: runs one simulation and prints its cell of the table.
cell() {
    row=$("$conductor" simulate "$policy" "$@" --queue-timeout-s 120 --json | tr -d ' \n' | sed 's/.*"rows":\[//')
    mean=$(printf '%s' "$row" | sed 's/.*"ttft-s":{\([^}]*\)}.*/\1/' | grep -o '"mean":[-0-9.e]*' | cut -d: -f2)
    within=$(printf '%s' "$row" | grep -o '"within-ttft":[-0-9.e]*' | head -n 1 | cut -d: -f2)
    printf ' %.2f, %.1f |' "$mean" "$(echo "$within" | awk '{ print 100 * $1 }')"
}

# table NAME ARGUMENTS...: simulates one load with one router and with several routers, and prints the table.
table() {
    printf '\n%s\n\n| routers | nothing |' "$1"
    shift
    for period in $periods; do printf ' loads, %s ms |' "$period"; done
    printf ' loads and queue, 5 ms | all, 5 ms |\n|---|---|'
    for _ in $periods; do printf -- '---|'; done
    printf -- '---|---|\n| 1 |'
    cell "$@"
    printf '\n'
    for count in $routers; do
        printf '| %s |' "$count"
        cell "$@" --replicas "$count"
        for period in $periods; do cell "$@" --replicas "$count" --share loads --share-ms "$period"; done
        cell "$@" --replicas "$count" --share queue
        cell "$@" --replicas "$count" --share all
        printf '\n'
    done
}

for size in ${WORKERS:-8 64}; do
    # The speed grows with the number of workers, so that the load of each worker is the same.
    set -- "$size" "$((size / 4))"
    if [ "$trace" != - ]; then
        load="--trace $trace --spread --prefill-only --fetch cheapest"
        # shellcheck disable=SC2086
        table "Conversation trace, $1 workers, x$2:" $load --workers "$1" --speeds "$2"
        # shellcheck disable=SC2086
        table "Conversation trace with exact costs, $1 workers, x$2:" $load --costs exact --workers "$1" --speeds "$2"
    fi
    for mix in rag agents; do
        table "Mix $mix, $1 workers, x$2:" --mix $mix --requests "$((500 * $1))" --workers "$1" --speeds "$2"
    done
done
