//! Prompts with the tokens that an engine gave them.

use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokenize::{Chat, FilePaths, Model, PrefixCache, Rendered};

/// One line of a record.
#[derive(Deserialize)]
struct Case<'a> {
    /// The chat template that the engine was given; none: the model's own.
    template: Option<String>,
    #[serde(borrow)]
    body: Body<'a>,
    /// None where the engine refuses the prompt.
    tokens: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Body<'a> {
    prompt: Option<String>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    documents: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_effort: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_kwargs: Option<&'a RawValue>,
    #[serde(borrow)]
    add_generation_prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    continue_final_message: Option<&'a RawValue>,
    #[serde(borrow)]
    add_special_tokens: Option<&'a RawValue>,
}

/// How a record compares with what is made here.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) equal: usize,
    pub(crate) tokens: usize,
    pub(crate) refused: usize,
    pub(crate) differences: Vec<String>,
}

/// Compares each line, all with one cache.
pub(crate) fn compare(folder: &Path, lines: &str) -> Compared {
    let paths = FilePaths {
        tokenizer: folder.to_owned(),
        chat_template: None,
    };
    let files = paths.read().expect("the model's files are there");
    let cache = PrefixCache::new(1 << 20);
    let mut compared = Compared::default();
    for line in lines.lines() {
        let case: Case<'_> = serde_json::from_str(line).expect("each line is a case");
        let mut files = files.clone();
        if let Some(template) = &case.template {
            files.templates.insert("default".to_owned(), template.clone());
        }
        let model = Model::load(&files, None).expect("the model loads");
        let ours = tokens(&model, &case.body, &cache);
        match (&case.tokens, ours) {
            (Some(theirs), Ok(ours)) if *theirs == ours => {
                compared.equal += 1;
                compared.tokens += ours.len();
            }
            (None, Err(_)) => compared.refused += 1,
            (theirs, ours) => compared
                .differences
                .push(format!("{line}\n  engine {theirs:?}\n  here   {ours:?}")),
        }
    }
    compared
}

fn tokens(model: &Model, body: &Body<'_>, cache: &PrefixCache) -> Result<Vec<u32>, String> {
    let rendered = match (&body.prompt, body.messages) {
        (Some(prompt), _) => {
            let special = body.add_special_tokens.is_none_or(|raw| raw.get() == "true");
            Rendered::text(prompt.clone(), special)
        }
        (None, Some(messages)) => {
            let chat = Chat {
                messages: messages.get(),
                tools: body.tools.map(RawValue::get),
                documents: body.documents.map(RawValue::get),
                reasoning_effort: body.reasoning_effort.map(RawValue::get),
                chat_template_kwargs: body.chat_template_kwargs.map(RawValue::get),
                add_generation_prompt: body.add_generation_prompt.map(RawValue::get),
                continue_final_message: body.continue_final_message.map(RawValue::get),
                add_special_tokens: body.add_special_tokens.map(RawValue::get),
            };
            let rendered = model.render(&chat, SystemTime::UNIX_EPOCH);
            rendered.map_err(|error| format!("{error:?}"))?
        }
        (None, None) => return Err("no prompt".to_owned()),
    };
    let prepared = model.prepare(rendered, cache);
    let tokens = model
        .complete(prepared, cache)
        .map_err(|error| format!("{error:?}"))?;
    Ok(tokens.ids)
}
