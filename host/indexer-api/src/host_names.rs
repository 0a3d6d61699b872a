//! Check of the `Host` header, against DNS rebinding.
//!
//! A web page may point a domain of its own at the loopback and then read from a listener there as its own site. The
//! browser names that domain in `Host`. A listener without a key therefore answers only to its own names.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderMap};
use axum::http::uri::Authority;

/// Host names of a loopback listener: those of the loopback, and those listed in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames(Box<[Box<str>]>);

impl HostNames {
    /// Creates the list: the loopback's names and `others`, without ports.
    #[must_use]
    pub fn with(others: &[String]) -> Self {
        Self(others.iter().map(|name| name.as_str().into()).collect())
    }

    /// Returns `true` if every `Host` of a request is listed, on any port. Browsers always send `Host`, so a request
    /// without it is allowed.
    #[must_use]
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        hosts.all(|host| host.to_str().is_ok_and(|host| self.allows(host)))
    }

    fn allows(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        // An authority may contain a user; no client sends one.
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = literal.parse::<IpAddr>() {
            return address.is_loopback() || self.lists(name) || self.lists(literal);
        }
        name.trim_end_matches('.').eq_ignore_ascii_case("localhost") || self.lists(name)
    }

    fn lists(&self, name: &str) -> bool {
        self.0.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, expected: bool) {
        let names = HostNames::with(&["router.internal".to_owned(), "10.0.0.7".to_owned()]);
        let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        assert_eq!(names.allow(&headers), expected, "{host}");
    }

    #[test]
    fn names_of_the_loopback_and_listed_ones_are_allowed() {
        for host in [
            "localhost",
            "LocalHost:8081",
            "localhost.:8081",
            "127.0.0.1",
            "127.1.2.3:8081",
            "[::1]:8081",
            "Router.Internal:8081",
            "10.0.0.7:8081",
        ] {
            check(host, true);
        }
        assert!(HostNames::default().allow(&HeaderMap::new()));
    }

    #[test]
    fn names_of_other_sites_are_not() {
        for host in [
            "rebound.example",
            "rebound.example:8081",
            "localhost.rebound.example",
            "127.0.0.1.rebound.example",
            "127.0.0.1@rebound.example",
            "10.0.0.8",
            "0.0.0.0:8081",
            "",
            "a, localhost",
        ] {
            check(host, false);
        }
        let twice = [(HOST, "localhost"), (HOST, "rebound.example")];
        let mut headers = HeaderMap::new();
        for (name, value) in twice {
            headers.append(name, value.parse().unwrap());
        }
        assert!(!HostNames::default().allow(&headers));
    }
}
