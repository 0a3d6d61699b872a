// least-queued: the candidate with the fewest requests for its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may answer any
// request, so nothing that matters is kept here between calls: that is what `conductor_policy_state_*` is for.
// `scheduler.h` is made from wit/policy.wit by build.sh; it has every type and function there is.

#include "scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The columns asked for, in this order: `numbers` has them row after row. All names: wit/README.md of Conductor.
enum { REQUESTS, WEIGHT, COLUMNS };
static const char *const NAMES[COLUMNS] = {"load.requests", "worker.weight"};

// A candidate with so many requests gets no more; 0 is no limit.
static double max_requests = 0;

void exports_conductor_policy_policy_describe(exports_conductor_policy_policy_manifest_t *manifest) {
    scheduler_string_dup(&manifest->name, "least-queued");
    scheduler_string_dup(&manifest->version, "0.1.0");
}

static const char *skip_spaces(const char *at) { return at + strspn(at, " \t\r\n"); }

// Digits, with a fraction perhaps; the place behind them, or NULL. `strtod` knows more and adds 22 KiB.
static const char *read_number(const char *at, double *number) {
    const char *first = at;
    double place = 1;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) *number = *number * 10 + (*at - '0');
    if (at == first) return NULL;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++) *number += (place /= 10) * (*at - '0');
    return at;
}

// Reads `{}` or `{"max-requests": NUMBER}`, which is all the JSON this policy knows. Says what is wrong, or NULL.
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

// `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. What is put into `refusal` is shown
// to the operator, and the policy before this one keeps deciding. What is given to this function is its own to free.
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

// Requests for the weight; NaN for a row that is out of the question, since NaN is neither less than nor equal to
// anything. What the router does not know is NaN: an unknown weight counts as 1, and an unknown load stays NaN.
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
        // The n-th of those tied, each as likely as the others.
        uint64_t nth = tied > 1 ? (conductor_policy_host_random() >> 32) * tied >> 32 : 0;
        uint32_t row = 0;
        while (cost(numbers + row * COLUMNS) != least || nth-- > 0) row++;
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_ROUTE;
        verdict->val.route.row = row;
        verdict->val.route.prefill.is_some = false;
        verdict->val.route.score = -least;
    } else if (any_full) {
        // First come, first served.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_QUEUE;
        verdict->val.queue.order = (double)conductor_policy_host_now_us();
        verdict->val.queue.ask_again_ms = 50;
    } else {
        // Nobody's load is known: the router's own fallback decides.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_PASS;
    }
    exports_conductor_policy_schedule_candidates_free(candidates);
}
