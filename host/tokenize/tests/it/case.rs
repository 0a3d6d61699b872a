//! Prompts with the tokens that an engine gave them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokenize::{Budget, Chat, EngineFields, FilePaths, Model, Rendered, TokenizationCache};

/// One line of a record.
#[derive(Deserialize)]
struct Case<'a> {
    /// The chat template that the engine was given; none: the model's own.
    template: Option<String>,
    #[serde(borrow)]
    body: Body<'a>,
    /// Tokens. `None` where the engine refuses the prompt.
    tokens: Option<Vec<u32>>,
}

/// The members of a request's body, each as it is written.
type Body<'a> = BTreeMap<String, &'a RawValue>;

/// Comparison of a record with our result.
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
    let cache = TokenizationCache::new(1 << 20);
    let mut compared = Compared::default();
    let mut loaded: Option<(Option<String>, Model)> = None;
    for line in lines.lines() {
        let case: Case<'_> = serde_json::from_str(line).expect("each line is a case");
        // A whole vocabulary takes a second to load.
        let known = loaded.take().filter(|(template, _)| *template == case.template);
        let (_, model) = loaded.insert(known.unwrap_or_else(|| {
            let mut files = files.clone();
            let template = case.template.clone();
            files
                .templates
                .extend(template.iter().map(|text| ("default".to_owned(), text.clone())));
            let model = Model::load(&files, None).expect("the model loads");
            (template, model)
        }));
        let ours = tokens(model, &case.body, &cache);
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

fn tokens(model: &Model, body: &Body<'_>, cache: &TokenizationCache) -> Result<Vec<u32>, String> {
    let member = |name: &str| {
        let text = body.get(name).map(|raw| raw.get());
        text.filter(|text| *text != "null")
    };
    let rendered = match (member("prompt"), member("messages")) {
        (Some(prompt), _) => {
            let prompt = serde_json::from_str(prompt).expect("a prompt is text");
            let special = member("add_special_tokens").is_none_or(|text| text == "true");
            Rendered::text(prompt, special)
        }
        (None, Some(messages)) => {
            let chat = Chat {
                messages,
                tools: member("tools"),
                documents: member("documents"),
                reasoning_effort: member("reasoning_effort"),
                chat_template_kwargs: member("chat_template_kwargs"),
                add_generation_prompt: member("add_generation_prompt"),
                continue_final_message: member("continue_final_message"),
                of_engines: EngineFields {
                    add_special_tokens: member("add_special_tokens"),
                    ..EngineFields::default()
                },
                ..Chat::default()
            };
            let rendered = model.render(&chat, SystemTime::UNIX_EPOCH);
            rendered.map_err(|error| format!("{error:?}"))?
        }
        (None, None) => return Err("no prompt".to_owned()),
    };
    let prepared = model.prepare(rendered, cache);
    let tokens = model
        .complete(prepared, cache, &mut Budget::unlimited())
        .map_err(|error| format!("{error:?}"))?;
    Ok(tokens.ids.to_vec())
}
