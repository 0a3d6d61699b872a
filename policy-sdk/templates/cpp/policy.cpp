// least-queued: the candidate with the fewest requests for its weight.
//
// The router calls `configure` once for each instance and `schedule` for every request. Any instance may answer any
// request, so nothing that matters is kept here between calls: that is what `conductor_policy_state_*` is for.
// `scheduler.h` is made from wit/policy.wit by build.sh: C bindings, which C++ calls as they are.

#include "scheduler.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

// What libc++ does instead of throwing. Its own prints a message, which would import WASI.
void std::__libcpp_verbose_abort(const char *, ...) noexcept { __builtin_trap(); }

namespace {

using namespace std::string_view_literals;

// A candidate with so many requests gets no more; 0 is no limit.
double max_requests = 0;

// One candidate, as `numbers` has it: the columns asked for, in this order. All names: wit/README.md of Conductor.
struct Row {
    double requests;
    double weight;

    bool full() const { return max_requests > 0 && requests >= max_requests; }

    // Requests for the weight; NaN for a row that is out of the question, since NaN is neither less than nor equal to
    // anything. What the router does not know is NaN: an unknown weight counts as 1, and an unknown load stays NaN.
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

// Digits, with a fraction perhaps. `std::strtod` knows more and adds 22 KiB.
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

// Reads `{}` or `{"max-requests": NUMBER}`, which is all the JSON this policy knows. Says what is wrong, if anything.
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

// `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. What is put into `refusal` is shown
// to the operator, and the policy before this one keeps deciding. What is given to this function is its own to free.
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
    // What is answered is freed by the bindings, with `free`.
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
        // The n-th of those tied, each as likely as the others.
        auto nth = tied > 1 ? (conductor_policy_host_random() >> 32) * tied >> 32 : 0;
        std::uint32_t row = 0;
        while (rows[row].cost() != least || nth-- > 0) row++;
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_ROUTE;
        verdict->val.route = {.row = row, .prefill = {.is_some = false, .val = 0}, .score = -least};
    } else if (any_full) {
        // First come, first served.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_QUEUE;
        verdict->val.queue = {.order = static_cast<double>(conductor_policy_host_now_us()), .ask_again_ms = 50};
    } else {
        // Nobody's load is known: the router's own fallback decides.
        verdict->tag = CONDUCTOR_POLICY_TYPES_VERDICT_PASS;
    }
    exports_conductor_policy_schedule_candidates_free(candidates);
}
