//! The router the binary starts, in the test's process, over a configuration file in a folder of its own.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use conductor::{App, ConfigSource, Readiness};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::poll::eventually_ok;

/// A running router. Dropping it stops it.
#[derive(Debug)]
pub struct TestRouter {
    folder: TempDir,
    /// Client of its public listener.
    pub client: Client,
    /// Client of its admin listener.
    pub admin: Client,
    /// Client of its indexer, where it has one.
    pub indexer: Option<Client>,
    /// Its readiness, which can end a drain.
    pub readiness: Readiness,
    shutdown: CancellationToken,
    task: Option<JoinHandle<conductor::Exit>>,
}

impl TestRouter {
    /// Starts a router on `toml`, which is completed with listeners on ports of their own and `policy-dir =
    /// "policies"`, and waits until each worker was reached or found to be unreachable.
    ///
    /// # Errors
    /// Where it does not start.
    pub async fn start(toml: &str) -> Result<Self> {
        let router = Self::start_at_once(toml).await?;
        workers_checked(&router.admin).await;
        Ok(router)
    }

    /// Starts a router whose workers are pending.
    ///
    /// # Errors
    /// Where it does not start.
    pub async fn start_at_once(toml: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("policies"))?;
        let file = folder.path().join("conductor.toml");
        fs::write(&file, complete(toml))?;
        let app = App::build(ConfigSource::File(file)).await?;
        let client = Client::new(format!("http://{}", app.addr()));
        let admin = Client::new(format!(
            "http://{}",
            app.admin_addr().context("an admin listener")?
        ));
        let indexer = app
            .indexer_addr()
            .map(|address| Client::new(format!("http://{address}")));
        let readiness = app.readiness();
        let shutdown = CancellationToken::new();
        let task = app.spawn(shutdown.clone());
        Ok(Self {
            folder,
            client,
            admin,
            indexer,
            readiness,
            shutdown,
            task: Some(task),
        })
    }

    /// Saves the configuration as an editor does: writes beside it and renames over it.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save_config(&self, toml: &str) -> Result<()> {
        self.save("conductor.toml", complete(toml).as_bytes())
    }

    /// Saves a policy into the policy folder, by rename.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save_policy(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.save(&format!("policies/{name}.wasm"), bytes)
    }

    /// Returns a path in the folder of the configuration.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Saves a file into the folder of the configuration, by rename.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let fresh = self.path(&format!("{name}.saving"));
        fs::write(&fresh, bytes)?;
        fs::rename(&fresh, self.path(name))?;
        Ok(())
    }

    /// Returns the JSON of an admin page.
    ///
    /// # Errors
    /// The page does not answer.
    pub async fn admin(&self, path: &str) -> Result<Value> {
        self.admin.get(path).await?.json()
    }

    /// Waits until an admin page satisfies `look`, and gives it.
    pub async fn admin_shows(&self, path: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        eventually_ok(what, || async {
            let page = self.admin(path).await.map_err(|error| format!("{error:#}"))?;
            if look(&page) {
                Ok(page)
            } else {
                Err(page.to_string())
            }
        })
        .await
    }

    /// Returns the sum of its metrics whose lines begin so. `None` where no line does.
    ///
    /// # Errors
    /// Where its metrics cannot be read.
    pub async fn metric(&self, series: &str) -> Result<Option<f64>> {
        let page = self.admin.get("/metrics").await?.text();
        let lines = page.lines().filter(|line| line.starts_with(series));
        let number = |line: &str| line.rsplit(' ').next().unwrap_or_default().parse::<f64>();
        let numbers = lines.map(number).collect::<Result<Vec<_>, _>>()?;
        Ok((!numbers.is_empty()).then(|| numbers.iter().sum()))
    }

    /// Returns the requests that are booked at workers whose names begin so, by the router's own account.
    ///
    /// # Errors
    /// Where its metrics cannot be read.
    pub async fn leases(&self, workers: &str) -> Result<f64> {
        let series = format!("conductor_worker_requests_in_flight{{worker=\"{workers}");
        let booked = self.metric(&series).await?;
        booked.with_context(|| format!("no worker is called {workers}.."))
    }

    /// Stops it as SIGTERM does, and returns its exit.
    ///
    /// # Errors
    /// Where its task failed.
    pub async fn stop(mut self) -> Result<conductor::Exit> {
        self.shutdown.cancel();
        let task = self.task.take().context("it was running")?;
        Ok(task.await?)
    }
}

impl Drop for TestRouter {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Waits until each worker was reached or found to be unreachable, and its models are known, as `/status` shows it to
/// this client. A check without an answer in time is repeated: this process may have stalled. Pools must have a model
/// list: without one (`model-list.path` is `off`) it fails after its time.
pub async fn workers_checked(client: &Client) {
    let all_checked = async || {
        let page = client.get("/status").await.and_then(|answer| answer.json());
        let page: Value = page.map_err(|error| format!("{error:#}"))?;
        let pools = page["pools"].as_array().into_iter().flatten();
        let mut workers = pools.flat_map(|pool| pool["workers"].as_array().into_iter().flatten());
        match workers.find(|worker| !is_checked(worker)) {
            Some(worker) => Err(worker.to_string()),
            None => Ok(()),
        }
    };
    eventually_ok("every worker was checked once", all_checked).await;
}

/// Returns `true` if the first queries of a worker on `/status` have ended, by an answer or an error.
fn is_checked(worker: &Value) -> bool {
    // The errors of queries that ended without an answer name the time "within" which none came.
    let is_late = |error: &Value| error.as_str().is_some_and(|error| error.contains(" within "));
    if worker["checked"] == false || worker["health"] == "pending" && is_late(&worker["health_reason"]) {
        return false;
    }
    let models = &worker["models"];
    let has_answered = !(models["error"].is_null() || is_late(&models["error"]));
    !models["configured"].is_null() || !models["listed"].is_null() || has_answered
}

fn complete(toml: &str) -> String {
    format!(
        "policy-dir = \"policies\"\n[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\ndrain-timeout = \"1m\"\n{toml}"
    )
}
