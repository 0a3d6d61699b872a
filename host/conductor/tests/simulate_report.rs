//! Tests of `conductor simulate` with several seeds and two policies, of the page that it writes, and of its output if
//! it is ended early.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.arg("simulate").args(args);
    command
}

fn simulate(args: &[&str]) -> Output {
    command(args).output().expect("it runs")
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    let output = simulate(&[args, &["--json"]].concat());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn text(args: &[&str]) -> String {
    let output = simulate(args);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed, "", "no bar where there is no terminal");
    String::from_utf8(output.stdout).expect("UTF-8")
}

const SMALL: [&str; 4] = ["--requests", "100", "--workers", "3"];

#[test]
fn several_seeds_give_means_and_how_far_they_may_be_off() {
    let args = [&SMALL[..], &["round-robin"]].concat();
    let of_one = |seed: &str| json(&[&args[..], &["--seed", seed]].concat());
    let mean = |report: &Value| report["rows"][0]["ttft-s"]["mean"].as_f64().unwrap();
    let singles = ["4", "5", "6"].map(|seed| mean(&of_one(seed)));
    let report = json(&[&args[..], &["--seed", "4", "--seeds", "3"]].concat());
    let row = &report["rows"][0];
    assert_eq!(
        (&report["seeds"], &row["seeds"]),
        (&[4, 5, 6].as_slice().into(), &3.into())
    );
    let expected = singles.iter().sum::<f64>() / 3.0;
    assert!(
        (mean(&report) - expected).abs() < 1e-9,
        "{singles:?} {}",
        mean(&report)
    );
    assert_ne!(singles[0], singles[1], "each seed makes requests of its own");
    let half_width = row["half-widths"]["ttft-s"]["mean"].as_f64().unwrap();
    let squares: f64 = singles.iter().map(|single| (single - expected).powi(2)).sum();
    assert!((half_width - 4.303 * (squares / 6.0).sqrt()).abs() < 1e-9);
    assert_eq!(row["served"], 100, "what is the same with all seeds stays whole");
    assert!(of_one("4")["rows"][0]["half-widths"].is_null());
    let table = text(&[&args[..], &["--seeds", "3"]].concat());
    assert!(table.contains(" +-") && table.contains("95 %"), "{table}");
}

#[test]
fn the_seeds_of_a_recorded_trace_have_the_same_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.jsonl");
    let line = |at: u32| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [1, {at}]}}\n"
        )
    };
    fs::write(&path, (0..20).map(|at| line(at * 500)).collect::<String>()).unwrap();
    let report = json(&["--trace", path.to_str().unwrap(), "--seeds", "3", "round-robin"]);
    assert_eq!(report["rows"][0]["half-widths"]["ttft-s"]["mean"], 0.0);
    let vary = report["seeds-vary"].as_str().unwrap();
    assert!(vary.contains("the requests are the same"), "{vary}");
}

#[test]
fn a_policy_is_no_better_than_itself() {
    let args = ["--seeds", "3", "--compare", "cache-aware", "cache-aware"];
    let report = json(&[&SMALL[..], &args].concat());
    let comparison = &report["comparisons"][0];
    assert_eq!(comparison["verdict"], "no-difference");
    assert_eq!(comparison["paired"]["faster"]["mean"], 0.0);
    assert_eq!(comparison["paired"]["slower"]["mean"], 0.0);
    for figure in comparison["figures"].as_array().unwrap() {
        let difference = &figure["difference"]["mean"];
        assert!(difference.is_null() || *difference == 0.0, "{figure}");
    }
}

