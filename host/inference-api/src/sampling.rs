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
/// Where vLLM's sampling parameters carry a handshake.
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

/// Whether a body's `sampling_params` have a handshake's parameters. Those too long to be read are searched for the word.
pub(crate) fn has_handshake(fields: &Fields<'_>) -> bool {
    const NAME: &str = "kv_transfer_params";
    let Some(raw) = fields.sampling_params.map(|raw| raw.get()) else {
        return false;
    };
    if raw.len() > LONGEST {
        // An escape may write the name in another way.
        return raw.contains(NAME) || raw.contains("\\u");
    }
    let extra = members(raw).and_then(|members| members.get(EXTRA).copied());
    let extra = extra.and_then(|extra| members(extra.get()));
    extra.is_some_and(|extra| extra.get(NAME).is_some_and(|value| value.get() != "null"))
}

fn members(raw: &str) -> Option<BTreeMap<String, &RawValue>> {
    #[derive(Deserialize)]
    struct Members<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);
    serde_json::from_str::<Members<'_>>(raw)
        .ok()
        .map(|members| members.0)
}
