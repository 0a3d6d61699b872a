//! `tokenizer_config.json`: added tokens, their names, and chat templates.

use std::collections::{BTreeMap, HashSet};

use minijinja::value::Value;
use serde::Deserialize;
use tokenizers::{AddedToken, Tokenizer};

use crate::error::LoadError;
use crate::files::Files;
use crate::special_tokens::{AddedTokenField, SpecialTokens};
use crate::template::{DEFAULT, TOOL_USE};
use crate::value::Read;

/// Relevant fields of `tokenizer_config.json` and `special_tokens_map.json`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    chat_template: Option<TemplateField>,
    added_tokens_decoder: Option<BTreeMap<u32, AddedTokenField>>,
    #[serde(default)]
    split_special_tokens: bool,
    #[serde(skip)]
    special: SpecialTokens,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

/// `chat_template.json`: the template of a processor.
#[derive(Debug, Deserialize)]
struct ProcessorTemplate {
    chat_template: Option<TemplateField>,
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Config {
    pub(crate) fn read(files: &Files) -> Result<Self, LoadError> {
        let mut config: Self = match &files.config {
            Some(json) => read_json("tokenizer_config.json", json)?,
            None => Self::default(),
        };
        let fields = |name, json: Option<&Vec<u8>>| match json {
            Some(json) => read_json(name, json).map(|Read(fields)| fields),
            None => Ok(Value::from(())),
        };
        // As in `transformers`, the second file counts only beside a configuration of an old form.
        let map = files.special_tokens.as_ref();
        let map = map.filter(|_| config.added_tokens_decoder.is_none());
        config.special = SpecialTokens::of(
            &fields("tokenizer_config.json", files.config.as_ref())?,
            &fields("special_tokens_map.json", map)?,
        );
        Ok(config)
    }

    /// Adds the tokens that only the configuration has, or has with other flags, in the order of `transformers`.
    pub(crate) fn complete(&self, tokenizer: &mut Tokenizer) -> Result<(), LoadError> {
        let known = tokenizer.get_added_tokens_decoder();
        let known: HashSet<&AddedToken> = known.values().collect();
        let listed = self.added_tokens_decoder.iter().flatten();
        let mut added: Vec<AddedToken> = Vec::new();
        for (_, field) in listed.clone() {
            let token = field.token();
            if known.contains(&token) {
                continue;
            }
            let mut named = self.special.named();
            let is_named = named.any(|(_, named)| named.content == token.content);
            added.push(if is_named { field.special().token() } else { token });
        }
        for token in self.special.all() {
            let mut texts = known.iter().copied().chain(&added).map(|known| &known.content);
            if !texts.any(|text| *text == token.content) {
                added.push(token.token());
            }
        }
        tokenizer.add_tokens(added).map_err(LoadError::Tokenizer)?;
        for (id, token) in listed {
            if !token.content.is_empty() && tokenizer.token_to_id(&token.content) != Some(*id) {
                return Err(LoadError::AddedToken(*id));
            }
        }
        tokenizer.set_encode_special_tokens(self.split_special_tokens);
        Ok(())
    }

    /// Removes the post-processor, and returns the tokens that it puts around a prompt. They come from the tokenizer's
    /// file: only some classes of `transformers` use `add_bos_token` of the configuration, and their files agree with
    /// it.
    pub(crate) fn take_affix(tokenizer: &mut Tokenizer) -> Result<[Box<[u32]>; 2], LoadError> {
        tokenizer.with_truncation(None).map_err(LoadError::Tokenizer)?;
        tokenizer.with_padding(None);
        let encode = |tokenizer: &Tokenizer, text: &str, special| {
            let encoding = tokenizer.encode(text, special).map_err(LoadError::Tokenizer)?;
            Ok::<_, LoadError>(encoding.get_ids().to_vec())
        };
        // Texts without special meaning for any post-processor.
        let probes = ["a", "b c\nd 1"];
        let processed = probes.map(|probe| {
            Ok::<_, LoadError>([encode(tokenizer, probe, false)?, encode(tokenizer, probe, true)?])
        });
        tokenizer.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        let mut affix = None;
        for (probe, processed) in probes.iter().zip(processed) {
            let [bare, full] = processed?;
            let plain = encode(tokenizer, probe, false)?;
            let at = full.windows(plain.len()).position(|window| window == plain);
            let at = at.filter(|_| bare == plain).ok_or(LoadError::PostProcessor)?;
            let found: [Box<[u32]>; 2] = [full[..at].into(), full[at + plain.len()..].into()];
            if *affix.get_or_insert_with(|| found.clone()) != found {
                return Err(LoadError::PostProcessor);
            }
        }
        Ok(affix.unwrap_or_default())
    }

    /// Returns the special tokens that have a name in templates.
    pub(crate) fn special_tokens(&self) -> Vec<(Value, Value)> {
        let named = self.special.named();
        named
            .map(|(name, token)| (Value::from(name), Value::from(&*token.content)))
            .collect()
    }

    /// Returns the chat templates of the model, by name.
    pub(crate) fn all_templates(&self, files: &Files) -> Result<BTreeMap<String, String>, LoadError> {
        let mut templates = match files.only_these_templates {
            true => BTreeMap::new(),
            false => self.templates(),
        };
        templates.extend(files.templates.clone());
        if let Some(json) = &files.processor_template {
            let ProcessorTemplate { chat_template } = read_json("chat_template.json", json)?;
            if let Some(TemplateField::One(template)) = chat_template {
                // Chats with tools have the tokenizer's.
                let tokenizers = templates.insert(DEFAULT.to_owned(), template);
                if let Some(tokenizers) = tokenizers {
                    templates.entry(TOOL_USE.to_owned()).or_insert(tokenizers);
                }
            }
        }
        Ok(templates)
    }

    fn templates(&self) -> BTreeMap<String, String> {
        match &self.chat_template {
            None => BTreeMap::new(),
            Some(TemplateField::One(template)) => BTreeMap::from([("default".to_owned(), template.clone())]),
            Some(TemplateField::Named(named)) => named
                .iter()
                .map(|named| (named.name.clone(), named.template.clone()))
                .collect(),
        }
    }
}

fn read_json<'a, T: Deserialize<'a>>(name: &'static str, json: &'a [u8]) -> Result<T, LoadError> {
    serde_json::from_slice(json).map_err(|source| LoadError::Json(name, source))
}

#[cfg(test)]
mod tests;
