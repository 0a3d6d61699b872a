//! Values of `conductor simulate`'s options. They are shown as they were typed.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Serialize, Serializer};
use simulator::FetchRule;

/// Largest error of predicted costs: one request in six is off by a factor of 20.
const WIDEST_SIGMA: f64 = 3.0;

/// `--costs`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Costs {
    /// Learned by the server's models.
    Learned,
    /// Exact, by the cluster's profile.
    Exact,
    /// Exact with errors: the standard deviation of their logarithm.
    Wrong(f64),
}

/// `--fetch`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fetch(pub FetchRule);

/// `--knowledge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnowledgeKind {
    /// Events of the engines.
    Events,
    /// Requests sent to a worker in the last two minutes.
    Assumed,
    /// Nothing.
    None,
}

/// `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// A next turn as long after the answer before it as recorded.
    AfterAnswers,
    /// All at their recorded times, also before the simulated answer that they repeat.
    Recorded,
}

/// `--order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderKind {
    /// First come, first served.
    Fifo,
    /// Shortest first.
    Shortest,
    /// Least left first: a shorter prompt interrupts a longer one between two steps.
    ShortestLeft,
    /// Shortest first, unless another would miss --ttft-limit-s; those that miss it anyway go last.
    SlackGuarded,
}

/// `--profile`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileName {
    /// LLaMA3-70B on 8 A800, of Mooncake's paper.
    Paper,
    /// Dynamo's mocker.
    Mocker,
    /// Fitted to a decision log.
    Log,
    /// File with a fitted profile.
    File(PathBuf),
}

/// `--fail`. Times are seconds after the first arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outage {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Time of the failure.
    pub at_s: f64,
    /// Time of the return, if any.
    pub back_s: Option<f64>,
}

/// Parse error of a value.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// Of `--costs`.
    #[error(
        "it is `learnt`, `exact`, or `wrong:SIGMA` with a SIGMA from 0 to {WIDEST_SIGMA}, such as `wrong:0.3`"
    )]
    Costs,
    /// Of `--fetch`.
    #[error("it is `off`, `cheapest`, or a ratio of at least 1")]
    Fetch,
    /// Of `--fail`.
    #[error(
        "it is a worker's number and the seconds at which it fails and, if ever, is back, such as `3@600-900` or `3@600`"
    )]
    Outage,
}

impl FromStr for Costs {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "learnt" => Ok(Self::Learned),
            "exact" => Ok(Self::Exact),
            wrong => {
                let sigma = wrong.strip_prefix("wrong:").and_then(|sigma| sigma.parse().ok());
                let sigma = sigma.filter(|sigma| (0.0..=WIDEST_SIGMA).contains(sigma));
                sigma.map(Self::Wrong).ok_or(ValueError::Costs)
            }
        }
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Learned => f.write_str("learnt"),
            Self::Exact => f.write_str("exact"),
            Self::Wrong(sigma) => write!(f, "wrong:{sigma}"),
        }
    }
}

impl FromStr for Fetch {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self(FetchRule::Off)),
            "cheapest" => Ok(Self(FetchRule::Cheapest)),
            ratio => {
                let ratio = ratio.parse().ok().filter(|ratio: &f64| *ratio >= 1.0);
                ratio
                    .map(|ratio| Self(FetchRule::Ratio(ratio)))
                    .ok_or(ValueError::Fetch)
            }
        }
    }
}

impl fmt::Display for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FetchRule::Off => f.write_str("off"),
            FetchRule::Cheapest => f.write_str("cheapest"),
            FetchRule::Ratio(ratio) => write!(f, "{ratio}"),
        }
    }
}

impl FromStr for ProfileName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "paper" => Self::Paper,
            "mocker" => Self::Mocker,
            "log" => Self::Log,
            file => Self::File(file.into()),
        })
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper => f.write_str("paper"),
            Self::Mocker => f.write_str("mocker"),
            Self::Log => f.write_str("log"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for Outage {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let seconds = |text: &str| {
            let seconds = text.parse().ok();
            seconds.filter(|seconds| (0.0..1e7).contains(seconds))
        };
        let read = || {
            let (worker, times) = text.split_once('@')?;
            let (at, back) = match times.split_once('-') {
                Some((at, back)) => (at, Some(seconds(back)?)),
                None => (times, None),
            };
            let outage = Self {
                worker: worker.parse().ok()?,
                at_s: seconds(at)?,
                back_s: back,
            };
            outage
                .back_s
                .is_none_or(|back_s| back_s > outage.at_s)
                .then_some(outage)
        };
        read().ok_or(ValueError::Outage)
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.worker, self.at_s)?;
        self.back_s.map_or(Ok(()), |back_s| write!(f, "-{back_s}"))
    }
}

/// Formats the value like its argument.
macro_rules! serialize_as_typed {
    ($($value:ty),*) => {$(
        impl Serialize for $value {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialize_as_typed!(Costs, Fetch, ProfileName, Outage);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: FromStr + fmt::Display>(good: &[&str], bad: &[&str]) {
        for text in good {
            let value = text.parse::<T>().ok().map(|value| value.to_string());
            assert_eq!(value.as_deref(), Some(*text));
        }
        for text in bad {
            assert!(text.parse::<T>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_shown_as_they_were_typed() {
        let wrong = ["", "wrong", "wrong:", "wrong:-1", "wrong:nan", "wrong:4", "right"];
        check::<Costs>(&["learnt", "exact", "wrong:0.3", "wrong:0"], &wrong);
        check::<Fetch>(&["off", "cheapest", "1.5"], &["", "often", "0.9", "nan"]);
        check::<ProfileName>(&["paper", "mocker", "log", "my/own.json"], &[]);
        let bad = [
            "3", "3@", "@5", "3@9-5", "3@5-5", "x@5", "-1@5", "3@nan", "3@5-", "3@1e9",
        ];
        check::<Outage>(&["3@600-900", "0@0.5", "3@600"], &bad);
    }
}
