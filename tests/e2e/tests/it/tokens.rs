//! Prompts become tokens in the router: the engines' own, and so what their caches hold is found.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use harness::{TestRouter, eventually, route_all};
use mock_engine::{MockConfig, tokenize};
use serde_json::{Value, json};

use crate::affinity::caught_up;
use crate::{fast_fleet, long_prompt, router_with};

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes the mock engine's tokenizer as a file, as far as these texts need it: its pieces, each with its id.
fn write_tokenizer(folder: &Path, texts: &[&str]) {
    let mut pieces = BTreeMap::from([("<unk>".to_owned(), 2)]);
    let letters = ('a'..='z').chain('0'..='9').map(String::from);
    let known = ["\n", " ", ".", "user", "assistan", "t", "system"].map(str::to_owned);
    for text in texts
        .iter()
        .map(|text| (*text).to_owned())
        .chain(letters)
        .chain(known)
    {
        let mut rest = text.as_str();
        while !rest.is_empty() {
            // The longest beginning that the engine has as one token.
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            let end = ends
                .take(9)
                .filter(|end| tokenize(&rest[..*end]).len() == 1)
                .last()
                .unwrap();
            pieces.insert(rest[..end].to_owned(), tokenize(&rest[..end])[0]);
            rest = &rest[end..];
        }
    }
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": null,
        "added_tokens": [special(0, "<|im_start|>"), special(1, "<|im_end|>")],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": " ?[0-9A-Za-z]{1,8}|[\\s\\S]"}, "behavior": "Isolated", "invert": false},
        "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": with_special(&pieces)},
    });
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({ "chat_template": TEMPLATE });
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

