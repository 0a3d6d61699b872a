//! Metric families of all features, merged from the pages of several routers.
//!
//! A page has no family without series. So no single router shows all of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use harness::{SplitFleet, TestRouter, avoids_failed_workers, sends_to};
use http::StatusCode;
use mock_engine::PdDialect;

use crate::metrics::scrape;
use crate::metrics_page::{Family, Format, parse};
use crate::policy::Stage;
use crate::{chat, fast, fast_fleet, router_over};

type Families = BTreeMap<String, Family>;

/// Returns the families of all features.
pub(crate) async fn families() -> Families {
    let mut families = of_requests().await;
    for page in [of_policies().await, of_configuration().await] {
        for (name, family) in page {
            merge(&mut families, name, family);
        }
    }
    families
}

fn merge(families: &mut Families, name: String, family: Family) {
    match families.entry(name) {
        Entry::Vacant(free) => {
            free.insert(family);
        }
        Entry::Occupied(mut present) => {
            let of = |family: &Family| (family.kind.clone(), family.help.clone());
            assert_eq!(of(present.get()), of(&family), "{}", present.key());
            present.get_mut().samples.extend(family.samples);
        }
    }
}

async fn page(router: &TestRouter) -> Families {
    let page = scrape(router, "application/openmetrics-text").await;
    parse(&page, Format::OpenMetrics)
}

/// Returns the families of a router that has answered requests.
async fn of_requests() -> Families {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "ttft-queue").await;
    for stream in [false, true] {
        let answer = router
            .client
            .open("/v1/chat/completions", &chat("hello", stream))
            .await;
        answer.unwrap().whole().await.unwrap();
    }
    page(&router).await
}

/// Returns the families of a router whose policy was replaced, rolled back, and replaced by one that takes events.
async fn of_policies() -> Families {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    stage.swap(&sends_to(1, 2).unwrap()).await;
    let (status, body) = stage.post_action("rollback").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    stage.swap(&avoids_failed_workers().unwrap()).await;
    page(&stage.router).await
}

/// Returns the families that exist by configuration: those of clients, TLS, a memory limit, pairs, trials, a pipeline,
/// a store, and other routers, which need no bus for it.
async fn of_configuration() -> Families {
    let fleet = fast_fleet(1).await;
    let pair = SplitFleet::start(PdDialect::Nixl, (1, 1), |config| fast(0, config));
    let pair = pair.await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["router.test".to_owned()]).unwrap();
    let (certificate, key) = (
        file("server.crt", cert.pem()),
        file("server.key", signing_key.serialize_pem()),
    );
    let toml = format!(
        "memory-limit = \"64GiB\"\n\
         [server.tls]\ncert = {certificate:?}\nkey = {key:?}\n\
         [replicas]\nservers = [\"nats://127.0.0.1:1\"]\n\
         [clients.x]\nkey-sha256 = \"{}\"\n\
         [stores.cache]\nkv-events = \"tcp://127.0.0.1:1\"\npools = [\"chat\"]\n\
         [policies.mixed.pipeline]\n\
         filters = [{{ label = \"zone\", is = \"eu\" }}]\nscorers = [{{ policy = \"tier-weight\" }}]\n\
         [pools.chat]\nsse-keep-alive = \"10s\"\n{}{}\
         [[routes]]\npool = \"pairs\"\npolicy = \"round-robin\"\nmatch = {{ model = \"pairs\" }}\n\
         [[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n\
         split = {{ round-robin = 50, mixed = 50 }}\nshadow = [\"least-request\"]\n",
        "0".repeat(64),
        fleet.workers_toml(),
        pair.pool_toml("pairs", ""),
    );
    page(&TestRouter::start(&toml).await.unwrap()).await
}
