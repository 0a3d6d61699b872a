//! Decisions of pipelines are recorded with what each scorer gave, repeated bit for bit, and explained.

use std::fs;

use harness::{TestRouter, route_all};
use serde_json::{Value, json};

use super::{complete, conductor, fast_fleet, replay, written};

const PIPELINE: &str = r#"
[policies.lora-affinity]
builtin = "lora-affinity"
params = { adapters = "mock", homes = 1 }

[policies.mixed.pipeline]
filters = [{ feature = "load.requests", at-most = 64 }, { label = "zone", is = "nowhere" }]
scorers = [
    { policy = "tier-weight", weight = 2 },
    { policy = "lora-affinity" },
    { feature = "load.requests", weight = -0.5 },
]
pick = "softmax"
temperature = 0.3
"#;

#[tokio::test]
async fn decisions_of_a_pipeline_repeat_bit_for_bit_for_each_of_its_scorers_and_are_explained() {
    let fleet = fast_fleet().await;
    let patient =
        "[record]\nfile = \"decisions.jsonl\"\nsample = 1.0\n[pools.chat]\ntokenize-timeout = \"10s\"\n";
    let toml = format!(
        "{patient}{PIPELINE}\n{}{}",
        fleet.workers_toml(),
        route_all("mixed")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let mut id = String::new();
    for number in 0..24 {
        id = complete(&router, number).await;
    }
    let log = router.path("decisions.jsonl");
    written(&log, 24).await;

    for scorer in ["tier-weight", "lora-affinity"] {
        let (report, code) = replay(scorer, &log).await;
        let part = &report["as-scorer"];
        assert_eq!(
            (&part["decisions"], &part["identical"], code),
            (&json!(24), &json!(24), 0),
            "{report}"
        );
    }
    let (report, _) = replay("load-weighted", &log).await;
    assert_eq!(
        report["other"]["recorded-policies"],
        json!({ "mixed": 24 }),
        "{report}"
    );

    // Another score than was given, and another choice than follows from them, are both found.
    let forge = |line: &str, forge: fn(&mut Value)| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["decision"].is_object() {
            forge(&mut line["decision"]);
        }
        line.to_string()
    };
    let forgeries: [fn(&mut Value); 2] = [
        |decision| decision["weighing"]["scorers"][0]["scores"][0] = json!(-1),
        |decision| {
            let row = &mut decision["verdict"]["route"]["row"];
            *row = json!((row.as_u64().unwrap() + 1) % 3);
        },
    ];
    for forgery in forgeries {
        let text = fs::read_to_string(&log).unwrap();
        let forged: Vec<String> = text.lines().map(|line| forge(line, forgery)).collect();
        let path = router.path("forged.jsonl");
        fs::write(&path, forged.join("\n")).unwrap();
        let (report, code) = replay("tier-weight", &path).await;
        assert_eq!(
            (&report["as-scorer"]["different"], code),
            (&json!(24), 1),
            "{report}"
        );
    }

    let policies = router.admin("/admin/policies").await.unwrap();
    let listed = policies["policies"].as_array().unwrap().iter();
    let mixed = listed.clone().find(|policy| policy["name"] == "mixed").unwrap();
    let version = format!("mixed@{}", mixed["version"].as_str().unwrap());
    let admin = router.admin.base().to_owned();
    let run = conductor(&["explain", &id, "--admin", &admin]).await;
    for line in [
        &*version,
        "score of tier-weight",
        "score of lora-affinity",
        "figure",
        "weighed tier-weight x 2",
        "the filter \"label zone is nowhere\" excluded every candidate and was ignored",
        "queried inspect.model()",
    ] {
        assert!(run.stdout.contains(line), "{line}: {run:?}");
    }
}
