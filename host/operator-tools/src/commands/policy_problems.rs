//! Problems of policies: refused or missing files whose last good version still decides.

use serde_json::{Value, json};

use super::fleet_table::items;
use crate::admin::AdminClient;
use crate::units::text;

/// Key of the problems in a page.
const KEY: &str = "policy_problems";

/// Adds the policies with a problem to a page. An access key without the right to read policies adds nothing.
pub(super) async fn add(client: &AdminClient, page: &mut Value) {
    if let Ok(policies) = client.get("/admin/policies").await {
        page[KEY] = of(&policies);
    }
}

fn of(page: &Value) -> Value {
    items(&page["policies"])
        .filter(|policy| policy["problem"].is_string())
        .map(|policy| json!({ "policy": policy["name"], "problem": policy["problem"] }))
        .collect()
}

/// Returns a line for each policy with a problem.
pub(super) fn lines(page: &Value) -> String {
    let line = |problem: &Value| {
        let (policy, reason) = (text(&problem["policy"]), text(&problem["problem"]));
        format!("warning: policy {policy}: {reason}; see `conductor policy status {policy}`\n")
    };
    items(&page[KEY]).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_without_a_problem_are_not_listed() {
        let policies = json!({ "policies": [
            { "name": "good", "problem": null },
            { "name": "bad", "problem": "not a component" },
        ] });
        let page = json!({ KEY: of(&policies) });
        assert_eq!(
            lines(&page),
            "warning: policy bad: not a component; see `conductor policy status bad`\n"
        );
    }

    #[test]
    fn a_page_without_problems_has_no_lines() {
        assert_eq!(lines(&json!({})), "");
        assert_eq!(lines(&json!({ KEY: [] })), "");
    }
}
