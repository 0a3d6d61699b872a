//! The keys under which engines put their blocks into a Mooncake store, one grammar each.
//!
//! * vLLM (0.32, `mooncake/store/data.py`): `[prefix@]model[namespace]@tp_rank:N@pcpN@dcpN@pp_rank:N[@group:N]@HEX`, where
//!   the prefix may hold `@` and the namespace is segments of its own (`@store_tp:4@store_pp:1@store_format:...`).
//!   `LMDeploy` writes the same without context and pipeline ranks (its issue 4930 shows some).
//! * vLLM-Ascend (`ascend_store/config_data.py`): `model@pcpN@dcpN@head_or_tp_rank:N@pp_rank:N@HEX`, and one object a
//!   layer as `...@head_or_tp_rank:N@HEX@LAYER`; from 0.20.2 with `@group:N@cache_role:R@cache_family:F` before the hash,
//!   and the layer before it too, as `@layer_id:N`.
//! * SGLang `HiCache` (`mooncake_store.py`): `[prefix_]HEX_RANK_k|v`, `[prefix_]HEX_RANK_PP_k|v` with pipeline ranks, and
//!   for MLA, whose ranks share one object, `HEX__k`, `HEX_PP_k` or (earlier) `HEX_k`. A lone number is taken for the
//!   tensor rank: an MLA model's pipeline rank looks the same. From 0.5.17 the prefix holds the model, `/` as `-`.
//! * A 64-bit number in decimal or `0x` hexadecimal, which is the block's hash itself (RFC 1527).
//!
//! The block is the engine's own 64-bit name of it, as in its events: vLLM announces the last 8 bytes of a digest, SGLang
//! the first 8 (`hash_str_to_int64` in its `mem_cache/utils.py`).

use routing::{EngineBlockHash, Shard, StoreObject};

use crate::hex;
use crate::reject::RejectReason;

/// Why a key names no object of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectKeyError {
    /// None of the grammars.
    #[error("object key follows no known grammar")]
    Unknown,
    /// A hash of less than 64 bits, or a rank that is repeated or beyond 65535.
    #[error("object key has a hash or a rank that cannot be one")]
    Bad,
    /// An object beside a block's keys and values: a draft model's, an indexer's, a state.
    #[error("object is no part of a block's keys and values")]
    Sidecar,
}

impl From<ObjectKeyError> for RejectReason {
    fn from(error: ObjectKeyError) -> Self {
        match error {
            ObjectKeyError::Unknown => Self::UnknownObjectKey,
            ObjectKeyError::Bad => Self::BadObjectKey,
            ObjectKeyError::Sidecar => Self::SidecarObject,
        }
    }
}

/// Reads the key of an object, as a store's events name it and its `GET /get_all_keys` lists it.
///
/// # Errors
/// [`ObjectKeyError`] where it names no block's object.
pub fn parse_object_key(key: &str) -> Result<StoreObject, ObjectKeyError> {
    if let Some(block) = number(key) {
        return Ok(StoreObject {
            model: "".into(),
            block: EngineBlockHash(block),
            shard: Shard::default(),
        });
    }
    if key.contains('@') { vllm(key) } else { sglang(key) }
}

