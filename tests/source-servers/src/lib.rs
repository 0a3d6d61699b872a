//! Scripted servers of sources of workers, for tests: a DNS server, an `http_sd` server, and an API server of
//! Kubernetes with lists, watches and their failures.
//!
//! Each binds a port of its own on this machine, and answers on threads that end with the process.

mod dns;
mod http;
mod http_sd;
mod kube;

pub use dns::{DnsReply, DnsResponder};
pub use http_sd::HttpSd;
pub use kube::{KubeApi, endpoint_slice, pod};
