//! Small tokenizers of every shape, made here: a byte-level BPE, one in the manner of sentencepiece, and a WordPiece.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tokenize::Files;

/// Chat templates in the style of three families, in our own words.
pub(crate) const CHATML: &str = "{%- if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}\
    {%- for message in messages %}\
    {{- '<|im_start|>' + message.role + '\n' }}\
    {%- if message.content %}{{ message.content }}{% endif %}\
    {%- for call in message.tool_calls or [] %}<call>{{ call.function.name }}({% for key, value in call.function.arguments.items() %}{{ key }}={{ value | tojson }};{% endfor %})</call>{% endfor %}\
    {{- '<|im_end|>\n' }}{% endfor %}\
    {%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
pub(crate) const HEADERS: &str = "{{ bos_token }}{% for m in messages %}\
    {{- '<|im_start|>' ~ m['role'] ~ '<|im_end|>\n\n' }}\
    {%- if m['content'] is string %}{{ m['content'] | trim }}{% else %}{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}\
    {{- eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_end|>\n\n' }}{% endif %}";
pub(crate) const INSTRUCT: &str = "{{ bos_token }}{% for m in messages %}\
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}\
    {%- if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}";

const WORDS: &str = "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were we when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him into time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get come made may part";

/// Returns the letters that stand for bytes in byte-level vocabularies.
fn byte_letters() -> Vec<char> {
    let shown = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut hidden = 256;
    let letter = |byte| {
        let code = if shown(byte) {
            byte
        } else {
            hidden += 1;
            hidden - 1
        };
        char::from_u32(code).unwrap()
    };
    (0..256).map(letter).collect()
}

/// Returns a vocabulary and the merges that lead from `letters` to the words, each after `space`.
fn merged(letters: Vec<String>, space: &str) -> (Vec<String>, Vec<[String; 2]>) {
    let mut vocabulary = letters;
    let mut merges: Vec<[String; 2]> = Vec::new();
    for word in WORDS.split(' ') {
        for begin in [space, ""] {
            let mut built = begin.to_owned();
            for letter in word.chars() {
                if !built.is_empty() {
                    let pair = [built.clone(), letter.to_string()];
                    if !merges.contains(&pair) {
                        merges.push(pair);
                    }
                }
                built.push(letter);
                if !vocabulary.contains(&built) {
                    vocabulary.push(built.clone());
                }
            }
        }
    }
    (vocabulary, merges)
}

fn ids(tokens: &[String]) -> serde_json::Value {
    tokens
        .iter()
        .zip(0..)
        .map(|(token, id): (_, u32)| (token.clone(), id.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn added(first: usize, tokens: &[(&str, &str)]) -> serde_json::Value {
    let token = |(at, (content, flags)): (usize, &(&str, &str))| {
        serde_json::json!({
            "id": first + at, "content": content, "special": !flags.contains("plain"), "single_word": flags.contains("word"),
            "lstrip": flags.contains("lstrip"), "rstrip": flags.contains("rstrip"), "normalized": flags.contains("normalized"),
        })
    };
    tokens.iter().enumerate().map(token).collect()
}

const SPECIAL: &[(&str, &str)] = &[
    ("<|endoftext|>", ""),
    ("<|im_start|>", ""),
    ("<|im_end|>", ""),
    ("<|im_end|>\n\n", "plain"),
    ("<tool>", "plain rstrip"),
    ("<left>", "lstrip"),
    (" <sp>", "plain"),
    ("word!", "plain word"),
    ("Normal", "plain normalized"),
];

/// Returns a byte-level BPE, as of Qwen and Llama 3, with every kind of added token.
pub(crate) fn byte_level() -> Files {
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    byte_level_with(&serde_json::json!({"type": "NFC"}), &bytes, false)
}

/// Returns a byte-level BPE with a splitting of its own, as several models have it: by patterns, one after the other.
pub(crate) fn byte_level_split(patterns: &[&str]) -> Files {
    let split = |pattern: &&str| serde_json::json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let mut steps: Vec<_> = patterns.iter().map(split).collect();
    steps.push(serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}));
    let steps = serde_json::json!({"type": "Sequence", "pretokenizers": steps});
    byte_level_with(&serde_json::Value::Null, &steps, true)
}

/// Returns a byte-level BPE with other steps before the words, and words that are whole tokens despite the merges.
pub(crate) fn byte_level_with(
    normalizer: &serde_json::Value,
    pre_tokenizer: &serde_json::Value,
    ignore_merges: bool,
) -> Files {
    let letters = byte_letters();
    let space = letters[usize::from(b' ')].to_string();
    let (vocabulary, merges) = merged(letters.iter().map(char::to_string).collect(), &space);
    let json = serde_json::json!({
        "version": "1.0", "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}, "padding": null,
        "added_tokens": added(vocabulary.len(), SPECIAL),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [vocabulary.len()], "tokens": ["<|endoftext|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges, "vocab": ids(&vocabulary), "merges": merges},
    });
    files(&json, CHATML)
}

/// Returns a tokenizer in the manner of sentencepiece, as of Llama 2 and Mistral: the first piece of a text begins
/// otherwise than the rest.
pub(crate) fn metaspace(scheme: &str) -> Files {
    let mut letters: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    let bytes = (0..256).map(|byte: u32| {
        let mut name = String::new();
        write!(name, "<0x{byte:02X}>").unwrap();
        name
    });
    letters.extend(bytes);
    letters.extend(('!'..='~').map(String::from));
    letters.push("▁".to_owned());
    letters.push("▁▁".to_owned());
    let (vocabulary, mut merges) = merged(letters, "▁");
    merges.insert(0, ["▁".to_owned(), "▁".to_owned()]);
    let (normalizer, pre_tokenizer) = match scheme {
        "legacy" => (
            serde_json::json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}),
            serde_json::Value::Null,
        ),
        scheme => (
            serde_json::Value::Null,
            serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}),
        ),
    };
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            {"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": vocabulary.len(), "content": "[INST]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": vocabulary.len() + 1, "content": "[/INST]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true},
        ],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": ids(&vocabulary), "merges": merges},
    });
    files(&json, INSTRUCT)
}

/// Returns a WordPiece, as of BERT.
pub(crate) fn word_piece() -> Files {
    let mut vocabulary: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(str::to_owned).into();
    vocabulary.extend(('!'..='~').map(String::from));
    vocabulary.extend(('a'..='z').map(|letter| format!("##{letter}")));
    vocabulary.extend(WORDS.split(' ').filter(|word| word.len() > 1).map(str::to_owned));
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(0, &[("[PAD]", ""), ("[UNK]", ""), ("[CLS]", ""), ("[SEP]", "")]),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ids(&vocabulary)},
    });
    files(&json, CHATML)
}

fn files(tokenizer: &serde_json::Value, template: &str) -> Files {
    let config = serde_json::json!({
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template,
    });
    Files {
        tokenizer: tokenizer.to_string().into_bytes(),
        config: Some(config.to_string().into_bytes()),
        templates: BTreeMap::new(),
        ..Files::default()
    }
}
