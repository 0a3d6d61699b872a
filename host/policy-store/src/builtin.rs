//! Built-in policies: the components under `policies/prebuilt`, embedded.

/// Component embedded in the binary.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Name in `builtin = "..."` and in routes.
    pub name: &'static str,
    /// Summary of its rule, in one line.
    pub about: &'static str,
    /// Bytes of the component.
    pub bytes: &'static [u8],
}

/// Makes the entry of a component of `policies/prebuilt`.
macro_rules! builtin {
    ($name:literal, $about:literal) => {
        Builtin {
            name: $name,
            about: $about,
            bytes: include_bytes!(concat!("../../../policies/prebuilt/", $name, ".wasm")),
        }
    };
}

/// Every built-in policy, in alphabetical order.
// A constant would be embedded once more by each codegen unit that uses it, with the bytes of all components.
pub static BUILTINS: &[Builtin] = &[
    builtin!(
        "cache-aware",
        "the least priced time to first token: cache and queue summed"
    ),
    builtin!(
        "consistent-hash-bounded-load",
        "each session, or beginning of a prompt, at home on one worker that is not overloaded"
    ),
    builtin!(
        "dualmap",
        "two hash homes of a prompt: the warmer one within the deadline, else the less loaded, as DualMap has it"
    ),
    builtin!(
        "dynamo-kv-cost",
        "prefill and decode work summed, as NVIDIA Dynamo's KV router has it"
    ),
    builtin!(
        "kairos",
        "the earliest first token, with held requests in the order of urgency, as Kairos has it"
    ),
    builtin!("least-request", "the fewest requests in flight, by weight"),
    builtin!(
        "least-tokens",
        "the fewest prompt tokens left to compute, by weight"
    ),
    builtin!(
        "lmetric",
        "the least product of new prompt tokens and batch size, as LMetric has it"
    ),
    builtin!("load-weighted", "the least loaded worker, by weight"),
    builtin!(
        "longest-match",
        "the longest cached prefix: a teaching example that collapses where all prompts begin alike"
    ),
    builtin!(
        "lora-affinity",
        "scorer: keeps the requests of a LoRA adapter on the workers that have it"
    ),
    builtin!(
        "mooncake-alg1",
        "the least time to first token with fetched prefixes: Mooncake's Algorithm 1"
    ),
    builtin!(
        "netkv",
        "the decode worker with the least transfer, wait and first token, as NetKV has it"
    ),
    builtin!(
        "pd-pairing",
        "the least priced pair of a prefill and a decode worker, or one worker for both"
    ),
    builtin!("power-of-two", "the less loaded of two random workers"),
    builtin!(
        "preble-e2",
        "a worker with over half of the prompt, else the least load and work, as Preble has it"
    ),
    builtin!(
        "predicted-latency",
        "predicted latencies against service levels, with filters and a weighted draw, as llm-d has it"
    ),
    builtin!(
        "prefix-hash",
        "each beginning of a prompt at home on one worker that is not overloaded"
    ),
    builtin!(
        "priced-ttft",
        "the least predicted time to first token, priced by those who wait"
    ),
    builtin!("random", "a random worker, by weight"),
    builtin!("round-robin", "every eligible worker in turn"),
    builtin!(
        "session-affinity",
        "the worker its session went to; new sessions to the least loaded"
    ),
    builtin!(
        "sglang-cache-aware",
        "the longest match while loads are balanced, as SGLang's router has it"
    ),
    builtin!(
        "skywalker",
        "only workers without waiting prompts, by longest prefix; the rest waits: SkyWalker's selective pushing"
    ),
    builtin!(
        "tier-weight",
        "scorer: tokens of the prompt that a worker holds, by how fast their tier is"
    ),
    builtin!(
        "ttft-queue",
        "cache-aware's price with a queue for each worker in the router, shortest first, and pairs"
    ),
];

/// Policy of the routes that name none.
pub const DEFAULT: &str = "ttft-queue";

/// Former names of policies, with the names that replaced them. They keep working for one release, with a warning.
pub const FORMER_NAMES: &[(&str, &str)] = &[("conductor", "ttft-queue"), ("mooncake", "mooncake-alg1")];

/// Returns the names of the built-in policies.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILTINS.iter().map(|builtin| builtin.name).collect()
}

/// Returns the built-in policy of this name. A former name is none.
#[must_use]
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// Returns the current name of a policy that had another one, else the name itself.
#[must_use]
pub fn current_name(name: &str) -> &str {
    let mut renamed = FORMER_NAMES.iter();
    renamed
        .find(|(former, _)| *former == name)
        .map_or(name, |(_, current)| current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_name_leads_to_a_built_in_policy_and_is_none_itself() {
        for (former, current) in FORMER_NAMES {
            assert!(find(former).is_none(), "{former}");
            assert_eq!(
                find(current_name(former)).map(|builtin| builtin.name),
                Some(*current)
            );
        }
        assert_eq!(current_name("round-robin"), "round-robin");
    }
}
