//! least-queued: routes to the candidate with the fewest requests relative to its weight.
//!
//! The router calls `configure` once for each instance and `schedule` for every request. Any instance may
//! serve any request, so globals must not carry data from one call to the next; use
//! `conductor_policy_state_*`.
//!
//! `c` contains the C bindings of wit/policy.wit: build.sh generates scheduler.h, and scheduler.zig from
//! that.

const std = @import("std");
const c = @import("scheduler.zig");

/// A candidate with this many requests is full; 0 means no limit.
var max_requests: f64 = 0;

/// Row of one candidate in `numbers`: the requested columns, in this order. All names: wit/README.md of
/// Conductor.
const Row = extern struct {
    requests: f64,
    weight: f64,

    fn full(row: Row) bool {
        return max_requests > 0 and row.requests >= max_requests;
    }

    /// Returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
    /// equal. Unknown numbers are NaN: an unknown weight counts as 1, an unknown load makes the cost NaN.
    fn cost(row: Row) f64 {
        if (row.full()) return std.math.nan(f64);
        return row.requests / if (row.weight > 0) row.weight else 1;
    }
};
const columns = [_][:0]const u8{ "load.requests", "worker.weight" };

export fn exports_conductor_policy_policy_describe(manifest: *c.exports_conductor_policy_policy_manifest_t) void {
    c.scheduler_string_dup(&manifest.name, "least-queued");
    c.scheduler_string_dup(&manifest.version, "0.1.0");
}

/// `params` is the table `[policies.least-queued.params]` of conductor.toml as JSON. The text in `refusal` is
/// shown to the operator, and the previous policy stays active. This function must free its arguments. The
/// bindings free the result with `free`.
export fn exports_conductor_policy_policy_configure(
    params: *c.scheduler_string_t,
    plan: *c.exports_conductor_policy_policy_plan_t,
    refusal: *c.scheduler_string_t,
) bool {
    defer c.scheduler_string_free(params);
    max_requests = readParams(params.ptr[0..params.len]) catch |problem| {
        c.scheduler_string_dup(refusal, switch (problem) {
            error.NotATable => "the parameters must be a table",
            error.UnknownParameter => "there is no parameter but `max-requests`",
            error.NotANumber => "`max-requests` must be a number, 0 or more",
        });
        return false;
    };
    const names = std.heap.c_allocator.alloc(c.scheduler_string_t, columns.len) catch return false;
    for (names, columns) |*name, column| c.scheduler_string_dup(name, column.ptr);
    plan.request_features = .{ .ptr = null, .len = 0 };
    plan.candidate_features = .{ .ptr = names.ptr, .len = names.len };
    return true;
}

/// Reads `{}` or `{"max-requests": NUMBER}`, the only JSON this policy accepts. `std.json` reads the rest of
/// JSON.
fn readParams(text: []const u8) error{ NotATable, UnknownParameter, NotANumber }!f64 {
    const table = trimmed(text);
    if (table.len < 2 or table[0] != '{' or table[table.len - 1] != '}') return error.NotATable;
    const inner = trimmed(table[1 .. table.len - 1]);
    if (inner.len == 0) return 0;
    const colon = std.mem.indexOfScalar(u8, inner, ':') orelse return error.UnknownParameter;
    if (!std.mem.eql(u8, trimmed(inner[0..colon]), "\"max-requests\"")) return error.UnknownParameter;
    return readNumber(trimmed(inner[colon + 1 ..]));
}

/// Reads digits with an optional fraction. `std.fmt.parseFloat` reads more and adds 27 KiB.
fn readNumber(text: []const u8) error{NotANumber}!f64 {
    const point = std.mem.indexOfScalar(u8, text, '.') orelse text.len;
    if (point == 0) return error.NotANumber;
    var number: f64 = 0;
    var place: f64 = 1;
    for (text, 0..) |digit, at| {
        if (at == point) continue;
        if (!std.ascii.isDigit(digit)) return error.NotANumber;
        const value: f64 = @floatFromInt(digit - '0');
        if (at < point) {
            number = number * 10 + value;
        } else {
            place /= 10;
            number += place * value;
        }
    }
    return number;
}

fn trimmed(text: []const u8) []const u8 {
    return std.mem.trim(u8, text, " \t\r\n");
}

export fn exports_conductor_policy_schedule_schedule(
    _: *c.exports_conductor_policy_schedule_request_t,
    candidates: *c.exports_conductor_policy_schedule_candidates_t,
    verdict: *c.exports_conductor_policy_schedule_verdict_t,
) void {
    defer c.exports_conductor_policy_schedule_candidates_free(candidates);
    const rows = @as([*]const Row, @ptrCast(candidates.numbers.ptr))[0..candidates.ids.len];
    var least = std.math.inf(f64);
    var tied: u64 = 0;
    var any_full = false;
    for (rows) |row| {
        const cost = row.cost();
        any_full = any_full or row.full();
        if (cost < least) {
            least = cost;
            tied = 1;
        } else if (cost == least) {
            tied += 1;
        }
    }
    if (tied > 0) {
        // Picks one of the tied candidates, each with the same probability.
        var nth = if (tied > 1) (c.conductor_policy_host_random() >> 32) * tied >> 32 else 0;
        const row = for (rows, 0..) |row, at| {
            if (row.cost() != least) continue;
            if (nth == 0) break at;
            nth -= 1;
        } else unreachable;
        verdict.tag = c.CONDUCTOR_POLICY_TYPES_VERDICT_ROUTE;
        verdict.val.route = .{ .row = @intCast(row), .prefill = .{ .is_some = false, .val = 0 }, .score = -least };
    } else if (any_full) {
        // First come, first served: equal orders go by arrival.
        verdict.tag = c.CONDUCTOR_POLICY_TYPES_VERDICT_QUEUE;
        verdict.val.queue = .{ .order = 0, .ask_again_ms = 50 };
    } else {
        // No load is known: the router's fallback decides.
        verdict.tag = c.CONDUCTOR_POLICY_TYPES_VERDICT_PASS;
    }
}
