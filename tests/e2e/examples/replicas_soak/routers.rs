//! Processes of the routers.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use bytes::Bytes;
use harness::{Client, Fleet, eventually_ok, route_all, sends_to};
use http::Method;
use serde_json::Value;
use tempfile::TempDir;

/// Routers of the fleet.
pub(crate) const COUNT: usize = 3;

/// A router.
pub(crate) struct Router {
    program: PathBuf,
    folder: TempDir,
    child: Option<Child>,
    pub(crate) address: String,
    pub(crate) admin: Client,
}

/// All routers.
pub(crate) struct Routers(pub(crate) Vec<Router>);

impl Routers {
    /// Starts the routers, each with two versions of the policy `mine`.
    pub(crate) async fn start(program: &Path, nats: u16, engines: &Fleet) -> Result<Self> {
        let mut routers = Vec::new();
        for number in 0..COUNT {
            routers.push(Router::new(program, number, nats, engines)?);
        }
        let mut routers = Self(routers);
        for router in &mut routers.0 {
            router.policy(&sends_to(0, 1)?)?;
            router.start()?;
        }
        for router in &routers.0 {
            router.ready().await;
            let first = router.mine("the first version is loaded", |mine| mine["sha256"].is_string());
            let first = first.await["sha256"].clone();
            router.policy(&sends_to(1, 2)?)?;
            router
                .mine("the second version is active", |mine| {
                    mine["sha256"].is_string() && mine["sha256"] != first
                })
                .await;
        }
        Ok(routers)
    }

    /// Returns the addresses for clients.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.0.iter().map(|router| router.address.clone()).collect()
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Router {
    fn new(program: &Path, number: usize, nats: u16, engines: &Fleet) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("policies"))?;
        fs::write(folder.path().join("key"), "secret\n")?;
        let (port, admin) = (free_port()?, free_port()?);
        let text = format!(
            "policy-dir = \"policies\"\n[server]\nlisten = \"127.0.0.1:{port}\"\nadmin-listen = \"127.0.0.1:{admin}\"\n\
             admin-api-key = {{ file = \"key\" }}\n\
             [replicas]\nservers = [\"nats://127.0.0.1:{nats}\"]\nname = \"router-{number}\"\n\n{}{}",
            engines.workers_toml(),
            route_all("least-request")
        );
        fs::write(folder.path().join("conductor.toml"), text)?;
        Ok(Self {
            program: fs::canonicalize(program).context("the router's program")?,
            folder,
            child: None,
            address: format!("http://127.0.0.1:{port}"),
            admin: Client::new(format!("http://127.0.0.1:{admin}")),
        })
    }

    /// Starts the process.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.folder.path().join("log"))?;
        let child = Command::new(&self.program)
            .args(["--config", "conductor.toml"])
            .current_dir(self.folder.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .context("start a router")?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills the process, or ends it with a drain.
    pub(crate) fn end(&mut self, kills: bool) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        if kills {
            child.kill()?;
        } else {
            let id = child.id().to_string();
            Command::new("kill").args(["-TERM", &id]).status()?;
        }
        child.wait()?;
        Ok(())
    }

    /// Waits until the router is ready.
    pub(crate) async fn ready(&self) {
        let client = Client::new(self.address.clone());
        eventually_ok("the router is ready", || async {
            let answer = client.get("/readyz").await;
            let answer = answer.map_err(|error| format!("{error:#}"))?;
            if answer.status.is_success() {
                Ok(())
            } else {
                Err(answer.text())
            }
        })
        .await;
        harness::workers_checked(&self.admin).await;
    }

    fn policy(&self, bytes: &[u8]) -> Result<()> {
        let path = self.folder.path().join("policies/mine.wasm");
        let fresh = path.with_extension("saving");
        fs::write(&fresh, bytes)?;
        Ok(fs::rename(fresh, path)?)
    }

    /// Returns an admin page.
    pub(crate) async fn page(&self, path: &str) -> Result<Value> {
        let answer = self
            .admin
            .stream(Method::GET, path, &[("x-api-key", "secret")], Bytes::new());
        answer.await?.whole().await?.json()
    }

    /// Waits until the policy `mine` satisfies `look`, and returns it.
    pub(crate) async fn mine(&self, what: &str, look: impl Fn(&Value) -> bool) -> Value {
        eventually_ok(what, || async {
            let page = self.page("/admin/policies").await;
            let page = page.map_err(|error| format!("{error:#}"))?;
            let mut policies = page["policies"].as_array().into_iter().flatten();
            let mine = policies.find(|policy| policy["name"] == "mine");
            match mine {
                Some(mine) if look(mine) => Ok(mine.clone()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Calls an action of the policy `mine`. Returns whether it was made.
    pub(crate) async fn act(&self, action: &str) -> Result<bool> {
        let path = format!("/admin/policies/mine/{action}");
        let sent = self
            .admin
            .stream(Method::POST, &path, &[("x-api-key", "secret")], Bytes::new());
        Ok(sent.await?.whole().await?.status.is_success())
    }

    /// Returns the requests in flight at all workers, of all routers, as this one counts them.
    pub(crate) async fn known_requests(&self) -> Result<u64> {
        let page = self.page("/status").await?;
        let workers = page["pools"][0]["workers"].as_array().context("the workers")?;
        Ok(workers
            .iter()
            .filter_map(|worker| worker["load"]["requests"].as_u64())
            .sum())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
