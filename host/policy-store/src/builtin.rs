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

/// Every built-in policy, in alphabetical order.
// A constant would be embedded once more by each codegen unit that uses it, with the bytes of all components.
pub static BUILTINS: &[Builtin] = &[
    Builtin {
        name: "cache-aware",
        about: "the least priced time to first token: cache and queue summed",
        bytes: include_bytes!("../../../policies/prebuilt/cache-aware.wasm"),
    },
    Builtin {
        name: "consistent-hash-bounded-load",
        about: "each session, or beginning of a prompt, at home on one worker that is not overloaded",
        bytes: include_bytes!("../../../policies/prebuilt/consistent-hash-bounded-load.wasm"),
    },
    Builtin {
        name: "dualmap",
        about: "two hash homes of a prompt: the warmer one within the deadline, else the less loaded, as DualMap has it",
        bytes: include_bytes!("../../../policies/prebuilt/dualmap.wasm"),
    },
    Builtin {
        name: "dynamo-kv-cost",
        about: "prefill and decode work summed, as NVIDIA Dynamo's KV router has it",
        bytes: include_bytes!("../../../policies/prebuilt/dynamo-kv-cost.wasm"),
    },
    Builtin {
        name: "kairos",
        about: "the earliest first token, with held requests in the order of urgency, as Kairos has it",
        bytes: include_bytes!("../../../policies/prebuilt/kairos.wasm"),
    },
    Builtin {
        name: "least-request",
        about: "the fewest requests in flight, by weight",
        bytes: include_bytes!("../../../policies/prebuilt/least-request.wasm"),
    },
    Builtin {
        name: "least-tokens",
        about: "the fewest prompt tokens left to compute, by weight",
        bytes: include_bytes!("../../../policies/prebuilt/least-tokens.wasm"),
    },
    Builtin {
        name: "lmetric",
        about: "the least product of new prompt tokens and batch size, as LMetric has it",
        bytes: include_bytes!("../../../policies/prebuilt/lmetric.wasm"),
    },
    Builtin {
        name: "load-weighted",
        about: "the least loaded worker, by weight",
        bytes: include_bytes!("../../../policies/prebuilt/load-weighted.wasm"),
    },
    Builtin {
        name: "longest-match",
        about: "the longest cached prefix: a teaching example that collapses where all prompts begin alike",
        bytes: include_bytes!("../../../policies/prebuilt/longest-match.wasm"),
    },
    Builtin {
        name: "lora-affinity",
        about: "scorer: keeps the requests of a LoRA adapter on the workers that have it",
        bytes: include_bytes!("../../../policies/prebuilt/lora-affinity.wasm"),
    },
    Builtin {
        name: "mooncake-alg1",
        about: "the least time to first token with fetched prefixes: Mooncake's Algorithm 1",
        bytes: include_bytes!("../../../policies/prebuilt/mooncake-alg1.wasm"),
    },
    Builtin {
        name: "netkv",
        about: "the decode worker with the least transfer, wait and first token, as NetKV has it",
        bytes: include_bytes!("../../../policies/prebuilt/netkv.wasm"),
    },
    Builtin {
        name: "pd-pairing",
        about: "the least priced pair of a prefill and a decode worker, or one worker for both",
        bytes: include_bytes!("../../../policies/prebuilt/pd-pairing.wasm"),
    },
    Builtin {
        name: "power-of-two",
        about: "the less loaded of two random workers",
        bytes: include_bytes!("../../../policies/prebuilt/power-of-two.wasm"),
    },
    Builtin {
        name: "preble-e2",
        about: "a worker with over half of the prompt, else the least load and work, as Preble has it",
        bytes: include_bytes!("../../../policies/prebuilt/preble-e2.wasm"),
    },
    Builtin {
        name: "predicted-latency",
        about: "predicted latencies against service levels, with filters and a weighted draw, as llm-d has it",
        bytes: include_bytes!("../../../policies/prebuilt/predicted-latency.wasm"),
    },
    Builtin {
        name: "prefix-hash",
        about: "each beginning of a prompt at home on one worker that is not overloaded",
        bytes: include_bytes!("../../../policies/prebuilt/prefix-hash.wasm"),
    },
    Builtin {
        name: "priced-ttft",
        about: "the least predicted time to first token, priced by those who wait",
        bytes: include_bytes!("../../../policies/prebuilt/priced-ttft.wasm"),
    },
    Builtin {
        name: "random",
        about: "a random worker, by weight",
        bytes: include_bytes!("../../../policies/prebuilt/random.wasm"),
    },
    Builtin {
        name: "round-robin",
        about: "every eligible worker in turn",
        bytes: include_bytes!("../../../policies/prebuilt/round-robin.wasm"),
    },
    Builtin {
        name: "session-affinity",
        about: "the worker its session went to; new sessions to the least loaded",
        bytes: include_bytes!("../../../policies/prebuilt/session-affinity.wasm"),
    },
    Builtin {
        name: "sglang-cache-aware",
        about: "the longest match while loads are balanced, as SGLang's router has it",
        bytes: include_bytes!("../../../policies/prebuilt/sglang-cache-aware.wasm"),
    },
    Builtin {
        name: "skywalker",
        about: "only workers without waiting prompts, by longest prefix; the rest waits: SkyWalker's selective pushing",
        bytes: include_bytes!("../../../policies/prebuilt/skywalker.wasm"),
    },
    Builtin {
        name: "tier-weight",
        about: "scorer: tokens of the prompt that a worker holds, by how fast their tier is",
        bytes: include_bytes!("../../../policies/prebuilt/tier-weight.wasm"),
    },
    Builtin {
        name: "ttft-queue",
        about: "cache-aware's price with a queue for each worker in the router, shortest first, and pairs",
        bytes: include_bytes!("../../../policies/prebuilt/ttft-queue.wasm"),
    },
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
