//! Tests of the configuration's tokens. The expected tokens are those of `transformers` 5.19.

use std::time::SystemTime;

use crate::budget::Budget;
use crate::cache::TokenizationCache;
use crate::chat::Chat;
use crate::files::Files;
use crate::model::Model;
use crate::rendered::Rendered;

/// Tokenizer of bytes: those of ASCII are tokens, and `</s>` has one of its own.
fn tokenizer(added: &str) -> Vec<u8> {
    let bytes = (33_u8..127).map(|byte| {
        let text = serde_json::to_string(&char::from(byte)).unwrap();
        format!("{text}:{byte}")
    });
    let others = (0..32).chain(127..256).map(|id| format!("\"other{id}\":{id}"));
    let named = ["\"Ġ\":32", "\"</s>\":256"].map(str::to_owned);
    let vocab: Vec<_> = bytes.chain(others).chain(named).collect();
    format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{added}],"normalizer":null,
        "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
        "post_processor":null,"decoder":null,
        "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
        "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{{{}}},"merges":[]}}}}"#,
        vocab.join(",")
    )
    .into()
}

fn model(added: &str, config: &str, map: Option<&str>) -> Model {
    let files = Files {
        tokenizer: tokenizer(added),
        templates: [("default".to_owned(), "{{ eos_token }}{{ x_token }}".to_owned())].into(),
        config: Some(config.into()),
        special_tokens: map.map(Into::into),
        ..Files::default()
    };
    Model::load(&files, None).unwrap()
}

fn tokens(model: &Model, text: &str) -> Vec<u32> {
    let cache = TokenizationCache::new(0);
    let prepared = model.prepare(Rendered::text(text.to_owned(), false), &cache);
    model
        .complete(prepared, &cache, &mut Budget::unlimited())
        .unwrap()
        .ids
        .to_vec()
}

#[test]
fn special_tokens_that_are_no_added_tokens_are_added() {
    for (config, map) in [
        (r#"{"eos_token":"</s>"}"#, None),
        (r#"{"additional_special_tokens":["</s>"]}"#, None),
        (r#"{"extra_special_tokens":["</s>"]}"#, None),
        (r#"{"extra_special_tokens":{"x_token":"</s>"}}"#, None),
        (r#"{"x_token":"</s>"}"#, None),
        ("{}", Some(r#"{"eos_token":"</s>"}"#)),
        ("{}", Some(r#"{"additional_special_tokens":["</s>"]}"#)),
        (
            r#"{"eos_token":"<a>"}"#,
            Some(r#"{"eos_token":{"content":"</s>","normalized":false}}"#),
        ),
    ] {
        assert_eq!(
            tokens(&model("", config, map), "a</s>b"),
            [97, 256, 98],
            "{config} {map:?}"
        );
    }
    // Tokens that are nowhere are numbered, in the order of their names.
    let new = model(
        "",
        r#"{"eos_token":"<e>","bos_token":"<b>","extra_special_tokens":["<x>"]}"#,
        None,
    );
    assert_eq!(tokens(&new, "<x><e><b>"), [259, 258, 257]);
    let new_form = model(
        "",
        r#"{"added_tokens_decoder":{}}"#,
        Some(r#"{"eos_token":"</s>"}"#),
    );
    assert_eq!(tokens(&new_form, "</s>"), [60, 47, 115, 62]);
}

#[test]
fn tokens_of_a_models_own_names_are_variables_of_its_templates() {
    let model = model(
        "",
        r#"{"eos_token":"</s>","extra_special_tokens":{"x_token":"<x>"}}"#,
        None,
    );
    let chat = Chat {
        messages: r#"[{"role":"user","content":"a"}]"#,
        ..Chat::default()
    };
    let rendered = model.render(&chat, SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(rendered.as_str(), "</s><x>");
}

#[test]
fn flags_of_the_configuration_override_those_of_the_tokenizer() {
    let flags = |strips: bool| {
        format!(
            r#""content":"</s>","lstrip":{strips},"rstrip":{strips},"single_word":false,"normalized":false,"special":true"#
        )
    };
    for (file, config, expected) in [
        (false, true, &[97, 256, 98][..]),
        (true, false, &[97, 32, 256, 32, 32, 98]),
    ] {
        let added = format!(r#"{{"id":256,{}}}"#, flags(file));
        let config = format!(r#"{{"added_tokens_decoder":{{"256":{{{}}}}}}}"#, flags(config));
        assert_eq!(
            tokens(&model(&added, &config, None), "a </s>  b"),
            expected,
            "{file}"
        );
    }
}
