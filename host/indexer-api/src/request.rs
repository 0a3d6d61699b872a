//! Bodies of `/query` and `/query_by_hash`.
//!
//! Upstream's rules: fields are validated in the order written, each occurrence of one. The last occurrence counts.
//! Missing fields are reported after all present ones are validated.

use axum::http::StatusCode;

use crate::document::{Document, Field, Format};
use crate::field::{block_size, filled_text, hashes, or_default, text, tokens};
use crate::refusal::{Reason, Refusal};
use crate::service::QueryContext;

/// Selection of the engines to query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineSelection {
    pub(crate) context: QueryContext,
    /// Salt of the first block; empty for none.
    pub(crate) salt: Box<str>,
    /// Restricts the query to one instance. No instance has the empty name.
    pub(crate) instance: Option<Box<str>>,
}

/// Lookup keys of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LookupKeys {
    Tokens(Vec<u32>),
    Hashes {
        hashes: Vec<u64>,
        kind: Option<HashKind>,
    },
}

/// Kind of the hashes in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashKind {
    /// Rolling XXH3 hashes of RFC 1527.
    Rolling,
    /// The engines' own hashes.
    Engine,
}

#[derive(Default)]
struct QueryFields<'f> {
    model: Option<&'f str>,
    block_size: Option<u32>,
    tenant: &'f str,
    lora: &'f str,
    salt: &'f str,
    instance: Option<&'f str>,
}

impl<'f> QueryFields<'f> {
    /// Reads a field that both routes have; returns `false` for other fields.
    fn take(&mut self, name: &str, field: &'f Field<'_>) -> Result<bool, Refusal> {
        match name {
            "model" => self.model = Some(filled_text(name, field)?),
            "block_size" => {
                let size = block_size(field, "block_size must be a positive integer")?;
                self.block_size = Some(size);
            }
            "tenant_id" => self.tenant = text(name, field)?,
            "lora_name" => self.lora = text(name, field)?,
            "cache_salt" if *field == Field::Nil => self.salt = "",
            "cache_salt" => self.salt = text(name, field)?,
            "instance_id" => self.instance = Some(text(name, field)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn selection(&self) -> Result<EngineSelection, Refusal> {
        let model = self.model.ok_or_else(|| Refusal::missing("model"))?;
        let block_size = self.block_size.ok_or_else(|| Refusal::missing("block_size"))?;
        Ok(EngineSelection {
            context: QueryContext {
                tenant: or_default(self.tenant).into(),
                model: model.into(),
                lora: self.lora.into(),
                block_size,
            },
            salt: self.salt.into(),
            instance: self.instance.map(Into::into),
        })
    }
}

/// Reads the body of `POST /query`.
pub(crate) fn by_tokens(
    format: Format,
    body: &Document<'_>,
) -> Result<(EngineSelection, LookupKeys), Refusal> {
    let mut fields = QueryFields::default();
    let mut found = None;
    for (name, field) in &body.fields {
        if &**name == "token_ids" {
            found = Some(tokens(format, field)?);
        } else if !fields.take(name, field)? {
            return Err(Refusal::unknown_field(name));
        }
    }
    let selection = fields.selection()?;
    let tokens = found.ok_or_else(|| Refusal::missing("token_ids"))?;
    Ok((selection, LookupKeys::Tokens(tokens)))
}

/// Reads the body of `POST /query_by_hash`.
pub(crate) fn by_hashes(
    format: Format,
    body: &Document<'_>,
) -> Result<(EngineSelection, LookupKeys), Refusal> {
    let mut fields = QueryFields::default();
    let (mut found, mut kind) = (None, None);
    for (name, field) in &body.fields {
        match &**name {
            // The names in the text and the examples of RFC 1403, and Dynamo's.
            "seq_hashes" | "block_hash" | "block_hashes" => found = Some(hashes(format, name, field)?),
            "hash_kind" => kind = Some(read_kind(field)?),
            name if !fields.take(name, field)? => return Err(Refusal::unknown_field(name)),
            _ => {}
        }
    }
    let selection = fields.selection()?;
    let hashes = found.ok_or_else(|| Refusal::missing("seq_hashes"))?;
    Ok((selection, LookupKeys::Hashes { hashes, kind }))
}

fn read_kind(field: &Field<'_>) -> Result<HashKind, Refusal> {
    let name = "hash_kind";
    match text(name, field)? {
        "rolling" => Ok(HashKind::Rolling),
        "engine" => Ok(HashKind::Engine),
        _ => Err(Refusal::bad(
            Reason::InvalidValue,
            name,
            "hash_kind must be rolling or engine",
        )),
    }
}

/// Refuses adapters and salts: rolling hashes cover only tokens.
pub(crate) fn check_rolling(selection: &EngineSelection) -> Result<(), Refusal> {
    if selection.context.lora.is_empty() && selection.salt.is_empty() {
        return Ok(());
    }
    Err(Refusal::because(
        StatusCode::BAD_REQUEST,
        Reason::Unsupported,
        "rolling hashes name prefixes of the base model without a salt: query by token_ids or by engine hashes",
    ))
}