#[test]
fn every_policy_is_compared_with_the_first_and_better_only_where_the_seeds_agree() {
    let policies = ["--compare", "round-robin", "cache-aware", "load-weighted"];
    let load = ["--requests", "150", "--workers", "2", "--speeds", "1,2"];
    let report = json(&[&load[..], &["--seeds", "3"], &policies].concat());
    let comparisons = report["comparisons"].as_array().unwrap();
    let names: Vec<[&str; 2]> = comparisons
        .iter()
        .map(|compared| ["baseline", "policy"].map(|side| compared[side].as_str().unwrap()))
        .collect();
    let pairs = [["round-robin", "cache-aware"], ["round-robin", "load-weighted"]];
    assert_eq!(names, [pairs, pairs].concat());
    let cache_aware = &comparisons[2];
    assert_eq!(cache_aware["verdict"], "better", "{cache_aware:#}");
    let share = |side: &str| cache_aware["paired"][side]["mean"].as_f64().unwrap();
    assert!(share("faster") > share("slower") && share("faster") + share("slower") <= 1.0);
    let printed = text(&[&load[..], &["--seeds", "1"], &policies].concat());
    assert!(
        printed.contains("Verdict: one seed:") && !printed.contains("is better"),
        "{printed}"
    );
}

#[test]
fn invalid_comparisons_and_outputs_are_refused_before_the_simulation() {
    for (args, words) in [
        (&["--compare", "round-robin"][..], "at least two policies"),
        (&["--html", "/nowhere/page.html"], "in a folder that exists"),
        (&["--html", "/"], "must be a file"),
        (&["--seeds", "0"], "1..=1000"),
    ] {
        let output = simulate(args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
fn times_are_broken_down_by_length_turn_and_tenant() {
    let args = [&SMALL[..], &["round-robin", "--tenants", "3", "--seeds", "2"]].concat();
    let report = json(&args);
    let breakdown = &report["rows"][0]["breakdown"];
    let lengths = breakdown["by-length"].as_array().unwrap();
    let tokens: Vec<f64> = lengths
        .iter()
        .map(|group| group["up-to-tokens"].as_f64().unwrap())
        .collect();
    assert_eq!((lengths.len(), tokens.is_sorted()), (10, true), "{tokens:?}");
    let requests = |part: &str| -> f64 {
        let groups = breakdown[part].as_array().unwrap().iter();
        groups.map(|group| group["requests"].as_f64().unwrap()).sum()
    };
    assert_eq!((requests("by-length"), requests("by-turn")), (100.0, 100.0));
    let shares: Vec<f64> = breakdown["attainment"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["share"].as_f64().unwrap())
        .collect();
    assert!(shares.is_sorted() && shares.last() <= Some(&1.0), "{shares:?}");
    let fairness = &breakdown["fairness"];
    assert_eq!(fairness["tenants"], 3);
    let jain = fairness["jain"].as_f64().unwrap();
    assert!((1.0 / 3.0..=1.0).contains(&jain), "{jain}");
    let half_width = &report["rows"][0]["half-widths"]["breakdown"]["by-length"][9]["ttft-s"];
    assert!(half_width.is_number(), "{half_width}");
}

#[test]
fn the_breakdown_is_printed_on_request() {
    let args = [&SMALL[..], &["round-robin", "--tenants", "2"]].concat();
    assert!(!text(&args).contains("by prompt length"));
    let table = text(&[&args[..], &["--breakdown"]].concat());
    for part in [
        "by prompt length",
        "by turn",
        "within so many seconds",
        "fairness over tenants",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains("by reason"), "nothing was refused");
}

#[test]
fn refusals_have_their_reasons() {
    let load = ["--requests", "300", "--workers", "4", "--decode", "1"];
    let refusing = ["mooncake-alg1", "--tbt-limit-ms", "40", "--decode-refuses"];
    let args = [&load[..], &refusing].concat();
    let row = &json(&args)["rows"][0];
    let (refusals, rejected) = (&row["breakdown"]["refusals"], row["rejected"].as_f64().unwrap());
    let share = refusals["decode-worker"].as_f64().unwrap();
    assert!(share > 0.0 && (share * 300.0 - rejected).abs() < 1e-6, "{row}");
    assert_eq!(
        (&refusals["policy"], &refusals["no-worker"]),
        (&0.0.into(), &0.0.into())
    );
    let table = text(&[&args[..], &["--breakdown"]].concat());
    assert!(table.contains("by reason"), "{table}");
}

#[test]
fn costs_that_contain_fetches_are_noted() {
    let note = "contain fetched prefixes";
    let fetching = [&SMALL[..], &["round-robin", "--fetch", "cheapest"]].concat();
    assert!(!text(&fetching).contains(note), "learned costs do not");
    let exact = [&fetching[..], &["--costs", "exact"]].concat();
    assert!(text(&exact).contains(note));
    assert_eq!(json(&exact)["setting"]["costs-contain-fetches"], true);
}

#[test]
fn the_page_needs_nothing_else_and_takes_no_name_for_markup() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (
        folder.path().join("<i>mine.jsonl"),
        folder.path().join("page.html"),
    );
    let line = |at: u32| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": 1000, \"output_length\": 9, \"hash_ids\": [1, {at}]}}\n"
        )
    };
    fs::write(&trace, (0..60).map(|at| line(at * 900)).collect::<String>()).unwrap();
    let paths = [
        "--trace",
        trace.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ];
    let policies = [
        "--speeds",
        "1,4",
        "round-robin",
        "cache-aware={\"backlog-price\":0.5}",
    ];
    let printed = text(&[&paths[..], &policies].concat());
    assert!(printed.contains("TTFT s"), "the table is printed too");
    let page = fs::read_to_string(page).unwrap();
    for outside in [
        "<script", "<link", "<img", "src=", "href=", "url(", "@import", "http://", "https://",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<h1>Simulation: &lt;i&gt;mine</h1>") && !page.contains("<i>"));
    assert!(page.contains("cache-aware={&quot;backlog-price&quot;:0.5}"));
    assert!(
        !page.contains("NaN") && !page.contains("inf"),
        "no place is nowhere"
    );
    for (element, least) in [
        ("svg", 9),
        ("title", 10),
        ("desc", 9),
        ("table", 10),
        ("figure", 9),
        ("section", 3),
    ] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{element}>")).count(),
            "{element}"
        );
        assert!(opened >= least, "{opened} of {element}");
    }
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