/// A bare number of 64 bits.
fn number(key: &str) -> Option<u64> {
    match key.strip_prefix("0x").or_else(|| key.strip_prefix("0X")) {
        Some(digits) if hex::is_hex(digits.as_bytes()) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => decimal(key)?.parse().ok(),
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
fn decimal(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

fn vllm(key: &str) -> Result<StoreObject, ObjectKeyError> {
    let (mut head, mut last) = key.rsplit_once('@').ok_or(ObjectKeyError::Unknown)?;
    let mut labels = Labels::default();
    // A layer after the hash is the only number that short in that place.
    if decimal(last).is_some_and(|layer| layer.len() < 16)
        && let Some((front, before)) = head.rsplit_once('@')
        && Label::of(before).is_none()
    {
        labels.set(Field::Layer, last)?;
        (head, last) = (front, before);
    }
    while let Some((front, segment)) = head.rsplit_once('@')
        && let Some(Label { field, value }) = Label::of(segment)
    {
        labels.set(field, value)?;
        head = front;
    }
    if !labels.ranked {
        return Err(ObjectKeyError::Unknown);
    }
    if labels.other_role {
        return Err(ObjectKeyError::Sidecar);
    }
    let block = hex::low64(last.as_bytes()).filter(|_| !head.is_empty());
    Ok(StoreObject {
        model: head.into(),
        block: EngineBlockHash(block.ok_or(ObjectKeyError::Bad)?),
        shard: labels.shard,
    })
}

/// What a labelled segment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Tensor,
    Pipeline,
    PrefillContext,
    DecodeContext,
    Group,
    Layer,
    Role,
    Family,
}

/// One segment between the model and the hash.
struct Label<'a> {
    field: Field,
    value: &'a str,
}

impl<'a> Label<'a> {
    fn of(segment: &'a str) -> Option<Self> {
        const NAMES: &[(&str, Field)] = &[
            ("tp_rank:", Field::Tensor),
            ("head_or_tp_rank:", Field::Tensor),
            ("pp_rank:", Field::Pipeline),
            ("group:", Field::Group),
            ("layer_id:", Field::Layer),
            ("cache_role:", Field::Role),
            // Follows from the group, so it tells no two objects apart.
            ("cache_family:", Field::Family),
        ];
        let named = NAMES
            .iter()
            .find_map(|&(name, field)| segment.strip_prefix(name).map(|value| Self { field, value }));
        let context = |name, field| {
            let value = segment.strip_prefix(name)?;
            let value = value.strip_prefix(':').unwrap_or(value);
            decimal(value).map(|value| Self { field, value })
        };
        named
            .or_else(|| context("pcp", Field::PrefillContext))
            .or_else(|| context("dcp", Field::DecodeContext))
    }
}

/// What the labels of one key say.
#[derive(Debug, Default)]
struct Labels {
    shard: Shard,
    /// The fields seen, a bit each.
    seen: u8,
    ranked: bool,
    other_role: bool,
}

impl Labels {
    fn set(&mut self, field: Field, value: &str) -> Result<(), ObjectKeyError> {
        let bit = 1 << field as u8;
        if self.seen & bit != 0 {
            return Err(ObjectKeyError::Bad);
        }
        self.seen |= bit;
        let place = match field {
            Field::Tensor => {
                self.ranked = true;
                &mut self.shard.tensor
            }
            Field::Pipeline => &mut self.shard.pipeline,
            Field::PrefillContext => &mut self.shard.prefill_context,
            Field::DecodeContext => &mut self.shard.decode_context,
            Field::Group => &mut self.shard.group,
            Field::Layer => &mut self.shard.layer,
            Field::Role => {
                self.other_role = value != "kv";
                return Ok(());
            }
            Field::Family => return Ok(()),
        };
        *place = rank(value)?;
        Ok(())
    }
}

fn rank(value: &str) -> Result<u16, ObjectKeyError> {
    decimal(value)
        .and_then(|digits| digits.parse().ok())
        .ok_or(ObjectKeyError::Bad)
}

fn sglang(key: &str) -> Result<StoreObject, ObjectKeyError> {
    const DIGEST: usize = 64;
    let digest = |segment: &str| segment.len() == DIGEST && hex::is_hex(segment.as_bytes());
    let segments: Vec<&str> = key.split('_').collect();
    let place = segments
        .iter()
        .rposition(|segment| digest(segment))
        .ok_or(ObjectKeyError::Unknown)?;
    let (prefix, rest) = segments.split_at(place);
    let [hash, suffix @ ..] = rest else {
        return Err(ObjectKeyError::Unknown);
    };
    let ((tensor, pipeline), part) = match suffix {
        [] => return Err(ObjectKeyError::Unknown),
        ["k"] | ["", "k"] => ((0, 0), "k"),
        [tensor, part @ ("k" | "v")] if decimal(tensor).is_some() => ((rank(tensor)?, 0), *part),
        [tensor, pipeline, part @ ("k" | "v")]
            if decimal(tensor).is_some() && decimal(pipeline).is_some() =>
        {
            ((rank(tensor)?, rank(pipeline)?), *part)
        }
        _ => return Err(ObjectKeyError::Sidecar),
    };
    Ok(StoreObject {
        model: prefix.join("_").into(),
        block: EngineBlockHash(hex::high64(hash.as_bytes()).ok_or(ObjectKeyError::Bad)?),
        shard: Shard {
            tensor,
            pipeline,
            part: u8::from(part == "v"),
            ..Shard::default()
        },
    })
}
