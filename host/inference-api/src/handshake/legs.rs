//! Changes of each leg's body, by dialect.

use std::borrow::Cow;
use std::fmt::Display;

use serde::Serialize;
use serde::de::IgnoredAny;

use super::members::{HandshakeMember, MemberChange, MemberChanges};
use super::{Handshake, Split};
use crate::endpoint::PromptField;
use crate::fields::Raw;
use crate::peek::{Prompt, classify};

/// vLLM 0.32 reads all of these, even if null.
const NIXL_PREFILL: &str = r#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;

/// Longer lists are not written: SGLang itself counts on from one room.
const MAX_ROOMS: usize = 1024;
/// SGLang draws rooms from 0 to 2^63 - 1.
const ROOM_BITS: u64 = i64::MAX as u64;

#[derive(Serialize)]
struct MooncakePrefill<'a> {
    do_remote_decode: bool,
    do_remote_prefill: bool,
    transfer_id: &'a str,
}

#[derive(Serialize)]
struct MooncakeDecode<'a> {
    do_remote_decode: bool,
    do_remote_prefill: bool,
    remote_bootstrap_addr: &'a str,
    remote_engine_id: &'a str,
    transfer_id: &'a str,
}

pub(super) fn prefill(split: &Split, handshake: &Handshake<'_>) -> MemberChanges {
    let mut changes = Vec::new();
    match *handshake {
        Handshake::Nixl { .. } => {
            one_token(split, &mut changes);
            set(&mut changes, HandshakeMember::KvTransferParams, NIXL_PREFILL);
        }
        Handshake::Mooncake { transfer_id, .. } => {
            one_token(split, &mut changes);
            no_stop(split, &mut changes);
            let params = MooncakePrefill {
                do_remote_decode: true,
                do_remote_prefill: false,
                transfer_id,
            };
            set(&mut changes, HandshakeMember::KvTransferParams, json(&params));
        }
        Handshake::Store => one_token(split, &mut changes),
        Handshake::Sglang { prefill_rank, .. } => {
            meet(split, handshake, &mut changes);
            set_rank(&mut changes, HandshakeMember::RoutedDpRank, prefill_rank);
        }
    }
    changes
}

pub(super) fn decode(split: &Split, handshake: &Handshake<'_>) -> MemberChanges {
    let mut changes = Vec::new();
    match *handshake {
        Handshake::Nixl { params } => {
            if let Some(params) = params {
                set(
                    &mut changes,
                    HandshakeMember::KvTransferParams,
                    params.get().to_owned(),
                );
            }
        }
        Handshake::Mooncake {
            transfer_id,
            bootstrap,
            engine_id,
        } => {
            let params = MooncakeDecode {
                do_remote_decode: false,
                do_remote_prefill: true,
                remote_bootstrap_addr: bootstrap,
                remote_engine_id: engine_id,
                transfer_id,
            };
            set(&mut changes, HandshakeMember::KvTransferParams, json(&params));
        }
        Handshake::Store => {}
        Handshake::Sglang {
            prefill_rank,
            decode_rank,
            ..
        } => {
            meet(split, handshake, &mut changes);
            set_rank(&mut changes, HandshakeMember::RoutedDpRank, decode_rank);
            set_rank(&mut changes, HandshakeMember::DisaggPrefillDpRank, prefill_rank);
        }
    }
    changes
}

