//! `tokenizer_config.json`: added tokens, their names, and chat templates.

use std::collections::BTreeMap;

use minijinja::value::Value;
use serde::Deserialize;
use tokenizers::{AddedToken, Tokenizer};

use crate::error::LoadError;
use crate::files::Files;

/// Relevant fields of `tokenizer_config.json`, which override `special_tokens_map.json`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    chat_template: Option<TemplateField>,
    #[serde(default)]
    added_tokens_decoder: BTreeMap<u32, AddedTokenField>,
    #[serde(default)]
    split_special_tokens: bool,
    #[serde(flatten)]
    named: SpecialTokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpecialTokens {
    bos_token: Option<TokenField>,
    eos_token: Option<TokenField>,
    unk_token: Option<TokenField>,
    sep_token: Option<TokenField>,
    pad_token: Option<TokenField>,
    cls_token: Option<TokenField>,
    mask_token: Option<TokenField>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenField {
    Text(String),
    Token { content: String },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct AddedTokenField {
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl Default for AddedTokenField {
    fn default() -> Self {
        Self {
            content: String::new(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: true,
            special: false,
        }
    }
}

impl TokenField {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => text,
        }
    }
}

impl Config {
    pub(crate) fn read(files: &Files) -> Result<Self, LoadError> {
        let mut config: Self = match &files.config {
            Some(json) => read_json("tokenizer_config.json", json)?,
            None => Self::default(),
        };
        if let Some(json) = &files.special_tokens {
            let mut map: SpecialTokens = read_json("special_tokens_map.json", json)?;
            for (own, other) in config.named.fields_mut().into_iter().zip(map.fields_mut()) {
                *own.1 = own.1.take().or_else(|| other.1.take());
            }
        }
        Ok(config)
    }

    /// Adds the tokens that only the configuration has.
    pub(crate) fn complete(&self, tokenizer: &mut Tokenizer) -> Result<(), LoadError> {
        let known = tokenizer.get_added_tokens_decoder();
        for (id, token) in &self.added_tokens_decoder {
            if known.get(id).is_some_and(|known| known.content == token.content) || token.content.is_empty() {
                continue;
            }
            let added = AddedToken::from(token.content.clone(), token.special)
                .single_word(token.single_word)
                .lstrip(token.lstrip)
                .rstrip(token.rstrip)
                .normalized(token.normalized);
            let adding = if token.special {
                tokenizer.add_special_tokens([added])
            } else {
                tokenizer.add_tokens([added])
            };
            adding.map_err(LoadError::Tokenizer)?;
            if tokenizer.token_to_id(&token.content) != Some(*id) {
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

    pub(crate) fn special_tokens(&self) -> Vec<(Value, Value)> {
        let fields = self.named.fields();
        let known = fields.into_iter().filter_map(|(name, token)| {
            let token = token.as_ref()?;
            Some((Value::from(name), Value::from(token.text())))
        });
        known.collect()
    }

    pub(crate) fn templates(&self) -> BTreeMap<String, String> {
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

impl SpecialTokens {
    fn fields(&self) -> [(&'static str, &Option<TokenField>); 7] {
        [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
            ("unk_token", &self.unk_token),
            ("sep_token", &self.sep_token),
            ("pad_token", &self.pad_token),
            ("cls_token", &self.cls_token),
            ("mask_token", &self.mask_token),
        ]
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut Option<TokenField>); 7] {
        [
            ("bos_token", &mut self.bos_token),
            ("eos_token", &mut self.eos_token),
            ("unk_token", &mut self.unk_token),
            ("sep_token", &mut self.sep_token),
            ("pad_token", &mut self.pad_token),
            ("cls_token", &mut self.cls_token),
            ("mask_token", &mut self.mask_token),
        ]
    }
}

fn read_json<'a, T: Deserialize<'a>>(name: &'static str, json: &'a [u8]) -> Result<T, LoadError> {
    serde_json::from_slice(json).map_err(|source| LoadError::Json(name, source))
}
