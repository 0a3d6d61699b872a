//! The tokenizer as the files that models come with: `tokenizer.json` and `tokenizer_config.json`.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::bpe;

/// Words with the sign or space before them, single digits, runs of other signs, line ends, spaces: as recent models
/// split.
const SPLIT: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// ChatML.
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
                        {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Writes both files into `folder`, which is made if it is not there.
///
/// # Errors
/// Where the folder cannot be written to.
pub fn write_tokenizer(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, content) in [
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", config()),
    ] {
        fs::write(folder.join(name), content.to_string())?;
    }
    Ok(())
}

fn special() -> [(u32, &'static str); 3] {
    [
        (bpe::TEXT_END, "<|endoftext|>"),
        (bpe::MESSAGE_START, "<|im_start|>"),
        (bpe::MESSAGE_END, "<|im_end|>"),
    ]
}

fn tokenizer() -> Value {
    let vocabulary: Map<String, Value> = (0_u32..)
        .zip(bpe::tokens())
        .map(|(id, token)| (token, id.into()))
        .collect();
    let added: Vec<_> = special()
        .into_iter()
        .map(|(id, content)| {
            json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true })
        })
        .collect();
    let by_bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let split =
        json!({ "type": "Split", "pattern": { "Regex": SPLIT }, "behavior": "Isolated", "invert": false });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": { "type": "NFC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [split, by_bytes] },
        "post_processor": by_bytes,
        "decoder": by_bytes,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocabulary,
            "merges": bpe::merges(),
        },
    })
}

fn config() -> Value {
    let decoder: Map<String, Value> = special()
        .into_iter()
        .map(|(id, content)| (id.to_string(), json!({ "content": content, "special": true })))
        .collect();
    json!({
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": decoder,
        "bos_token": null,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": null,
        "add_bos_token": false,
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
        "model_max_length": 131_072,
        "chat_template": TEMPLATE,
    })
}
