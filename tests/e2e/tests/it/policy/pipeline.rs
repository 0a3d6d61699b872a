//! Pipelines: scorers put together in the configuration, each with its own versions, circuit and swaps.

use harness::{Fleet, SplitFleet, TestRouter, favours, route_all, scores_too_few, sends_to, traps_scoring};
use http::StatusCode;
use mock_engine::PdDialect;
use serde_json::{Value, json};

use crate::policy::Traffic;
use crate::{answered, chat, fast, fast_fleet, long_prompt, worker_of};

/// A fleet of three workers, `w0` of the zone `eu` and the others of `us`, under the pipeline `mixed`.
struct Mixed {
    fleet: Fleet,
    router: TestRouter,
}

impl Mixed {
    /// Starts a router. `policies` are components put into the policy folder before `pipeline` is configured.
    async fn start(policies: &[(&str, Vec<u8>)], pipeline: &str) -> Self {
        let fleet = fast_fleet(3).await;
        let router = TestRouter::start(&workers(&fleet)).await.unwrap();
        let mixed = Self { fleet, router };
        for (name, bytes) in policies {
            mixed.router.save_policy(name, bytes).unwrap();
            mixed
                .shows(name, "it is loaded", |policy| policy["sha256"].is_string())
                .await;
        }
        mixed.configure(pipeline, &route_all("mixed")).await;
        mixed
    }

    async fn configure(&self, pipeline: &str, routes: &str) {
        let problems = self.try_configure(pipeline, routes).await;
        assert_eq!(problems, json!([]), "{pipeline}");
    }

    /// Returns the errors of such a pipeline.
    async fn try_configure(&self, pipeline: &str, routes: &str) -> Value {
        let workers = workers(&self.fleet);
        let text = format!("[policies.mixed]\npipeline = {pipeline}\n\n{workers}{routes}");
        self.router.save_config(&text).unwrap();
        let reload = self.router.admin.post("/admin/reload", &Value::Null).await;
        reload.unwrap().json().unwrap()["problems"].clone()
    }

    /// Waits until `/admin/policies` has some state of a policy.
    async fn shows(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        let of = |page: &Value| {
            let mut policies = page["policies"].as_array().into_iter().flatten();
            policies
                .find(|policy| policy["name"] == name)
                .cloned()
                .unwrap_or_default()
        };
        let page = self
            .router
            .admin_shows("/admin/policies", what, |page| look(&of(page)));
        of(&page.await)
    }

    async fn policy(&self, name: &str) -> Value {
        self.shows(name, "it is there", Value::is_object).await
    }

    /// Overwrites a policy, and waits until the new bytes are active.
    async fn swap(&self, name: &str, bytes: &[u8]) {
        let before = self.policy(name).await["swaps"].clone();
        self.router.save_policy(name, bytes).unwrap();
        self.shows(name, "the swap is active", |policy| policy["swaps"] != before)
            .await;
    }

    #[track_caller]
    fn all_by<'a>(&'a self, worker: &'a str) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..8 {
                assert_eq!(worker_of(&self.router).await, worker, "{caller}");
            }
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let number = self.router.metric(name).await.unwrap();
        number.ok_or_else(|| format!("no {name}")).unwrap()
    }
}

fn workers(fleet: &Fleet) -> String {
    (0..3).fold(fleet.workers_toml(), |text, number| {
        let zone = if number == 0 { "eu" } else { "us" };
        let name = format!("name = \"w{number}\"\n");
        text.replace(&name, &format!("{name}labels = {{ zone = \"{zone}\" }}\n"))
    })
}

