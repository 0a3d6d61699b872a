//! Trials of a configuration outlive edits of everything else.

use super::*;

/// Returns a configuration whose route has a pipeline as the canary, with these lines before it.
fn with_pipeline(more: &str) -> String {
    let scorers = "[{ policy = \"tier-weight\", weight = 1 }, { feature = \"load.requests\", weight = -1 }]";
    let pipeline =
        format!("{more}\n[policies.mixed]\npipeline = {{ scorers = {scorers} }}\n[policies.tuned]");
    before().replace("[policies.tuned]", &pipeline).replace(
        "policy = \"tuned\"\n",
        "policy = \"tuned\"\nsplit = { tuned = 95, mixed = 5 }\n",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_trial_of_a_pipeline_outlives_an_edit_of_something_else() {
    let mut scenario = Scenario::begin().await;
    let mut seen = Vec::new();
    for more in ["", "[log]\nlevel = \"debug\""] {
        fs::write(scenario.path("conductor.toml"), with_pipeline(more)).unwrap();
        let (reloaded, outcome) = scenario.reload(None).await;
        scenario = reloaded;
        assert!(outcome.has_changes(), "{outcome:?}");
        let trials = scenario.reloader.live.cell.load().trials();
        assert_eq!(trials[0].arms[1].policy, "mixed");
        seen.push((trials[0].since, trials[0].arms[1].version.clone()));
    }
    assert_eq!(seen[0], seen[1]);
}
