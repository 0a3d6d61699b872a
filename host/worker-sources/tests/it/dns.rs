//! DNS names.

use std::net::IpAddr;

use source_servers::{DnsReply, DnsResponder};
use worker_sources::{DnsServer, SourceKind, SourceStatus, WorkerSources};

use super::{eventually, fails, finds, report, run};

const NAME: &str = "engines.example.org";

fn addresses(texts: &[&str]) -> DnsReply {
    DnsReply::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn source(server: &DnsResponder) -> std::sync::Arc<WorkerSources> {
    run(SourceKind::Dns {
        name: NAME.to_owned(),
        port: 8000,
        server: DnsServer::At(server.address()),
    })
}

#[test]
fn the_addresses_of_a_name_are_workers_and_follow_its_changes() {
    let server = DnsResponder::start().unwrap();
    server.set(NAME, addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    let sources = source(&server);
    finds(&sources, &["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]);
    server.set(NAME, addresses(&["10.0.0.4", "10.0.0.2", "10.0.0.3"]));
    finds(&sources, &["10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"]);
    assert_eq!(report(&sources).state, SourceStatus::Current);
}

#[test]
fn a_name_with_ipv6_addresses_alone_is_resolved_too() {
    let server = DnsResponder::start().unwrap();
    server.set(NAME, addresses(&["fd00::1"]));
    finds(&source(&server), &["[fd00::1]:8000"]);
}

#[test]
fn an_answer_that_is_too_long_for_a_datagram_comes_over_tcp() {
    let server = DnsResponder::start().unwrap();
    let many: Vec<IpAddr> = (1..=120_u8).map(|last| IpAddr::from([10, 0, 0, last])).collect();
    server.set(NAME, DnsReply::Addresses(many));
    let sources = source(&server);
    eventually("all addresses", || report(&sources).workers == 120);
    assert!(server.over_tcp() > 0);
}

#[test]
fn a_failing_server_and_a_name_that_is_gone_keep_the_workers() {
    let server = DnsResponder::start().unwrap();
    server.set(NAME, addresses(&["10.0.0.1"]));
    let sources = source(&server);
    finds(&sources, &["10.0.0.1:8000"]);
    let replies = [
        DnsReply::Failure,
        DnsReply::NoSuchName,
        // An answer about IPv6 does not make up for the failure: it may be older, and is of the same machines.
        DnsReply::FailureOfIpv4(Vec::new()),
        DnsReply::FailureOfIpv4(vec!["fd00::1".parse().unwrap()]),
    ];
    for reply in replies {
        server.set(NAME, reply);
        fails(&sources, NAME);
        finds(&sources, &["10.0.0.1:8000"]);
        server.set(NAME, addresses(&["10.0.0.1"]));
        eventually("it recovers", || report(&sources).state == SourceStatus::Current);
    }
}

#[test]
fn a_name_without_addresses_loses_its_workers_once_it_is_repeated() {
    let server = DnsResponder::start().unwrap();
    server.set(NAME, addresses(&["10.0.0.1"]));
    let sources = source(&server);
    finds(&sources, &["10.0.0.1:8000"]);
    server.set(NAME, addresses(&[]));
    eventually("the answer is doubted", || report(&sources).doubted == 1);
    finds(&sources, &[]);
}

#[test]
fn service_records_give_hosts_and_ports() {
    let server = DnsResponder::start().unwrap();
    let services = vec![
        ("b.example.org.".to_owned(), 8001),
        ("a.example.org.".to_owned(), 8000),
    ];
    server.set("_vllm._tcp.example.org", DnsReply::Services(services));
    let sources = run(SourceKind::Srv {
        name: "_vllm._tcp.example.org".to_owned(),
        server: DnsServer::At(server.address()),
    });
    finds(&sources, &["a.example.org:8000", "b.example.org:8001"]);
    server.set("_vllm._tcp.example.org", DnsReply::Silence);
    let services = vec![
        ("a.example.org.".to_owned(), 8000),
        ("c.example.org.".to_owned(), 1),
    ];
    server.set("_vllm._tcp.example.org", DnsReply::Services(services));
    finds(&sources, &["a.example.org:8000", "c.example.org:1"]);
}
