//! Ten hostile policies under live traffic, one after the other, each next to a run of the same length under a good
//! one.
//!
//!     cargo run --release -p e2e --example hostile_soak -- --seconds 10
//!
//! Two streams of requests go through one router: one whose policy turns hostile, and the others, whose policy does
//! not. A policy that is found faulty is followed by the last good version. The exit status is 1 unless every request
//! was answered with 200.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use harness::{Fleet, HOSTILE, Steady, Taken, TestRouter, sends_to};
use serde_json::{Value, json};

/// Plays hostile policies under load.
#[derive(Debug, Parser)]
struct Options {
    /// Duration of each run.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Requests a second whose policy is hostile.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Requests a second of the others.
    #[arg(long, default_value_t = 100)]
    others: u32,
    /// Time scale of the mock engines.
    #[arg(long, default_value_t = 10.0)]
    time_scale: f64,
}

struct Soak {
    router: TestRouter,
    length: Duration,
    hostile: Steady,
    others: Steady,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let fleet = Fleet::start(3, |number, config| {
        config.seed = number as u64;
        config.time_scale = options.time_scale;
    })
    .await?;
    let good = sends_to(2, 1)?;
    let soak = Soak::start(&options, &fleet, &good).await?;
    let mut failed = 0;
    let mut worst: f64 = 0.0;
    println!(
        "{} requests/s under the policy, {} others/s, {:?} each",
        options.rate, options.others, soak.length
    );
    for hostile in HOSTILE {
        soak.swap(&good).await?;
        let plain = soak.run().await;
        soak.swap(&hostile.component()?).await?;
        let under = soak.run().await;
        let mine = soak.mine().await?;
        let [ratio, of_others] = [0, 1].map(|at| p99(&under[at]) / p99(&plain[at]));
        worst = worst.max(of_others);
        println!("\n{}", hostile.name);
        println!("  plain          {}", plain[0]);
        println!("  hostile        {} (p99 x {ratio:.2})", under[0]);
        println!("  plain, others  {}", plain[1]);
        println!("  others         {} (p99 x {of_others:.2})", under[1]);
        let version = &mine["versions"][0];
        println!(
            "  calls {}, faults {}, circuit {}",
            version["calls"], version["faults"], version["circuit"]
        );
        failed += plain
            .iter()
            .chain(&under)
            .map(|taken| taken.failed)
            .sum::<usize>();
    }
    println!("\nfailed requests: {failed}; the others' p99 at worst x {worst:.2}");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn p99(taken: &Taken) -> f64 {
    taken.quantile(0.99).as_secs_f64()
}

impl Soak {
    async fn start(options: &Options, fleet: &Fleet, good: &[u8]) -> Result<Self> {
        let workers = format!("[log]\nlevel = \"off\"\n\n{}", fleet.workers_toml());
        let others = "[[routes]]\nmatch = { header = { x-others = \"1\" } }\npool = \"chat\"\npolicy = \"round-robin\"\n";
        let router = TestRouter::start(&format!("{workers}{others}")).await?;
        router.save_policy("mine", good)?;
        router
            .admin_shows("/admin/policies", "the policy is loaded", |page| {
                page.to_string().contains("\"mine\"")
            })
            .await;
        router.save_config(&format!(
            "{workers}{others}[[routes]]\npool = \"chat\"\npolicy = \"mine\"\n"
        ))?;
        router
            .admin_shows("/admin/config", "it decides", |page| page["generation"] == 2)
            .await;
        let messages = json!([{ "role": "user", "content": "Where does this go?" }]);
        let hostile = Steady {
            client: router.client.clone(),
            body: json!({ "model": "mock", "max_tokens": 4, "messages": messages }),
            headers: vec![],
            rate: options.rate,
        };
        let others = Steady {
            headers: vec![("x-others", "1")],
            rate: options.others,
            ..hostile.clone()
        };
        Ok(Self {
            router,
            length: Duration::try_from_secs_f64(options.seconds).context("--seconds")?,
            hostile,
            others,
        })
    }

    /// Returns the results of the requests under the policy, and of the others.
    async fn run(&self) -> [Taken; 2] {
        let (hostile, others) = tokio::join!(self.hostile.run(self.length), self.others.run(self.length));
        [hostile, others]
    }

    async fn mine(&self) -> Result<Value> {
        let page = self.router.admin("/admin/policies").await?;
        let policies = page["policies"].as_array().into_iter().flatten();
        let mut named = policies.filter(|policy| policy["name"] == "mine");
        named.next().cloned().context("the policy is there")
    }

    /// Activates these bytes; the answer to a reload request comes after the reload.
    async fn swap(&self, bytes: &[u8]) -> Result<()> {
        self.router.save_policy("mine", bytes)?;
        let reload = self.router.admin.post("/admin/reload", &Value::Null).await?;
        ensure!(reload.status.is_success(), "{}", reload.text());
        let mine = self.mine().await?;
        ensure!(mine["problem"].is_null(), "{mine}");
        Ok(())
    }
}
