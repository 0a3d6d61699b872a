//! Files for Prometheus and Grafana: they read documented metrics, alerts have a runbook and tests, and boards fit
//! their grid.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tidy::root;

const RULES: &str = "config/deploy/prometheus/rules.yml";
const ALERTS: &str = "config/deploy/prometheus/alerts.yml";
const ALERT_TESTS: &str = "config/deploy/prometheus/tests/alerts_test.yml";
const RUNBOOK: &str = "host/docs/operation/alerts.md";
const REFERENCE: &str = "host/docs/operation/metrics.md";
/// Page of the metrics between routers.
const REPLICAS: &str = "host/docs/operation/replicas.md";

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the file is there")
}

/// Returns the boards with their file names.
fn boards() -> Vec<(String, Value)> {
    let folder = fs::read_dir(root().join("config/deploy/grafana")).expect("the boards have a folder");
    let paths = folder.map(|entry| entry.expect("an entry of a readable folder").path());
    let boards = paths.filter(|path| path.extension().is_some_and(|own| own == "json"));
    let named = boards.map(|path| {
        let name = path.file_stem().expect("a file has a name").to_string_lossy();
        let text = fs::read_to_string(&path).expect("a board is readable");
        (
            name.into_owned(),
            serde_json::from_str(&text).expect("a board is JSON"),
        )
    });
    let mut found: Vec<_> = named.collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], |all| all)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the documented families that are not deprecated. `NAME_{a,b}` stands for `NAME_a` and `NAME_b`.
fn documented() -> BTreeSet<String> {
    let reference = read(REFERENCE);
    let (current, _) = reference
        .split_once("## Deprecated names")
        .expect("deprecated names have a section");
    let replicas = read(REPLICAS);
    let of_replicas = replicas
        .split('`')
        .filter(|code| code.starts_with("conductor_replicas_"));
    let mut families = BTreeSet::new();
    for code in current
        .split('`')
        .chain(of_replicas)
        .filter(|code| code.starts_with("conductor_"))
    {
        let (name, labels) = code.split_once('{').unwrap_or((code, ""));
        if name.ends_with('_') {
            for part in labels.trim_end_matches('}').split(',') {
                families.insert(format!("{name}{part}"));
                families.insert(format!("{name}{part}_total"));
            }
        } else {
            families.insert(name.to_owned());
        }
    }
    families
}

/// Returns the names of metrics and recorded series in a text.
fn metrics(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    // A key such as `expr:` leaves its colon at the end of a word.
    let words = words.map(|word| word.trim_matches(':'));
    words.filter(|word| word.starts_with("conductor_") || word.contains(":conductor_"))
}

/// Returns the values of a key such as `- alert: ` at the starts of lines.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix(key))
        .collect()
}

#[test]
fn rules_alerts_and_boards_read_documented_metrics_only() {
    let documented = documented();
    let rules = read(RULES);
    let recorded: BTreeSet<&str> = values(&rules, "- record: ").into_iter().collect();
    let is_known = |name: &str| {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        recorded.contains(name) || documented.contains(name) || documented.contains(base)
    };
    let mut texts = Vec::new();
    for path in [RULES, ALERTS, ALERT_TESTS, RUNBOOK] {
        texts.push((path.to_owned(), read(path)));
    }
    for (name, board) in boards() {
        texts.push((name, board.to_string()));
    }
    let (mut unknown, mut checked) = (BTreeSet::new(), 0);
    for (path, text) in &texts {
        for name in metrics(text) {
            checked += 1;
            if !is_known(name) {
                unknown.insert(format!("{path}: {name}"));
            }
        }
    }
    assert!(checked > 300, "{checked} names were found");
    assert!(
        unknown.is_empty(),
        "not in {REFERENCE}, {REPLICAS} or {RULES}: {unknown:#?}"
    );
}

#[test]
fn every_documented_metric_is_on_a_board() {
    let shown: String = boards().iter().map(|(_, board)| board.to_string()).collect();
    let rules = read(RULES);
    let used: BTreeSet<&str> = metrics(&shown).chain(metrics(&rules)).collect();
    let is_shown = |name: &str| {
        used.contains(name)
            || used.contains(format!("{name}_total").as_str())
            || used.contains(format!("{name}_bucket").as_str())
            || used.contains(format!("{name}_sum").as_str())
            // The other spelling of a name that the page abbreviates.
            || name.strip_suffix("_total").is_some_and(|short| used.contains(short))
    };
    let missing: Vec<String> = documented().into_iter().filter(|name| !is_shown(name)).collect();
    assert!(
        missing.is_empty(),
        "add to config/deploy/grafana/boards.py: {missing:#?}"
    );
}

#[test]
fn recorded_series_are_named_by_level_metric_and_operation() {
    let rules = read(RULES);
    let recorded = values(&rules, "- record: ");
    let distinct: BTreeSet<&str> = recorded.iter().copied().collect();
    assert!(recorded.len() > 20, "{recorded:?}");
    assert_eq!(distinct.len(), recorded.len(), "a name is recorded twice");
    for name in recorded {
        let parts: Vec<&str> = name.split(':').collect();
        let is_regular = matches!(&parts[..], [level, metric, operation]
            if !level.is_empty() && metric.starts_with("conductor_") && !operation.is_empty());
        assert!(is_regular, "{name}");
    }
}

