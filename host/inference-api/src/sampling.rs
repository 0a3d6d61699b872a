//! Sampling parameters of the token endpoints: an object of its own.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::Fields;

/// `sampling_params`, as far as routing needs it. Of several fields with one name the last counts.
#[derive(Debug, Default)]
pub(crate) struct Sampling<'a>(BTreeMap<String, &'a RawValue>);

/// Longer parameters are not read; the engine reads them.
const LONGEST: usize = 64 << 10;
/// Key of a hand-over in vLLM's sampling parameters.
const EXTRA: &str = "extra_args";

impl<'a> Sampling<'a> {
    /// Reads the parameters; none if the field is not an object.
    pub(crate) fn of(fields: &Fields<'a>) -> Self {
        let raw = fields.sampling_params.map(|raw| raw.get());
        let short = raw.filter(|raw| raw.len() <= LONGEST);
        Self(short.and_then(members).unwrap_or_default())
    }

    /// Returns `max_tokens` (vLLM), else `max_new_tokens` (SGLang).
    pub(crate) fn max_tokens(&self) -> Option<u64> {
        let number = |name| self.0.get(name)?.get().parse().ok();
        number("max_tokens").or_else(|| number("max_new_tokens"))
    }
}

/// Returns a member of a hand-over at a place that only a router may set: at the top, or in an engine's own
/// parameters. `null` is none, as in engines.
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

/// Searches `vllm_xargs`, which vLLM copies to the place of a hand-over.
fn in_xargs(fields: &Fields<'_>) -> Option<&'static str> {
    match transfer_params(fields.vllm_xargs?.get())? {
        TransferKind::Kv => Some("vllm_xargs.kv_transfer_params"),
        TransferKind::Ec => Some("vllm_xargs.ec_transfer_params"),
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
        TransferKind::Kv => Some("sampling_params.extra_args.kv_transfer_params"),
        TransferKind::Ec => Some("sampling_params.extra_args.ec_transfer_params"),
    }
}

/// Kind of a hand-over's parameters.
#[derive(Debug, Clone, Copy)]
enum TransferKind {
    /// KV cache.
    Kv,
    /// Encoder cache.
    Ec,
}

/// Returns the parameters that an object has as a member. A long object is searched for the words instead.
fn transfer_params(raw: &str) -> Option<TransferKind> {
    const NAMES: [(TransferKind, &str); 2] = [
        (TransferKind::Kv, "kv_transfer_params"),
        (TransferKind::Ec, "ec_transfer_params"),
    ];
    let (members, escaped) = if raw.len() > LONGEST {
        // An escape may spell the name differently.
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
    struct ParamMembers<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);
    serde_json::from_str::<ParamMembers<'_>>(raw)
        .ok()
        .map(|members| members.0)
}