/// Makes the engine compute the prompt and one token, and answer unstreamed.
///
/// A number that no engine accepts stays, so that both engines refuse it. If only the decode engine did, the blocks
/// would wait for it without effect.
fn one_token(split: &Split, changes: &mut MemberChanges) {
    let value = |member| split.members.value(&split.body, member);
    let is_at_least = |member, least| {
        value(member)
            .and_then(whole)
            .is_some_and(|number| number >= least)
    };
    if value(HandshakeMember::MaxTokens).is_none() || is_at_least(HandshakeMember::MaxTokens, 1.0) {
        set(changes, HandshakeMember::MaxTokens, "1");
    }
    if is_at_least(HandshakeMember::MaxCompletionTokens, 1.0) {
        set(changes, HandshakeMember::MaxCompletionTokens, "1");
    }
    // `min_tokens` above `max_tokens` is a 400; of several samples, the blocks of all but one would stay pinned.
    for member in [HandshakeMember::MinTokens, HandshakeMember::N] {
        if is_at_least(member, 2.0) {
            set(changes, member, "1");
        }
    }
    if value(HandshakeMember::Stream).is_some_and(|stream| stream != "false") {
        set(changes, HandshakeMember::Stream, "false");
    }
    let dropped = [
        // Without `stream` it is a 400.
        HandshakeMember::StreamOptions,
        // The answer would repeat the whole prompt, and only the decode engine's reaches the client.
        HandshakeMember::ReturnTokenIds,
        HandshakeMember::ReturnRoutedExperts,
    ];
    for member in dropped {
        if value(member).is_some() {
            changes.push((member, MemberChange::Drop));
        }
    }
}

/// Removes stop conditions: only an answer that ends by its length is handed over (vLLM 0.32).
fn no_stop(split: &Split, changes: &mut MemberChanges) {
    set(changes, HandshakeMember::IgnoreEos, "true");
    for member in [HandshakeMember::Stop, HandshakeMember::StopTokenIds] {
        if split.members.value(&split.body, member).is_some() {
            changes.push((member, MemberChange::Drop));
        }
    }
}

/// Sets the meeting point of SGLang's two engines: one room per prompt.
fn meet(split: &Split, handshake: &Handshake<'_>, changes: &mut MemberChanges) {
    let Handshake::Sglang { host, port, room, .. } = *handshake else {
        return;
    };
    let host = json(&host);
    let port = port.map_or_else(|| "null".to_owned(), |port| port.to_string());
    let rooms = prompts(split);
    if (2..=MAX_ROOMS).contains(&rooms) {
        let room = |index| room.wrapping_add(index) & ROOM_BITS;
        set(
            changes,
            HandshakeMember::BootstrapHost,
            list((0..rooms).map(|_| &host)),
        );
        set(
            changes,
            HandshakeMember::BootstrapPort,
            list((0..rooms).map(|_| &port)),
        );
        set(
            changes,
            HandshakeMember::BootstrapRoom,
            list((0..rooms as u64).map(room)),
        );
    } else {
        set(changes, HandshakeMember::BootstrapHost, host);
        set(changes, HandshakeMember::BootstrapPort, port);
        set(
            changes,
            HandshakeMember::BootstrapRoom,
            (room & ROOM_BITS).to_string(),
        );
    }
}

/// Returns the number of prompts in the body, if known. For a list in another form SGLang itself counts on.
fn prompts(split: &Split) -> usize {
    let prompt = split.members.value(&split.body, HandshakeMember::Prompt);
    let prompt = prompt.map(|text| classify(Raw::known(text)));
    match (split.endpoint.spec().prompt, prompt) {
        (PromptField::Prompt, Some(Prompt::Batch(batch))) => {
            serde_json::from_str::<Vec<IgnoredAny>>(batch.get()).map_or(1, |prompts| prompts.len())
        }
        _ => 1,
    }
}

fn set(changes: &mut MemberChanges, member: HandshakeMember, value: impl Into<Cow<'static, str>>) {
    changes.push((member, MemberChange::Set(value.into())));
}

fn set_rank(changes: &mut MemberChanges, member: HandshakeMember, rank: Option<u16>) {
    if let Some(rank) = rank {
        set(changes, member, rank.to_string());
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and booleans always serialise")
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

/// Parses a whole number as vLLM's pydantic does: also `5.0`, quoted, and with `_` between its digits.
fn whole(text: &str) -> Option<f64> {
    let digits = text.trim_matches('"').trim().replace('_', "");
    digits.parse().ok().filter(|number: &f64| number.fract() == 0.0)
}
