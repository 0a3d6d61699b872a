//! Sampling parameters of the endpoints that take token ids: they stand in an object of their own.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::Fields;

/// `sampling_params`, as far as routing needs it. Of several fields with one name the last counts.
#[derive(Debug, Default)]
pub(crate) struct Sampling<'a>(BTreeMap<String, &'a RawValue>);

/// Longer parameters are left to the engine, unread.
const LONGEST: usize = 64 << 10;
/// Where vLLM's sampling parameters carry a hand-over.
const EXTRA: &str = "extra_args";

impl<'a> Sampling<'a> {
    /// Reads them; none are read of what is no object.
    pub(crate) fn of(fields: &Fields<'a>) -> Self {
        let raw = fields.sampling_params.map(|raw| raw.get());
        let short = raw.filter(|raw| raw.len() <= LONGEST);
        Self(short.and_then(members).unwrap_or_default())
    }

    /// `max_tokens` (vLLM), else `max_new_tokens` (SGLang).
    pub(crate) fn max_tokens(&self) -> Option<u64> {
        let number = |name| self.0.get(name)?.get().parse().ok();
        number("max_tokens").or_else(|| number("max_new_tokens"))
    }
}

/// The member of a hand-over that a body has where only a router may set it: at the top, or among an engine's own parameters. A
/// `null` is none, as engines read it.
pub(crate) fn handover_member(fields: &Fields<'_>) -> Option<&'static str> {
    let top = [
        (fields.kv_transfer_params, "kv_transfer_params"),
        (fields.ec_transfer_params, "ec_transfer_params"),
        (fields.bootstrap_host, "bootstrap_host"),
        (fields.bootstrap_port, "bootstrap_port"),
        (fields.bootstrap_room, "bootstrap_room"),
        (fields.bootstrap_pair_key, "bootstrap_pair_key"),
        (fields.disagg_prefill_dp_rank, "disagg_prefill_dp_rank"),
    ];
    let at_the_top = top.iter().find_map(|(raw, name)| raw.map(|_| *name));
    at_the_top
        .or_else(|| in_xargs(fields))
        .or_else(|| in_sampling(fields))
}

/// In `vllm_xargs`, which vLLM copies to where it looks for a hand-over.
fn in_xargs(fields: &Fields<'_>) -> Option<&'static str> {
    match transfer_params(fields.vllm_xargs?.get())? {
        Transfer::Kv => Some("vllm_xargs.kv_transfer_params"),
        Transfer::Ec => Some("vllm_xargs.ec_transfer_params"),
    }
}

fn in_sampling(fields: &Fields<'_>) -> Option<&'static str> {
    let raw = fields.sampling_params?.get();
    let found = if raw.len() > LONGEST {
        transfer_params(raw)
    } else {
        transfer_params(members(raw)?.get(EXTRA)?.get())
    };
    match found? {
        Transfer::Kv => Some("sampling_params.extra_args.kv_transfer_params"),
        Transfer::Ec => Some("sampling_params.extra_args.ec_transfer_params"),
    }
}

/// Whose parameters a hand-over has.
#[derive(Debug, Clone, Copy)]
enum Transfer {
    /// Those of the KV cache.
    Kv,
    /// Those of the encoder's cache.
    Ec,
}

/// The parameters that an object has as a member. One too long to be read is searched for the words.
fn transfer_params(raw: &str) -> Option<Transfer> {
    const NAMES: [(Transfer, &str); 2] = [
        (Transfer::Kv, "kv_transfer_params"),
        (Transfer::Ec, "ec_transfer_params"),
    ];
    let (members, escaped) = if raw.len() > LONGEST {
        // An escape may write the name in another way.
        (BTreeMap::new(), raw.contains("\\u"))
    } else {
        (members(raw)?, false)
    };
    let has = |name: &str| match raw.len() > LONGEST {
        true => escaped || raw.contains(name),
        false => members.get(name).is_some_and(|value| value.get() != "null"),
    };
    NAMES
        .into_iter()
        .find_map(|(whose, name)| has(name).then_some(whose))
}

fn members(raw: &str) -> Option<BTreeMap<String, &RawValue>> {
    #[derive(Deserialize)]
    struct Members<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);
    serde_json::from_str::<Members<'_>>(raw)
        .ok()
        .map(|members| members.0)
}
