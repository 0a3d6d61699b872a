//! Policy versions: bad ones are circuit-broken, good ones decide again, operators roll back and forth.

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

use crate::{chat, fast_fleet, router_over, worker_of};

/// A fleet of three workers, whose rows are `w0` to `w2`, under the policy `mine`.
pub(crate) struct Stage {
    fleet: Fleet,
    pub(crate) router: TestRouter,
}

impl Stage {
    /// Starts with these bytes as `mine`; `table` is the text of `[policies.mine]`.
    pub(crate) async fn start(table: &str, first: &[u8]) -> Self {
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

    /// Activates a configuration with this text of `[policies.mine]`.
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

    /// Returns the entry of `mine` in `/admin/policies`.
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

    /// Overwrites the policy, and waits until the new bytes are active.
    pub(crate) async fn swap(&self, bytes: &[u8]) -> Value {
        let before = self.mine().await["swaps"].clone();
        self.router.save_policy("mine", bytes).unwrap();
        self.shows("the swap is active", |mine| mine["swaps"] != before)
            .await
    }

    /// Returns the worker that answers a request.
    async fn worker(&self) -> String {
        worker_of(&self.router).await
    }

    /// Checks that the next requests are all answered by this worker.
    #[track_caller]
    fn all_by<'a>(&'a self, worker: &'a str) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..10 {
                assert_eq!(self.worker().await, worker, "{caller}");
            }
        }
    }

    /// Calls an action of the policy: `rollback` or `resume`.
    pub(crate) async fn post_action(&self, action: &str) -> (StatusCode, Value) {
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

/// Clients that send one request after the other.
struct Traffic {
    traffic_state: Arc<TrafficState>,
    clients: JoinSet<()>,
}

#[derive(Default)]
struct TrafficState {
    is_over: AtomicBool,
    answered: AtomicUsize,
    failed: AtomicUsize,
}

impl Traffic {
    fn start(client: &Client) -> Self {
        let traffic_state = Arc::<TrafficState>::default();
        let mut clients = JoinSet::new();
        for _ in 0..4 {
            let (client, traffic_state) = (client.clone(), Arc::clone(&traffic_state));
            clients.spawn(async move {
                while !traffic_state.is_over.load(Ordering::Relaxed) {
                    let answer = client.post("/v1/chat/completions", &chat("hi", false)).await;
                    let good = answer.is_ok_and(|answer| answer.status == StatusCode::OK);
                    let count = if good {
                        &traffic_state.answered
                    } else {
                        &traffic_state.failed
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self {
            traffic_state,
            clients,
        }
    }

    /// Waits for this many more answers.
    async fn goes_on(&self, answers: usize) {
        let before = self.traffic_state.answered.load(Ordering::Relaxed);
        harness::eventually("requests are answered", || async {
            self.traffic_state.answered.load(Ordering::Relaxed) >= before + answers
        })
        .await;
    }

    /// Ends it; requests that were not answered with 200.
    async fn end(self) -> usize {
        self.traffic_state.is_over.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        self.traffic_state.failed.load(Ordering::Relaxed)
    }
}
