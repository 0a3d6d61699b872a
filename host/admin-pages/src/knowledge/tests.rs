//! Claims on the log of warnings and on their texts.

use super::log::{Line, WarningLog};
use super::*;

fn warning(count: u64) -> Vec<Warning> {
    vec![Warning {
        cause: "tokenize-timeouts",
        message: String::new(),
        fix: "",
        count,
    }]
}

struct Scenario {
    log: WarningLog,
    began: Instant,
}

impl Scenario {
    /// Returns the additional failures of each warning that is logged at that second, and the number of those that are
    /// cured.
    fn at(&mut self, second: u64, warnings: &Vec<Warning>) -> (Vec<u64>, usize) {
        let now = self.began + Duration::from_secs(second);
        let lines = self.log.look([("chat", warnings)].into_iter(), now);
        let more = |line: &Line| match line {
            Line::Missing { more, .. } => Some(*more),
            Line::Cured { .. } => None,
        };
        let missing: Vec<u64> = lines.iter().filter_map(more).collect();
        let cured = lines.len() - missing.len();
        (missing, cured)
    }
}

fn scenario() -> Scenario {
    Scenario {
        log: WarningLog::default(),
        began: Instant::now(),
    }
}

#[test]
fn a_warning_is_logged_at_once_and_then_at_most_once_a_minute_with_what_was_held_back() {
    let mut scenario = scenario();
    assert_eq!(scenario.at(0, &warning(1)), (vec![1], 0));
    for second in 1..60 {
        assert_eq!(scenario.at(second, &warning(1 + second)), (vec![], 0));
    }
    assert_eq!(scenario.at(60, &warning(111)), (vec![110], 0));
    assert_eq!(scenario.at(61, &warning(112)), (vec![], 0));
    assert_eq!(
        scenario.at(200, &warning(90)),
        (vec![0], 0),
        "fewer is news as well"
    );
    assert_eq!(scenario.at(300, &warning(90)), (vec![], 0), "nothing new to say");
}

#[test]
fn a_cure_is_logged_once_and_what_comes_and_goes_is_not_logged_more_often() {
    let mut scenario = scenario();
    assert_eq!(scenario.at(0, &warning(1)), (vec![1], 0));
    for second in 1..60 {
        let warnings = if second % 2 == 0 { warning(second) } else { vec![] };
        assert_eq!(scenario.at(second, &warnings), (vec![], 0));
    }
    assert_eq!(scenario.at(60, &vec![]), (vec![], 1));
    assert_eq!(scenario.at(61, &vec![]), (vec![], 0));
    assert_eq!(scenario.at(62, &warning(5)), (vec![5], 0));
}

#[test]
fn a_warning_names_a_few_workers_and_counts_the_others() {
    let names: Vec<String> = (0..20).map(|number| format!("w{number}")).collect();
    let workers: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Some("refused")))
        .collect();
    let warning = concerned("no-kv-events", "nothing", &workers, "start them").unwrap();
    assert_eq!(
        warning.message,
        "nothing (w0, w1, w2, w3, w4, w5, w6, w7 and 12 more): refused"
    );
    assert_eq!(warning.count, 20);
    assert_eq!(concerned("no-kv-events", "nothing", &[], "start them"), None);
}