fn with_special(pieces: &BTreeMap<String, u32>) -> Value {
    let special = [("<|im_start|>".to_owned(), 0), ("<|im_end|>".to_owned(), 1)];
    let all = pieces.clone().into_iter().chain(special);
    all.map(|(piece, id)| (piece, Value::from(id)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn conversation(turns: &[&str]) -> Value {
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages: Vec<Value> = turns
        .iter()
        .zip(roles)
        .map(|(text, role)| json!({"role": role, "content": text}))
        .collect();
    json!({"model": "mock", "max_tokens": 2, "messages": messages})
}

async fn send_chat(router: &TestRouter, body: &Value) -> (String, u64, u64) {
    let answer = router.client.post("/v1/chat/completions", body).await.unwrap();
    let usage = &answer.json().unwrap()["usage"];
    (
        answer.header("x-conductor-worker").to_owned(),
        answer.header("x-conductor-matched-tokens").parse().unwrap_or(0),
        usage["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0),
    )
}

async fn counted(router: &TestRouter, series: &str) -> f64 {
    router.metric(series).await.unwrap().unwrap_or(0.0)
}

fn local(folder: &Path) -> String {
    format!(
        "[models.mock]\ntokenizer = \"{}\"\ntokenize-timeout = \"60s\"\n[pools.chat]\ntokenize = \"off\"\n",
        folder.display()
    )
}

#[tokio::test]
async fn a_chat_is_tokenized_here_and_found_in_the_engines_cache() {
    let (first, second) = (long_prompt(1), long_prompt(2));
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path(), &[&first, &second]);
    let fleet = fast_fleet(3).await;
    let router = router_with(&local(folder.path()), &fleet, "cache-aware").await;
    router
        .admin_shows("/admin/feeds", "all feeds are live", |page| {
            let feeds = page["feeds"].as_array();
            feeds.is_some_and(|feeds| feeds.iter().all(|feed| feed["state"] == "live"))
        })
        .await;
    let (worker, ..) = send_chat(&router, &conversation(&[&first])).await;
    let turn = conversation(&[&first, "ok", &second]);
    let whole = u64::from(MockConfig::default().block_size);
    // Else the next turn may be placed elsewhere, and stays there.
    caught_up(&router, &fleet).await;
    eventually("the next turn finds what the first one left", || async {
        let (again, matched, cached) = send_chat(&router, &turn).await;
        again == worker && matched >= cached && cached >= whole && matched > 0
    })
    .await;
    assert!(
        counted(
            &router,
            r#"conductor_tokenized_total{pool="chat",outcome="local"}"#
        )
        .await
            >= 2.0
    );
    assert!(counted(&router, r#"conductor_tokenizer_tokens_total{from="cache"}"#).await > 0.0);
    let queries: f64 = counted(
        &router,
        r#"conductor_tokenized_total{pool="chat",outcome="worker"}"#,
    )
    .await;
    assert_eq!(queries, 0.0);
}

#[tokio::test]
async fn a_broken_tokenizer_is_reported_and_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path(), &["hello"]);
    let fleet = fast_fleet(1).await;
    let router = router_with(&local(folder.path()), &fleet, "cache-aware").await;
    let local = r#"conductor_tokenized_total{pool="chat",outcome="local"}"#;
    send_chat(&router, &conversation(&["hello"])).await;
    assert_eq!(counted(&router, local).await, 1.0);

    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    let page = router
        .admin_shows("/admin/config", "the tokenizer is refused", |page| {
            page["problems"]
                .as_array()
                .is_some_and(|problems| !problems.is_empty())
        })
        .await;
    let problem = &page["problems"][0];
    assert_eq!(problem["code"], "tokenizer-unavailable", "{problem}");
    assert_eq!(problem["column"], 13, "it points at the path: {problem}");
    send_chat(&router, &conversation(&["hello"])).await;
    assert_eq!(counted(&router, local).await, 2.0);

    write_tokenizer(folder.path(), &["hello", "again"]);
    router
        .admin_shows("/admin/config", "all is well again", |page| {
            page["problems"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    send_chat(&router, &conversation(&["hello again"])).await;
    assert_eq!(counted(&router, local).await, 3.0);
}

#[tokio::test]
async fn chats_that_the_engine_renders_itself_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path(), &["hello"]);
    let fleet = fast_fleet(1).await;
    let router = router_with(&local(folder.path()), &fleet, "cache-aware").await;
    let page = router.admin("/admin/config").await.unwrap();
    assert!(page["warnings"].is_null(), "{page}");
    fs::write(folder.path().join("config.json"), r#"{"model_type": "gpt_oss"}"#).unwrap();
    router
        .admin_shows("/admin/config", "the warning is there", |page| {
            page["warnings"][0]["code"] == "chats-without-tokens"
        })
        .await;
    send_chat(&router, &conversation(&["hello"])).await;
    let unsupported = r#"conductor_tokenized_total{pool="chat",outcome="unsupported"}"#;
    assert_eq!(counted(&router, unsupported).await, 1.0);
}

#[tokio::test]
async fn text_alone_leads_a_conversation_back_where_caches_are_assumed() {
    let fleet = fast_fleet(3).await;
    let pool =
        "[pools.chat]\ntokenize = \"text\"\n[pools.chat.assume-cache]\ntokens = 100000\nblock-size = 16\n";
    let workers = fleet.workers_toml().replace("kv-", "#kv-");
    let workers = workers.replace("name =", "kv-events = \"off\"\nname =");
    let router = TestRouter::start(&format!("{pool}{workers}{}", route_all("cache-aware")))
        .await
        .unwrap();
    let first = long_prompt(7);
    let (worker, matched, _) = send_chat(&router, &conversation(&[&first])).await;
    assert_eq!(matched, 0);
    let (again, matched, _) = send_chat(&router, &conversation(&[&first, "ok", "and more"])).await;
    assert_eq!(again, worker);
    assert!(
        matched as usize * 4 > first.len() / 2,
        "{matched} of {} bytes",
        first.len()
    );
    assert_eq!(
        counted(
            &router,
            r#"conductor_tokenized_total{pool="chat",outcome="text"}"#
        )
        .await,
        2.0
    );
}

#[tokio::test]
async fn adapters_listed_with_a_model_have_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path(), &["hello"]);
    let fleet = fast_fleet(1).await;
    let local = local(folder.path()).replacen('\n', "\nnames = [\"mock\", \"sql-*\"]\n", 1);
    let router = router_with(&local, &fleet, "cache-aware").await;
    for model in ["sql-adapter", "another"] {
        let mut body = conversation(&["hello"]);
        body["model"] = json!(model);
        // The test does not depend on whether the engine has that adapter.
        router.client.post("/v1/chat/completions", &body).await.unwrap();
    }
    for outcome in ["local", "off"] {
        let series = format!(r#"conductor_tokenized_total{{pool="chat",outcome="{outcome}"}}"#);
        assert_eq!(counted(&router, &series).await, 1.0, "{outcome}");
    }
}