#[tokio::test]
async fn the_cache_and_the_load_are_weighed_by_the_host() {
    let pipeline = r#"{ scorers = [{ policy = "tier-weight", weight = 2 }, { feature = "load.requests", weight = -1 }] }"#;
    let mixed = Mixed::start(&[], pipeline).await;
    let is_live = |feed: &Value| feed["state"] == "live";
    let all_live = |page: &Value| {
        page["feeds"]
            .as_array()
            .is_some_and(|feeds| feeds.iter().all(is_live))
    };
    mixed
        .router
        .admin_shows("/admin/feeds", "all feeds are live", all_live)
        .await;
    let send_request = |number| {
        let body = json!({ "model": "mock", "prompt": long_prompt(number), "max_tokens": 2 });
        let client = &mixed.router.client;
        async move { client.post("/v1/completions", &body).await.unwrap() }
    };
    for number in 0..4 {
        let first = send_request(number).await;
        let worker = first.header("x-conductor-worker").to_owned();
        harness::eventually("the prompt goes back to where it is cached", || async {
            let again = send_request(number).await;
            let matched: u64 = again.header("x-conductor-matched-tokens").parse().unwrap_or(0);
            matched > 0 && again.header("x-conductor-worker") == worker
        })
        .await;
        let version = first.header("x-conductor-policy").strip_prefix("mixed@").unwrap();
        assert_eq!(version.len(), 12);
    }

    let shown = mixed.policy("mixed").await;
    assert_eq!(shown["source"], "pipeline");
    let scorers = &shown["pipeline"]["scorers"];
    assert_eq!(
        scorers[0]["version"],
        mixed.policy("tier-weight").await["version"]
    );
    assert_eq!(scorers[1], json!({ "feature": "load.requests", "weight": -1.0 }));
    assert!(shown["calls"].as_u64() >= Some(8), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scorer_that_fails_is_left_out_and_counted_and_no_request_fails() {
    let pipeline = r#"{ scorers = [{ policy = "good" }, { policy = "bad", weight = 9 }] }"#;
    let good = favours(1, 1).unwrap();
    for (bad, kind) in [
        (traps_scoring().unwrap(), "trap"),
        (scores_too_few().unwrap(), "invalid-verdict"),
    ] {
        let mixed = Mixed::start(&[("good", good.clone()), ("bad", bad)], pipeline).await;
        let traffic = Traffic::start(&mixed.router.client);
        traffic.goes_on(20).await;
        let bad = mixed
            .shows("bad", "its circuit is open", |bad| bad["decides"] == "fallback")
            .await;
        assert!(bad["versions"][0]["faults"][kind].as_u64() >= Some(5), "{bad}");
        mixed.all_by("w1").await;
        assert_eq!(traffic.end().await, 0, "failed requests");
        assert_eq!(
            mixed.policy("mixed").await["pipeline"]["scorers"][1]["version"],
            "none"
        );
        let faults = format!("conductor_policy_faults_total{{policy=\"bad\",kind=\"{kind}\"}}");
        assert!(mixed.metric(&faults).await >= 5.0);
        let left_out = "conductor_pipeline_scorers_left_out_total{policy=\"mixed\",scorer=\"bad\"}";
        assert!(mixed.metric(left_out).await >= 28.0);
        for cause in ["pass", "fault", "circuit-open"] {
            let fallbacks = format!("conductor_policy_fallbacks_total{{policy=\"mixed\",cause=\"{cause}\"}}");
            assert_eq!(mixed.metric(&fallbacks).await, 0.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scorer_is_swapped_and_rolled_back_under_a_pipeline_and_a_broken_one_changes_nothing() {
    let pipeline = r#"{ scorers = [{ policy = "mine" }] }"#;
    let mixed = Mixed::start(&[("mine", favours(0, 1).unwrap())], pipeline).await;
    mixed.all_by("w0").await;
    let first = mixed.policy("mixed").await["version"].clone();
    let traffic = Traffic::start(&mixed.router.client);
    mixed.swap("mine", &favours(2, 2).unwrap()).await;
    mixed.all_by("w2").await;
    assert_ne!(
        mixed.policy("mixed").await["version"],
        first,
        "it is another pipeline"
    );

    // A good policy that is no scorer, and no policy at all.
    for broken in [sends_to(1, 3).unwrap(), b"\0asm".to_vec()] {
        mixed.router.save_policy("mine", &broken).unwrap();
        mixed
            .shows("mine", "it is refused", |mine| mine["problem"].is_string())
            .await;
        mixed.all_by("w2").await;
        mixed.router.save_policy("mine", &favours(2, 2).unwrap()).unwrap();
        mixed
            .shows("mine", "all is well", |mine| mine["problem"].is_null())
            .await;
    }
    let post = |path: &'static str| mixed.router.admin.post(path, &Value::Null);
    let refused = post("/admin/policies/mixed/rollback").await.unwrap();
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
    assert!(refused.text().contains("`mine`"), "{}", refused.text());
    let back = post("/admin/policies/mine/rollback").await.unwrap();
    assert_eq!(back.status, StatusCode::OK, "{}", back.text());
    mixed.all_by("w0").await;
    assert_eq!(mixed.policy("mixed").await["version"], first);
    assert_eq!(traffic.end().await, 0, "failed requests");
}

#[tokio::test]
async fn a_filter_keeps_who_passes_and_where_no_one_does_is_ignored_or_rejects() {
    let scorers = "scorers = [{ policy = \"mine\" }]";
    let only = |zone: &str, strict: bool| {
        format!("{{ filters = [{{ label = \"zone\", is = \"{zone}\", strict = {strict} }}], {scorers} }}")
    };
    let mixed = Mixed::start(&[("mine", favours(2, 1).unwrap())], &only("us", true)).await;
    mixed.all_by("w2").await;
    mixed.configure(&only("eu", true), &route_all("mixed")).await;
    mixed.all_by("w0").await;
    mixed.configure(&only("asia", false), &route_all("mixed")).await;
    mixed.all_by("w2").await;
    let ignored = "conductor_pipeline_filters_ignored_total{policy=\"mixed\",filter=\"label zone is asia\"}";
    assert_eq!(mixed.metric(ignored).await, 8.0);

    mixed.configure(&only("asia", true), &route_all("mixed")).await;
    let answer = mixed
        .router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap();
    assert_eq!(
        answer.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        answer.text()
    );
    let error = answer.json().unwrap();
    assert!(
        error["error"]["message"]
            .to_string()
            .contains("label zone is asia"),
        "{error}"
    );
}

#[tokio::test]
async fn a_policy_that_is_no_scorer_is_refused_where_the_pipeline_names_it() {
    let mixed = Mixed::start(
        &[("mine", favours(1, 1).unwrap())],
        r#"{ scorers = [{ policy = "mine" }] }"#,
    )
    .await;
    let wrong = r#"{ scorers = [{ policy = "mine" }, { policy = "round-robin" }] }"#;
    let problems = mixed.try_configure(wrong, &route_all("mixed")).await;
    let text = std::fs::read_to_string(mixed.router.path("conductor.toml")).unwrap();
    let line = text
        .lines()
        .position(|line| line.contains("round-robin"))
        .unwrap();
    let column = text.lines().nth(line).unwrap().find("\"round-robin\"").unwrap();
    let problem = &problems[0];
    let place = (problem["line"].as_u64(), problem["column"].as_u64());
    assert_eq!(
        place,
        (Some(1 + line as u64), Some(1 + column as u64)),
        "{problems}"
    );
    assert!(
        problem["message"]
            .to_string()
            .contains("a pipeline has it as a scorer, and it is none"),
        "{problems}"
    );
    mixed.all_by("w1").await;
}

#[tokio::test]
async fn a_pipeline_is_a_shadow_and_a_canary_like_any_policy() {
    let pipeline = r#"{ scorers = [{ policy = "mine" }], pick = "p2c" }"#;
    let mixed = Mixed::start(&[("mine", favours(1, 1).unwrap())], pipeline).await;
    let shadow =
        "[[routes]]\npool = \"chat\"\npolicy = \"mine\"\nshadow = [\"mixed\"]\nshadow-sample = 1.0\n";
    mixed
        .configure(r#"{ scorers = [{ policy = "mine" }] }"#, shadow)
        .await;
    mixed.all_by("w1").await;
    mixed
        .router
        .admin_shows("/admin/trials", "the shadow agreed", |page| {
            page["shadows"][0]["policy"] == "mixed" && page["shadows"][0]["decisions"]["agreed"] == 8
        })
        .await;
    mixed.policy("mine (shadow)").await;

    let split =
        "[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\nsplit = { round-robin = 50, mixed = 50 }\n";
    mixed
        .configure(r#"{ scorers = [{ policy = "mine" }] }"#, split)
        .await;
    harness::eventually("the canary decides", || async {
        let body = chat("hi", false);
        let answer = mixed.router.client.post("/v1/chat/completions", &body).await;
        answer.unwrap().header("x-conductor-policy").starts_with("mixed@")
    })
    .await;
}

#[tokio::test]
async fn the_worked_example_of_the_page_works_as_described() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../host/docs/policies/pipelines.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("## A worked example").nth(1).unwrap();
    let lines = example.lines().skip_while(|line| line.is_empty());
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let example: String = lines
        .map(|line| format!("{}\n", line.trim_start_matches("    ")))
        .collect();
    // Every engine serves the adapter, so that the policy alone decides.
    let fleet = Fleet::start(3, |number, config| {
        fast(number, config);
        config.loras = vec!["sql-lora".to_owned()];
    });
    let fleet = fleet.await.unwrap();
    let example = fleet
        .engines
        .iter()
        .zip(1..)
        .fold(example, |text, (engine, number)| {
            text.replace(&format!("http://10.0.0.{number}:8000"), &engine.url())
        });
    let router = TestRouter::start(&example).await.unwrap();
    let mut of_adapter = Vec::new();
    let mut of_base = Vec::new();
    for (model, workers) in [("sql-lora", &mut of_adapter), ("mock", &mut of_base)] {
        for number in 0..24 {
            // A request that is still booked would count against its worker.
            harness::eventually("the workers are idle", || async {
                router.leases("").await.is_ok_and(|booked| booked == 0.0)
            })
            .await;
            let text = format!("question {number}");
            let body = json!({
                "model": model, "max_tokens": 2, "messages": [{ "role": "user", "content": text }],
            });
            let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
            workers.push(answer.header("x-conductor-worker").to_owned());
        }
    }
    assert!(of_adapter.iter().all(|worker| worker == "eu-1"), "{of_adapter:?}");
    assert!(
        of_base.iter().all(|worker| worker.starts_with("eu-")),
        "{of_base:?}"
    );
    assert!(of_base.contains(&"eu-2".to_owned()), "{of_base:?}");

    // Without the zone's workers there is no allowed candidate.
    let text = std::fs::read_to_string(router.path("conductor.toml")).unwrap();
    std::fs::write(
        router.path("conductor.toml"),
        text.replace("zone = \"eu\"", "zone = \"uk\""),
    )
    .unwrap();
    let reload = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    assert_eq!(reload.json().unwrap()["problems"], json!([]));
    let body = chat("hi", false);
    let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
    assert_eq!(
        answer.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn each_leg_of_a_split_request_is_placed_by_a_pipeline_of_its_own() {
    let fleet = SplitFleet::start(PdDialect::Nixl, (2, 2), |config| fast(0, config));
    let fleet = fleet.await.unwrap();
    let pool = fleet.pool_toml("chat", "");
    let router = TestRouter::start(&format!("{pool}{}", route_all("round-robin")))
        .await
        .unwrap();
    router.save_policy("mine", &favours(1, 1).unwrap()).unwrap();
    router
        .admin_shows("/admin/policies", "it is loaded", |page| {
            page.to_string().contains("mine.wasm")
        })
        .await;
    let pipelines = "[policies.first]\npipeline = { scorers = [{ policy = \"mine\" }] }\n\
                     [policies.second]\npipeline = { scorers = [{ feature = \"load.decoding\", weight = -1 }] }\n";
    let route = "[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\nprefill-policy = \"first\"\ndecode-policy = \"second\"\n";
    router.save_config(&format!("{pipelines}{pool}{route}")).unwrap();
    let reload = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    assert_eq!(reload.json().unwrap()["problems"], json!([]));
    for number in 0..6 {
        let body = chat(&long_prompt(number), false);
        let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-prefill-worker"), "chat-p1");
        assert!(answer.header("x-conductor-worker").starts_with("chat-d"));
        assert!(answer.header("x-conductor-policy").starts_with("second@"));
    }
}

#[tokio::test]
async fn a_label_with_a_question_mark_is_a_mistake_of_a_filter_and_a_column_of_a_scorer() {
    let pipeline = r#"{ scorers = [{ policy = "lora-affinity" }] }"#;
    let mixed = Mixed::start(&[], pipeline).await;
    let odd = r#"{ filters = [{ label = "zone?", is = "eu" }], scorers = [{ policy = "lora-affinity" }] }"#;
    let problems = mixed.try_configure(odd, &route_all("mixed")).await;
    assert_eq!(problems[0]["code"], "invalid-name", "{problems}");
    let adapters =
        "[policies.lora-affinity]\nbuiltin = \"lora-affinity\"\nparams = { adapters = \"sql??\" }\n";
    mixed
        .configure(pipeline, &format!("{adapters}{}", route_all("mixed")))
        .await;
    answered(&mixed.router).await;
}