/// Interrupts the process once it catches the signal and this time has passed. All its runs together take minutes.
fn interrupted(after: Duration) -> Output {
    let args = [
        "--requests",
        "500",
        "--seeds",
        "1000",
        "--compare",
        "round-robin",
        "load-weighted",
        "--json",
    ];
    let child = command(&args).stdout(Stdio::piped()).spawn().expect("it starts");
    wait_until_it_listens(&child);
    sleep(after);
    let pid = Pid::from_raw(child.id().try_into().expect("it fits")).expect("it is not 0");
    kill_process(pid, Signal::INT).expect("it still runs");
    child.wait_with_output().expect("it ends")
}

/// Waits until the process catches SIGINT, as the kernel reports, for up to half a minute.
fn wait_until_it_listens(child: &Child) {
    for _ in 0..600 {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .expect("a mask");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
        if caught & (1 << (Signal::INT.as_raw() - 1)) != 0 {
            return;
        }
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_interrupted_simulation_reports_its_finished_runs() {
    // A slow machine gets more time for its first runs.
    for seconds in [1, 4, 16, 60] {
        let output = interrupted(Duration::from_secs(seconds));
        assert_eq!(output.status.code(), Some(130));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&report["complete"], &report["runs-asked"]),
            (&false.into(), &2000.into())
        );
        let rows = report["rows"].as_array().unwrap();
        let made: u64 = rows.iter().map(|row| row["seeds"].as_u64().unwrap()).sum();
        assert_eq!(report["runs-made"], made);
        if rows.len() == 2 {
            let both = rows
                .iter()
                .map(|row| row["seeds"].as_u64().unwrap())
                .min()
                .unwrap();
            assert!(report["comparisons"][0]["seeds"].as_u64().unwrap() <= both);
            return;
        }
    }
    panic!("not one run was made in a minute");
}
