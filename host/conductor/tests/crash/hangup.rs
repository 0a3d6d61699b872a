//! SIGHUP, whose outcome the log has whether the file is applied, refused or unchanged.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Process, next};

fn config(queue_limit: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"off\"\n[log]\nformat = \"json\"\n\
         [pools.chat]\nqueue-limit = {queue_limit}\n\
         [[pools.chat.workers]]\nurl = \"http://127.0.0.1:9\"\n[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n"
    )
}

/// Saves the file as an editor does.
fn save(file: &Path, text: &str) {
    let fresh = file.with_extension("saving");
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, file).unwrap();
}

/// Sends SIGHUP. Returns the line of the log with its outcome.
async fn hang_up(process: &mut Process) -> Value {
    kill_process(Pid::from_child(&process.child), Signal::HUP).unwrap();
    next(&mut process.log, "reload after SIGHUP").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_logs_whether_the_file_is_unchanged_refused_or_applied() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conductor.toml");
    save(&file, &config("1"));
    let mut process = Process::start(&file).await;
    let line = hang_up(&mut process).await;
    assert_eq!(
        (&line["level"], &line["outcome"]),
        (&"INFO".into(), &"unchanged".into())
    );

    save(&file, &config("\"many\""));
    // Refused at each look, also where the watcher of the folder looked first.
    let line = hang_up(&mut process).await;
    assert_eq!(
        (&line["level"], &line["outcome"]),
        (&"ERROR".into(), &"refused".into())
    );
    assert_eq!(
        (&line["step"], &line["line"]),
        (&"parse".into(), &7.into()),
        "{line}"
    );
    assert!(
        line["message"].as_str().unwrap().contains("the old one stays"),
        "{line}"
    );

    // The watcher of the folder may apply an edit before the signal comes: then another edit is made.
    for limit in 2.. {
        save(&file, &config(&limit.to_string()));
        let line = hang_up(&mut process).await;
        assert_eq!(line["level"], "INFO", "{line}");
        if line["outcome"] == "applied" {
            break;
        }
        assert_eq!(line["outcome"], "unchanged");
    }
}
