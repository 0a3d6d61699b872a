//! Kubernetes: lists, watches and their failures.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use source_servers::{KubeApi, endpoint_slice, pod};
use worker_sources::{
    Bearer, KubeObjects, KubeSource, ServerSource, SourceKind, SourceStatus, WorkerSources,
};

use super::{eventually, fails, finds, names, report, run};

fn kind(api: &KubeApi, bearer: Bearer, objects: KubeObjects) -> SourceKind {
    SourceKind::Kubernetes(KubeSource {
        server: ServerSource {
            url: api.url(),
            bearer,
            ca: None,
        },
        namespace: "prod".to_owned(),
        objects,
        port: None,
    })
}

fn service(api: &KubeApi) -> Arc<WorkerSources> {
    let objects = KubeObjects::Service("vllm".to_owned());
    run(kind(api, Bearer::None, objects))
}

/// Starts an API server with three slices, and a source that has found them.
fn three() -> (KubeApi, Arc<WorkerSources>) {
    let api = KubeApi::start().unwrap();
    for number in 1..=3 {
        let address = format!("10.0.0.{number}");
        api.put(endpoint_slice(&format!("s{number}"), &[&address], 8000));
    }
    let sources = service(&api);
    finds(&sources, &["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]);
    eventually("it watches", || api.counts().1 > 0);
    (api, sources)
}

#[test]
fn a_list_in_pages_is_one_answer() {
    let api = KubeApi::start().unwrap();
    for number in 0..35 {
        let address = format!("10.0.0.{number}");
        api.put(endpoint_slice(&format!("s{number}"), &[&address], 8000));
    }
    let sources = service(&api);
    eventually("all workers", || report(&sources).workers == 35);
    assert_eq!(api.counts().0, 4);
    let first = &api.paths()[0];
    let expected = "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?labelSelector=\
                    kubernetes%2Eio%2Fservice%2Dname%3Dvllm&limit=50";
    assert_eq!(first, expected);
}

#[test]
fn a_watch_brings_changes_without_another_list() {
    let (api, sources) = three();
    api.put(endpoint_slice("s4", &["10.0.0.4"], 8000));
    finds(
        &sources,
        &["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"],
    );
    api.repeat_last();
    api.put(endpoint_slice("s1", &["10.0.0.9"], 8000));
    api.delete("s2");
    finds(&sources, &["10.0.0.3:8000", "10.0.0.4:8000", "10.0.0.9:8000"]);
    assert_eq!(api.counts(), (1, 1));
}

#[test]
fn a_watch_goes_on_from_the_version_of_the_last_bookmark() {
    let (api, _sources) = three();
    api.bookmark();
    eventually("the bookmark is sent", || api.sent() == 4);
    // The end is read after it.
    api.end_watches();
    eventually("another watch", || api.counts().1 == 2);
    let last = api.paths().pop().unwrap();
    assert!(last.ends_with("&resourceVersion=4"), "{last}");
    assert_eq!(api.counts().0, 1);
}

#[test]
fn an_expired_version_leads_to_a_new_list_and_no_worker_is_lost() {
    let (api, sources) = three();
    api.expire();
    eventually("another list", || api.counts().0 == 2);
    eventually("another watch", || api.counts().1 >= 2);
    assert_eq!(report(&sources).workers, 3);
    // The same while no watch is open: the next one is refused.
    api.fail_with(Some(503));
    fails(&sources, "503");
    api.expire();
    api.put(endpoint_slice("s4", &["10.0.0.4"], 8000));
    api.fail_with(None);
    eventually("four workers", || report(&sources).workers == 4);
}

#[test]
fn a_line_that_is_cut_in_its_middle_is_repeated_by_the_next_watch() {
    let (api, sources) = three();
    api.cut_next_line();
    api.put(endpoint_slice("s4", &["10.0.0.4"], 8000));
    eventually("four workers", || report(&sources).workers == 4);
    let (lists, watches) = api.counts();
    assert_eq!((lists, watches >= 2), (1, true));
}

#[test]
fn a_list_that_is_empty_by_mistake_is_doubted_and_listed_again() {
    let (api, sources) = three();
    api.empty_lists(2);
    api.expire();
    eventually("three lists after the first", || api.counts().0 >= 4);
    eventually("no doubt", || report(&sources).doubted == 0);
    assert_eq!(names(&sources).len(), 3);
}

#[test]
fn workers_that_are_all_gone_go_once_lists_confirm_it() {
    let (api, sources) = three();
    for name in ["s1", "s2", "s3"] {
        api.delete(name);
    }
    finds(&sources, &[]);
    assert!(api.counts().0 >= 3, "{:?}", api.counts());
}

#[test]
fn a_token_that_is_rotated_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let api = KubeApi::start().unwrap();
    api.require("first");
    api.put(endpoint_slice("s1", &["10.0.0.1"], 8000));
    let objects = KubeObjects::Service("vllm".to_owned());
    let sources = run(kind(&api, Bearer::File(token.clone()), objects));
    finds(&sources, &["10.0.0.1:8000"]);
    api.require("second");
    fails(&sources, "401");
    assert_eq!(report(&sources).workers, 1);
    std::fs::write(&token, "second").unwrap();
    eventually("it recovers", || report(&sources).state == SourceStatus::Current);
    api.put(endpoint_slice("s2", &["10.0.0.2"], 8000));
    finds(&sources, &["10.0.0.1:8000", "10.0.0.2:8000"]);
}

/// Returns TLS settings of a server on this machine, and its certificate.
fn certificate() -> (ServerConfig, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (config, cert.pem())
}

#[test]
fn authorities_that_are_rotated_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    let (first, second) = (certificate(), certificate());
    std::fs::write(&ca, first.1).unwrap();
    let api = KubeApi::start().unwrap();
    api.secure(first.0);
    api.put(endpoint_slice("s1", &["10.0.0.1"], 8000));
    let SourceKind::Kubernetes(mut source) =
        kind(&api, Bearer::None, KubeObjects::Service("vllm".to_owned()))
    else {
        panic!("of Kubernetes")
    };
    source.server.ca = Some(ca.clone());
    let sources = run(SourceKind::Kubernetes(source));
    finds(&sources, &["10.0.0.1:8000"]);
    eventually("it watches", || api.counts().1 > 0);
    api.secure(second.0);
    fails(&sources, "TLS");
    assert_eq!(report(&sources).workers, 1);
    std::fs::write(&ca, second.1).unwrap();
    eventually("it recovers", || report(&sources).state == SourceStatus::Current);
    api.put(endpoint_slice("s2", &["10.0.0.2"], 8000));
    finds(&sources, &["10.0.0.1:8000", "10.0.0.2:8000"]);
}

#[test]
fn pods_are_found_by_their_labels() {
    let api = KubeApi::start().unwrap();
    api.put(pod("vllm-0", "10.0.0.1", 8000));
    let objects = KubeObjects::Pods("app=vllm,tier in (gold)".to_owned());
    let sources = run(kind(&api, Bearer::None, objects));
    finds(&sources, &["10.0.0.1:8000"]);
    let first = &api.paths()[0];
    assert!(
        first.starts_with("/api/v1/namespaces/prod/pods?labelSelector=app%3Dvllm%2Ctier%20in%20%28gold%29"),
        "{first}"
    );
    let found = sources.workers([("s", "main")]);
    assert_eq!(found[0].workers[0].labels["pod"], "vllm-0");
}
