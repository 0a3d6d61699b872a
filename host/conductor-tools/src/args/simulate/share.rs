//! Values of the options about routers that share their loads.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};

/// Arguments of the exchange between routers.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Router")]
pub struct ShareArgs {
    /// Knowledge that routers share: `none`, `loads` (requests in flight at each worker), `queue` (loads, and the
    /// requests held for each worker), or `all` (loads, queue, and samples of the workers' costs, as the server
    /// does).
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ShareKind::None)]
    pub share: ShareKind,

    /// Shortest time between two messages of a router, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub share_ms: u64,

    /// Delay of the routers' messages, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub share_lag_ms: u64,

    /// Share of the routers' messages that each receiver loses, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub share_loss: f64,

    /// Expect the prompts of other routers where and when those do: at a pair's decode worker once its prompt is
    /// computed. The server does not do that: this is the upper bound of its gain.
    #[arg(long)]
    pub share_expected: bool,

    /// Choice of the router of a request: `turn`, or `session` (one router for all requests of a session).
    #[arg(long, value_name = "CHOICE", value_enum, default_value_t = BalanceKind::Turn)]
    pub balance: BalanceKind,

    /// Time without messages as ROUTER@FROM-TO or all@FROM-TO, in seconds after the first arrival: `1@600-900`.
    /// Routers count from 0. May be given several times.
    #[arg(long = "cut", value_name = "ROUTER@S-S")]
    #[serde(rename = "cut")]
    pub cuts: Vec<RouterCut>,

    /// Death of a router as ROUTER@S, in seconds after the first arrival: `1@600`. Its requests are lost, and later
    /// ones go to the next router. Routers count from 0. May be given several times.
    #[arg(long = "router-fail", value_name = "ROUTER@S")]
    #[serde(rename = "router-fail")]
    pub deaths: Vec<RouterEnd>,
}

/// `--router-fail`. The time is in seconds after the first arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterEnd {
    /// Number of the router, from 0.
    pub router: usize,
    /// Time of its death.
    pub at_s: f64,
}

/// Error of a `--router-fail`.
#[derive(Debug, thiserror::Error)]
#[error("it is a router's number and the second of its death, such as `1@600`")]
pub struct RouterEndError;

impl FromStr for RouterEnd {
    type Err = RouterEndError;

    fn from_str(text: &str) -> Result<Self, RouterEndError> {
        let read = || {
            let (router, at) = text.split_once('@')?;
            let (router, at_s) = (router.parse().ok()?, at.parse().ok()?);
            (0.0..1e7).contains(&at_s).then_some(Self { router, at_s })
        };
        read().ok_or(RouterEndError)
    }
}

impl fmt::Display for RouterEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.router, self.at_s)
    }
}

impl Serialize for RouterEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `--share`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareKind {
    /// Nothing.
    None,
    /// Requests in flight.
    Loads,
    /// Requests in flight, and held requests.
    Queue,
    /// State that the server shares: also the samples of the workers' costs.
    All,
}

/// `--balance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceKind {
    /// Routers in turn.
    Turn,
    /// The same router for all requests of a session; in turn without one.
    Session,
}

/// `--cut`. Times are seconds after the first arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterCut {
    /// Number of the router, from 0; `None` for all.
    pub router: Option<usize>,
    /// Begin.
    pub from_s: f64,
    /// End.
    pub until_s: f64,
}

/// Error of a `--cut`.
#[derive(Debug, thiserror::Error)]
#[error("it is a router's number or `all`, and the seconds of its begin and end, such as `1@600-900`")]
pub struct CutError;

impl FromStr for RouterCut {
    type Err = CutError;

    fn from_str(text: &str) -> Result<Self, CutError> {
        let seconds = |text: &str| {
            let seconds = text.parse().ok();
            seconds.filter(|seconds| (0.0..1e7).contains(seconds))
        };
        let read = || {
            let (router, times) = text.split_once('@')?;
            let (from, until) = times.split_once('-')?;
            let router = match router {
                "all" => None,
                number => Some(number.parse().ok()?),
            };
            let (from_s, until_s) = (seconds(from)?, seconds(until)?);
            (from_s < until_s).then_some(Self {
                router,
                from_s,
                until_s,
            })
        };
        read().ok_or(CutError)
    }
}

impl fmt::Display for RouterCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.router {
            Some(router) => write!(f, "{router}@{}-{}", self.from_s, self.until_s),
            None => write!(f, "all@{}-{}", self.from_s, self.until_s),
        }
    }
}

impl Serialize for RouterCut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_shown_as_they_were_typed() {
        let death = "1@600.5".parse::<RouterEnd>().ok().map(|death| death.to_string());
        assert_eq!(death.as_deref(), Some("1@600.5"));
        for text in ["", "1", "all@5", "1@5-6", "-1@5", "1@nan", "1@1e9"] {
            assert!(text.parse::<RouterEnd>().is_err(), "{text}");
        }
    }

    #[test]
    fn cuts_are_shown_as_they_were_typed() {
        for text in ["1@600-900", "all@0-0.5"] {
            let cut = text.parse::<RouterCut>().ok().map(|cut| cut.to_string());
            assert_eq!(cut.as_deref(), Some(text));
        }
        for text in [
            "", "1", "1@5", "1@9-5", "1@5-5", "x@1-2", "-1@1-2", "1@nan-5", "1@1-1e9",
        ] {
            assert!(text.parse::<RouterCut>().is_err(), "{text}");
        }
    }
}
