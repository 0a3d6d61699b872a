//! The tokens of a real vLLM, recorded by tests/engines/vllm_tokens.py: ours are the same.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use tokenize::{Chat, ChatError, EngineRenderer, FilePaths, Model};

use crate::case;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn tokens_are_those_of_a_real_engine() {
    let recorded = fs::read_to_string(fixture("vllm-0.32.0.jsonl")).unwrap();
    let compared = case::compare(&fixture("tiny"), &recorded);
    assert!(
        compared.differences.is_empty(),
        "{}",
        compared.differences.join("\n\n")
    );
    assert!(compared.equal >= 80, "{}", compared.equal);
}

/// Of the same tokenizer, captured at another time: `/tokenize` itself.
#[test]
fn tokens_are_those_of_the_captured_answers() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http");
    if !captures.is_dir() {
        println!("skipped: there is no {}", captures.display());
        return;
    }
    let names = [
        "tokenize_chat",
        "tokenize_chat_nogen",
        "tokenize_completion",
        "tokenize_completion_strs",
    ];
    for name in names {
        let body = fs::read_to_string(captures.join(format!("{name}.request.json"))).unwrap();
        let answer = fs::read_to_string(captures.join(format!("{name}.http"))).unwrap();
        let (_, answer) = answer
            .split_once("\r\n\r\n")
            .or_else(|| answer.split_once("\n\n"))
            .unwrap();
        let answer: serde_json::Value = serde_json::from_str(answer.trim()).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let line = serde_json::json!({"template": null, "body": body, "tokens": answer["tokens"]});
        let compared = case::compare(&fixture("tiny"), &line.to_string());
        assert_eq!(compared.equal, 1, "{name}: {:?}", compared.differences);
    }
}

/// Returns a model of a folder with the tiny tokenizer and further files.
fn with_files(names: &[(&str, &str)], chat_template: bool) -> Model {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("tiny")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    for (name, text) in names {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let own = folder.path().join("own.jinja");
    fs::write(&own, "{{ messages[0].content }}").unwrap();
    let paths = FilePaths {
        tokenizer: folder.path().to_owned(),
        chat_template: chat_template.then_some(own),
    };
    Model::load(&paths.read().unwrap(), None).unwrap()
}

/// Returns whether the model renders chats.
fn renders(model: &Model) -> bool {
    let chat = Chat {
        messages: r#"[{"role":"user","content":"a"}]"#,
        ..Chat::default()
    };
    match model.render(&chat, SystemTime::UNIX_EPOCH) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error, ChatError::Unsupported(_)), "{error:?}");
            false
        }
    }
}

#[test]
fn chats_that_the_engine_renders_by_code_of_its_own_are_unsupported() {
    let weights = ("consolidated-00001-of-00002.safetensors", "");
    for (files, renderer) in [
        (
            &[("config.json", r#"{"model_type":"gpt_oss"}"#)][..],
            EngineRenderer::Harmony,
        ),
        (&[weights, ("tekken.json", "{}")], EngineRenderer::MistralCommon),
        (
            &[weights, ("tokenizer.model.v3", "")],
            EngineRenderer::MistralCommon,
        ),
        (
            &[("config.json", r#"{"architectures":["DeepseekV32ForCausalLM"]}"#)],
            EngineRenderer::OfArchitecture("DeepseekV32ForCausalLM"),
        ),
    ] {
        let model = with_files(files, false);
        assert_eq!(model.engine_renderer(), Some(renderer));
        assert!(!renders(&model), "{renderer}");
        // Only Harmony does not depend on the engine's tokenizer mode.
        let is_harmony = renderer == EngineRenderer::Harmony;
        assert_eq!(renders(&with_files(files, true)), !is_harmony, "{renderer}");
    }
}

#[test]
fn chats_of_other_folders_are_rendered() {
    for files in [
        &[][..],
        &[(
            "config.json",
            r#"{"model_type":"llama","architectures":["LlamaForCausalLM"]}"#,
        )],
        &[("config.json", "[1]")],
        &[("consolidated.safetensors", "")],
        &[("tekken.json", "{}"), ("model-00001-of-00002.safetensors", "")],
    ] {
        let model = with_files(files, false);
        assert_eq!(model.engine_renderer(), None, "{files:?}");
        assert!(renders(&model), "{files:?}");
    }
}