#[test]
fn every_alert_has_a_runbook_section_and_two_tests() {
    let (alerts, tests, runbook) = (read(ALERTS), read(ALERT_TESTS), read(RUNBOOK));
    let names: BTreeSet<&str> = values(&alerts, "- alert: ").into_iter().collect();
    assert!(names.len() > 20, "{names:?}");
    let sections: BTreeSet<&str> = values(&runbook, "## ").into_iter().collect();
    assert_eq!(sections, names, "sections of {RUNBOOK}, and alerts");
    let tested: BTreeSet<&str> = values(&tests, "- name: ").into_iter().collect();
    let wanted: BTreeSet<String> = names
        .iter()
        .flat_map(|name| [format!("{name} fires"), format!("{name} does not fire")])
        .collect();
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    assert_eq!(tested, wanted, "tests of {ALERT_TESTS}, and alerts");
    for block in alerts.split("- alert: ").skip(1) {
        let name = block.lines().next().unwrap_or_default();
        for part in ["summary: ", "description: ", "expr: "] {
            assert!(block.contains(part), "{name} has no `{part}`");
        }
        let section = format!("{RUNBOOK}#{}", name.to_lowercase());
        assert_eq!(values(block, "runbook: "), [section], "{name}");
        let is_known = ["severity: page", "severity: ticket"]
            .iter()
            .any(|severity| block.contains(severity));
        assert!(is_known, "{name} has no known severity");
    }
}

#[test]
fn every_board_has_its_own_id_and_the_schema_of_grafana_10() {
    let boards = boards();
    assert!(boards.len() >= 5, "{} boards were found", boards.len());
    for (name, board) in &boards {
        assert_eq!(text(board, "/uid"), format!("conductor-{name}"));
        assert_eq!(board["schemaVersion"], 39, "{name}");
        assert_eq!(
            board["id"],
            Value::Null,
            "{name}: an id belongs to one installation"
        );
        assert!(!text(board, "/title").is_empty(), "{name}");
        let notes = list(board, "/annotations/list");
        let marks_changes = notes
            .iter()
            .any(|note| text(note, "/expr").contains("conductor_config_generation"));
        assert!(
            marks_changes,
            "{name} has no annotation for changes of the configuration"
        );
    }
}

#[test]
fn panels_of_a_board_have_distinct_ids_and_do_not_overlap() {
    for (name, board) in boards() {
        let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&board, "/panels") {
            let title = text(panel, "/title");
            assert!(
                ids.insert(panel["id"].as_u64().expect("panels have ids")),
                "{name}: the id of `{title}` is used twice"
            );
            let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| {
                panel["gridPos"][key]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{name}: `{title}` has no {key}"))
            });
            assert!(x + width <= COLUMNS, "{name}: `{title}` leaves the grid");
            for cell in (y..y + height).flat_map(|row| (x..x + width).map(move |column| (row, column))) {
                assert!(taken.insert(cell), "{name}: `{title}` overlaps another panel");
            }
        }
        assert!(ids.len() > 5, "{name}: {} panels", ids.len());
    }
}

#[test]
fn panels_have_a_unit_and_a_description_that_advises() {
    for (name, board) in boards() {
        for panel in list(&board, "/panels")
            .iter()
            .filter(|panel| panel["type"] != "row")
        {
            let title = text(panel, "/title");
            let unit = text(panel, "/fieldConfig/defaults/unit");
            assert!(
                !title.is_empty() && !unit.is_empty(),
                "{name}: `{title}` has no unit"
            );
            let description = text(panel, "/description");
            assert!(description.len() > 25, "{name}: `{title}`: {description}");
            assert!(
                !list(panel, "/targets").is_empty(),
                "{name}: `{title}` has no query"
            );
        }
    }
}

#[test]
fn every_query_of_a_board_goes_to_the_chosen_data_source() {
    for (name, board) in boards() {
        let variables = list(&board, "/templating/list");
        assert_eq!(
            text(&variables[0], "/type"),
            "datasource",
            "{name}: the first variable"
        );
        let mut defined: BTreeSet<&str> = variables.iter().map(|own| text(own, "/name")).collect();
        defined.insert("__rate_interval");
        let panels = list(&board, "/panels");
        let targets = panels.iter().flat_map(|panel| list(panel, "/targets"));
        let queries = variables[1..]
            .iter()
            .chain(list(&board, "/annotations/list"))
            .chain(panels)
            .chain(targets);
        for query in queries {
            assert_eq!(text(query, "/datasource/uid"), "${datasource}", "{name}: {query}");
            for used in [text(query, "/expr"), text(query, "/definition")]
                .iter()
                .flat_map(|expr| expr.split('$').skip(1))
            {
                let end = used.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let used = &used[..end.unwrap_or(used.len())];
                assert!(defined.contains(used), "{name}: no variable `{used}`: {query}");
            }
        }
    }
}
