// least-queued: routes to the candidate with the fewest requests relative to its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may
// serve any request, so globals must not carry data from one call to the next; use
// `conductor_policy_state_*`.
//
// build.sh generates `scheduler.h` from wit/policy.wit: C bindings, which C++ calls directly.

#include "scheduler.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

// Replaces libc++'s handler, which prints a message and would import WASI.
void std::__libcpp_verbose_abort(const char *, ...) noexcept { __builtin_trap(); }

namespace {

using namespace std::string_view_literals;

// A candidate with this many requests is full; 0 means no limit.
double max_requests = 0;

// Row of one candidate in `numbers`: the requested columns, in this order. All names: wit/README.md of
// Conductor.
struct Row {
    double requests;
    double weight;

    bool full() const { return max_requests > 0 && requests >= max_requests; }

    // Returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
    // equal. Unknown numbers are NaN: an unknown weight counts as 1, and an unknown load makes the cost NaN.
    double cost() const {
        return full() ? std::numeric_limits<double>::quiet_NaN() : requests / (weight > 0 ? weight : 1);
    }
};
constexpr const char *COLUMNS[] = {"load.requests", "worker.weight"};

std::string_view trimmed(std::string_view text) {
    constexpr auto spaces = " \t\r\n"sv;
    const auto first = text.find_first_not_of(spaces);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// Reads digits with an optional fraction. `std::strtod` reads more and adds 22 KiB.
std::optional<double> read_number(std::string_view text) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (text.empty() || !digit(text.front())) return {};
    double number = 0, place = 1;
    for (; !text.empty() && digit(text.front()); text.remove_prefix(1)) number = number * 10 + (text.front() - '0');
    if (text.starts_with('.'))
        for (text.remove_prefix(1); !text.empty() && digit(text.front()); text.remove_prefix(1))
            number += (place /= 10) * (text.front() - '0');
    if (!text.empty()) return {};
    return number;
}

// Reads `{}` or `{"max-requests": NUMBER}`, the only JSON this policy accepts. Returns the error, if any.
std::optional<const char *> read_params(std::string_view text) {
    max_requests = 0;
    text = trimmed(text);
    if (!text.starts_with('{') || !text.ends_with('}')) return "the parameters must be a table";
    text = trimmed(text.substr(1, text.size() - 2));
    if (text.empty()) return {};
    const auto colon = text.find(':');
    if (trimmed(text.substr(0, colon)) != "\"max-requests\""sv || colon == text.npos)
        return "there is no parameter but `max-requests`";
    const auto number = read_number(trimmed(text.substr(colon + 1)));
    if (!number) return "`max-requests` must be a number, 0 or more";
    max_requests = *number;
    return {};
}

} // namespace

void exports_conductor_policy_policy_describe(exports_conductor_policy_policy_manifest_t *manifest) {
    scheduler_string_dup(&manifest->name, "least-queued");
    scheduler_string_dup(&manifest->version, "0.1.0");
}

// `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. The text in `refusal` is
// shown to the operator, and the previous policy stays active. This function must free its arguments.
bool exports_conductor_policy_policy_configure(scheduler_string_t *params,
                                               exports_conductor_policy_policy_plan_t *plan,
                                               scheduler_string_t *refusal) {
    const auto problem = read_params({reinterpret_cast<const char *>(params->ptr), params->len});
    scheduler_string_free(params);
    if (problem) {
        scheduler_string_dup(refusal, *problem);
        return false;
    }
    plan->request_features = {};
    plan->candidate_features.len = std::size(COLUMNS);
    // The bindings free the result with `free`.
    void *names = std::calloc(std::size(COLUMNS), sizeof(scheduler_string_t));
    plan->candidate_features.ptr = static_cast<scheduler_string_t *>(names);
    for (std::size_t column = 0; column < std::size(COLUMNS); column++)
        scheduler_string_dup(&plan->candidate_features.ptr[column], COLUMNS[column]);
    return true;
}

void exports_conductor_policy_schedule_schedule(exports_conductor_policy_schedule_request_t *,
                                                exports_conductor_policy_schedule_candidates_t *candidates,
                                                exports_conductor_policy_schedule_verdict_t *verdict) {
    const std::span rows{reinterpret_cast<const Row *>(candidates->numbers.ptr), candidates->ids.len};
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t tied = 0;
    bool any_full = false;
    for (const Row &row : rows) {
        const double cost = row.cost();
        any_full |= row.full();
        if (cost < least) {
            least = cost;
            tied = 1;
        } else if (cost == least) {
            tied++;
        }
    }
    if (tied > 0) {
        // Picks one of the tied candidates, each with the same probability.
        auto nth = tied > 1 ? (conductor_policy_host_random() >> 32) * tied >> 32 : 0;
        std::uint32_t row = 0;
        while (rows[row].cost() != least || nth-- > 0) row++;
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_ROUTE;
        verdict->val.route = {.row = row, .prefill = {.is_some = false, .val = 0}, .score = -least};
    } else if (any_full) {
        // First come, first served: equal orders go by arrival.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_QUEUE;
        verdict->val.queue = {.order = 0, .ask_again_ms = 50};
    } else {
        // No load is known: the router's fallback decides.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_PASS;
    }
    exports_conductor_policy_schedule_candidates_free(candidates);
}
