// least-queued: routes to the candidate with the fewest requests relative to its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may
// serve any request, so globals must not carry data from one call to the next; use
// `conductor_policy_state_*`.
//
// build.sh generates `scheduler.h` from wit/policy.wit. It declares every type and function of the contract.

#include "scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Requested columns, in this order: `numbers` has them row by row. All names: wit/README.md of Conductor.
enum { REQUESTS, WEIGHT, COLUMNS };
static const char *const NAMES[COLUMNS] = {"load.requests", "worker.weight"};

// A candidate with this many requests is full; 0 means no limit.
static double max_requests = 0;

void exports_conductor_policy_policy_describe(exports_conductor_policy_policy_manifest_t *manifest) {
    scheduler_string_dup(&manifest->name, "least-queued");
    scheduler_string_dup(&manifest->version, "0.1.0");
}

static const char *skip_spaces(const char *at) { return at + strspn(at, " \t\r\n"); }

// Reads digits with an optional fraction. Returns the position after them, or NULL. `strtod` reads more and
// adds 22 KiB.
static const char *read_number(const char *at, double *number) {
    const char *first = at;
    double place = 1;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) *number = *number * 10 + (*at - '0');
    if (at == first) return NULL;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++) *number += (place /= 10) * (*at - '0');
    return at;
}

// Reads `{}` or `{"max-requests": NUMBER}`, the only JSON this policy accepts. Returns the error, or NULL.
static const char *read_params(const char *at) {
    static const char KEY[] = "\"max-requests\"";
    max_requests = 0;
    at = skip_spaces(at);
    if (*at++ != '{') return "the parameters must be a table";
    at = skip_spaces(at);
    if (*at == '}') return NULL;
    if (strncmp(at, KEY, strlen(KEY)) != 0) return "there is no parameter but `max-requests`";
    at = skip_spaces(at + strlen(KEY));
    if (*at++ != ':') return "the parameters must be a table";
    at = read_number(skip_spaces(at), &max_requests);
    if (!at) return "`max-requests` must be a number, 0 or more";
    if (*skip_spaces(at) != '}') return "there is no parameter but `max-requests`";
    return NULL;
}

// `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. The text in `refusal` is
// shown to the operator, and the previous policy stays active. This function must free its arguments.
bool exports_conductor_policy_policy_configure(scheduler_string_t *params,
                                               exports_conductor_policy_policy_plan_t *plan,
                                               scheduler_string_t *refusal) {
    char *text = strndup((const char *)params->ptr, params->len);
    const char *problem = read_params(text);
    free(text);
    scheduler_string_free(params);
    if (problem) {
        scheduler_string_dup(refusal, problem);
        return false;
    }
    plan->request_features = (scheduler_list_string_t){0};
    plan->candidate_features.len = COLUMNS;
    plan->candidate_features.ptr = malloc(COLUMNS * sizeof(scheduler_string_t));
    for (int column = 0; column < COLUMNS; column++)
        scheduler_string_dup(&plan->candidate_features.ptr[column], NAMES[column]);
    return true;
}

static bool full(const double *row) { return max_requests > 0 && row[REQUESTS] >= max_requests; }

// Returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
// equal. Unknown numbers are NaN: an unknown weight counts as 1, and an unknown load makes the cost NaN.
static double cost(const double *row) {
    return full(row) ? NAN : row[REQUESTS] / (row[WEIGHT] > 0 ? row[WEIGHT] : 1);
}

void exports_conductor_policy_schedule_schedule(exports_conductor_policy_schedule_request_t *request,
                                                exports_conductor_policy_schedule_candidates_t *candidates,
                                                exports_conductor_policy_schedule_verdict_t *verdict) {
    (void)request;
    const double *numbers = candidates->numbers.ptr;
    size_t rows = candidates->ids.len, tied = 0;
    double least = INFINITY;
    bool any_full = false;
    for (size_t row = 0; row < rows; row++) {
        double here = cost(numbers + row * COLUMNS);
        any_full |= full(numbers + row * COLUMNS);
        if (here < least) {
            least = here;
            tied = 1;
        } else if (here == least) {
            tied++;
        }
    }
    if (tied > 0) {
        // Picks one of the tied candidates, each with the same probability.
        uint64_t nth = tied > 1 ? (conductor_policy_host_random() >> 32) * tied >> 32 : 0;
        uint32_t row = 0;
        while (cost(numbers + row * COLUMNS) != least || nth-- > 0) row++;
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_ROUTE;
        verdict->val.route.row = row;
        verdict->val.route.prefill.is_some = false;
        verdict->val.route.score = -least;
    } else if (any_full) {
        // First come, first served: equal orders go by arrival.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_QUEUE;
        verdict->val.queue.order = 0;
        verdict->val.queue.ask_again_ms = 50;
    } else {
        // No load is known: the router's fallback decides.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_PASS;
    }
    exports_conductor_policy_schedule_candidates_free(candidates);
}
