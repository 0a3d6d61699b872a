//! Valid and invalid descriptions, and `params` that match them or not.

use super::*;

fn described(name: &str, kind: &str, default: &str) -> parameters::Parameter {
    parameters::Parameter {
        name: name.to_owned(),
        kind: kind.to_owned(),
        default: default.to_owned(),
        unit: String::new(),
        least: f64::NAN,
        most: f64::NAN,
        choices: vec![],
        about: String::new(),
    }
}

/// Returns one parameter of each kind.
fn all() -> Vec<Parameter> {
    let described = vec![
        parameters::Parameter {
            unit: "ms".to_owned(),
            least: 0.0,
            most: 1_000.0,
            about: "How long it waits.".to_owned(),
            ..described("wait", "number", "5.5")
        },
        parameters::Parameter {
            least: 1.0,
            ..described("tries", "integer", "3")
        },
        described("sticky", "boolean", "false"),
        described("zone", "text", ""),
        parameters::Parameter {
            choices: vec!["least".to_owned(), "random".to_owned()],
            ..described("ties", "text", "\"least\"")
        },
        described("hosts", "list", "[]"),
        described("table", "weights", "{\"a\": 1}"),
    ];
    Parameter::read_all(described).expect("it can be")
}

#[test]
fn valid_parameters_are_accepted_and_other_text_is_left_to_the_policy() {
    for params in [
        r#"{"zone": "a"}"#,
        r#"{"zone": "", "wait": 0, "tries": 3.0, "sticky": true, "ties": "random", "hosts": [1, "a"], "table": 7}"#,
        r#"{"zone": "b", "wait": 1000, "tries": 9007199254740993}"#,
        // Left to `configure`.
        "no JSON",
    ] {
        assert_eq!(check(&all(), params), Ok(()), "{params}");
    }
}

#[test]
fn every_fault_is_reported_in_one_run() {
    let params =
        r#"{"wait": 1000.5, "tries": 1.5, "sticky": 1, "ties": "randm", "hosts": "a", "wiat": 2, "x": {}}"#;
    let faults = check(&all(), params).expect_err("nearly nothing fits");
    let found: Vec<_> = faults
        .faults
        .iter()
        .map(|fault| {
            (
                fault.name.as_str(),
                fault.place,
                fault.message.as_str(),
                fault.help.as_deref(),
            )
        })
        .collect();
    use ParamPlace::{Missing, Name, Value};
    let all = "the parameters are `wait`, `tries`, `sticky`, `zone`, `ties`, `hosts`, `table`";
    let expected = [
        ("hosts", Value, "`hosts` must be a list, not a text", None),
        (
            "sticky",
            Value,
            "`sticky` must be true or false, not a number",
            None,
        ),
        (
            "ties",
            Value,
            "`ties` must be one of `least`, `random`, not \"randm\"",
            Some("did you mean `random`?"),
        ),
        (
            "tries",
            Value,
            "`tries` must be a whole number of at least 1, not 1.5",
            None,
        ),
        (
            "wait",
            Value,
            "`wait` must be a number from 0 to 1000 (ms), not 1000.5",
            Some("`wait`: How long it waits."),
        ),
        (
            "wiat",
            Name,
            "unknown parameter `wiat`",
            Some("did you mean `wait`?"),
        ),
        ("x", Name, "unknown parameter `x`", Some(all)),
        (
            "zone",
            Missing,
            "the parameter `zone` must be given: a text",
            None,
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_default_that_is_a_bound_may_have_15_digits() {
    let share = |default, least, most| {
        let described = parameters::Parameter {
            least,
            most,
            ..described("share", "number", default)
        };
        Parameter::read_all(vec![described]).map(|read| read[0].default.clone())
    };
    let (third, two_thirds) = (1.0 / 3.0, 2.0 / 3.0);
    let above = share("6.66666666666667e-1", third, two_thirds);
    assert_eq!(above.unwrap(), Some(two_thirds.into()));
    let below = share("3.33333333333333e-1", third, two_thirds);
    assert_eq!(below.unwrap(), Some(third.into()));
    let within = share("6.66666666666666e-1", third, two_thirds);
    assert_eq!(within.unwrap().unwrap().to_string(), "0.666666666666666");
    share("6.6666666667e-1", third, two_thirds).unwrap_err();
    share("3.3333333333e-1", third, two_thirds).unwrap_err();
    let whole = parameters::Parameter {
        most: 1e12,
        ..described("tokens", "integer", "1000000000001")
    };
    Parameter::read_all(vec![whole]).unwrap_err();
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    let check = |parameters: Vec<parameters::Parameter>, error: &str| {
        let refused = Parameter::read_all(parameters).expect_err(error);
        assert_eq!(refused.to_string(), error);
    };
    let plain = || described("a", "number", "1");
    check(vec![plain(), plain()], "`a` is there twice");
    check(
        vec![plain(), described("", "number", "1")],
        "parameter 1 has no name",
    );
    check(vec![plain(); MOST + 1], "it has 257 parameters: the most is 256");
    check(
        vec![described("zone", "text", "any")],
        "the default of `zone` is not JSON: `any` (a text is written with its quotes, as `\"any\"`)",
    );
    check(
        vec![described("a", "number", "\"1\"")],
        "its own default does not fit: `a` must be a number, not a text",
    );
    let between = |least, most| parameters::Parameter {
        least,
        most,
        ..plain()
    };
    check(vec![between(2.0, 1.0)], "`a` has a least of 2 and a most of 1");
    check(
        vec![between(2.0, f64::INFINITY)],
        "its own default does not fit: `a` must be a number of at least 2, not 1",
    );
    check(
        vec![described("a", &"k".repeat(MOST_BYTES + 1), "1")],
        "the kind of `a` is longer than 4096 bytes",
    );
    let choices = vec![String::new(); MOST_CHOICES + 1];
    check(
        vec![parameters::Parameter { choices, ..plain() }],
        "`a` has 257 choices: the most is 256",
    );
}

#[test]
fn units_and_sentences_are_cut_and_stay_one_line() {
    let long = parameters::Parameter {
        unit: "u".repeat(1_000),
        about: "a".repeat(1_000),
        ..described("a", "number", "1")
    };
    let read = Parameter::read_all(vec![long]).expect("it can be");
    assert_eq!(
        (read[0].unit.len(), read[0].about.len()),
        (UNIT_BYTES, ABOUT_BYTES)
    );
    let hostile = parameters::Parameter {
        about: "a\u{1b}[2J\u{9b}\nb".to_owned(),
        ..described("a", "number", "1")
    };
    let read = Parameter::read_all(vec![hostile]).expect("it can be");
    assert_eq!(read[0].about, "a [2J  b");
}
