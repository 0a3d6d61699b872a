//! Versions of policies: bad ones are not asked, good ones decide again, operators go back and forth.

mod events;
mod hostile;
mod pins;
mod pipeline;
mod rollback;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::{Client, Fleet, TestRouter, route_all};
use http::StatusCode;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{chat, fast_fleet, router_over};

/// A fleet of three workers, whose rows are `w0` to `w2`, under the policy `mine`.
struct Stage {
    fleet: Fleet,
    router: TestRouter,
}

impl Stage {
    /// With `mine` in force from these bytes; `table` is what `[policies.mine]` says.
    async fn start(table: &str, first: &[u8]) -> Self {
        let fleet = fast_fleet(3).await;
        let router = router_over(&fleet, "round-robin").await;
        let stage = Self { fleet, router };
        stage.router.save_policy("mine", first).unwrap();
        stage
            .shows("it is loaded", |mine| mine["sha256"].is_string())
            .await;
        stage.configure(table).await;
        stage
    }

    /// Puts a configuration in force whose `[policies.mine]` says this.
    async fn configure(&self, table: &str) {
        self.router.save_config(&self.config(table)).unwrap();
        let reload = self
            .router
            .admin
            .post("/admin/reload", &Value::Null)
            .await
            .unwrap();
        assert_eq!(
            reload.json().unwrap()["problems"],
            serde_json::json!([]),
            "{table}"
        );
    }

    fn config(&self, table: &str) -> String {
        format!(
            "[policies.mine]\n{table}\n\n{}{}",
            self.fleet.workers_toml(),
            route_all("mine")
        )
    }

    /// What `/admin/policies` says of `mine`.
    async fn mine(&self) -> Value {
        mine(&self.router.admin("/admin/policies").await.unwrap())
    }

    /// Waits until that satisfies `look`.
    async fn shows(&self, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        let page = self
            .router
            .admin_shows("/admin/policies", what, |page| look(&mine(page)));
        mine(&page.await)
    }

    /// Overwrites the policy, and waits until the new bytes are in force.
    async fn swap(&self, bytes: &[u8]) -> Value {
        let before = self.mine().await["swaps"].clone();
        self.router.save_policy("mine", bytes).unwrap();
        self.shows("the swap is in force", |mine| mine["swaps"] != before)
            .await
    }

    /// Who answers a request.
    async fn worker(&self) -> String {
        let answer = self
            .router
            .client
            .post("/v1/chat/completions", &chat("hi", false))
            .await
            .unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.header("x-conductor-worker").to_owned()
    }

    /// The next requests are all answered by this worker.
    #[track_caller]
    fn all_by<'a>(&'a self, worker: &'a str) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..10 {
                assert_eq!(self.worker().await, worker, "{caller}");
            }
        }
    }

    /// Asks for a page of the policy's: `rollback` or `resume`.
    async fn ask(&self, action: &str) -> (StatusCode, Value) {
        let path = format!("/admin/policies/mine/{action}");
        let answer = self.router.admin.post(&path, &Value::Null).await.unwrap();
        (answer.status, answer.json().unwrap())
    }

    async fn metric(&self, name: &str) -> f64 {
        let number = self.router.metric(name).await.unwrap();
        number.ok_or_else(|| format!("no {name}")).unwrap()
    }
}

fn mine(page: &Value) -> Value {
    let policies = page["policies"].as_array().into_iter().flatten();
    let mut named = policies.filter(|policy| policy["name"] == "mine");
    named.next().cloned().unwrap_or_default()
}

/// Clients that ask one request after the other.
struct Traffic {
    asked: Arc<Asked>,
    clients: JoinSet<()>,
}

#[derive(Default)]
struct Asked {
    is_over: AtomicBool,
    answered: AtomicUsize,
    failed: AtomicUsize,
}

impl Traffic {
    fn start(client: &Client) -> Self {
        let asked = Arc::<Asked>::default();
        let mut clients = JoinSet::new();
        for _ in 0..4 {
            let (client, asked) = (client.clone(), Arc::clone(&asked));
            clients.spawn(async move {
                while !asked.is_over.load(Ordering::Relaxed) {
                    let answer = client.post("/v1/chat/completions", &chat("hi", false)).await;
                    let good = answer.is_ok_and(|answer| answer.status == StatusCode::OK);
                    let count = if good { &asked.answered } else { &asked.failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { asked, clients }
    }

    /// Waits for so many more answers.
    async fn goes_on(&self, answers: usize) {
        let before = self.asked.answered.load(Ordering::Relaxed);
        harness::eventually("requests are answered", || async {
            self.asked.answered.load(Ordering::Relaxed) >= before + answers
        })
        .await;
    }

    /// Ends it; requests that were not answered with 200.
    async fn end(self) -> usize {
        self.asked.is_over.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        self.asked.failed.load(Ordering::Relaxed)
    }
}
