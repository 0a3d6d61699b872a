//! Decision log and access log of a configuration, as specs for the recorder.

use std::path::PathBuf;
use std::sync::Arc;

use conductor_config::{AccessOutput, Config};
use decision_log::{FileSpec, LogTarget, RecordFiles, RecordSpec, Recorder, Sampling};

use local_files::ConfigSource;

/// Returns the selection of recorded requests.
pub(crate) fn record_spec(config: &Config, recorder: &Arc<Recorder>) -> RecordSpec {
    let record = &config.record;
    RecordSpec {
        recorder: Arc::clone(recorder),
        file: match record.file {
            Some(_) => Sampling::share(record.sample),
            None => Sampling::NONE,
        },
        explain: Sampling::share(record.explain_sample),
        explain_on_demand: record.explain_header,
        explained: record.explain as usize,
        all_columns: record.all_columns,
        access: config
            .log
            .access
            .as_ref()
            .map(|_| Sampling::share(config.log.access_sample)),
        prompt_blocks: record.prompt_blocks,
    }
}

/// Returns the files of the records.
pub(crate) fn record_files(config: &Config, source: &ConfigSource) -> RecordFiles {
    let record = &config.record;
    let file = |file: &Option<PathBuf>| {
        Some(FileSpec {
            path: source.resolve(file.as_ref()?),
            max_bytes: record.max_bytes,
            keep: record.keep,
        })
    };
    RecordFiles {
        decisions: file(&record.file),
        shadows: file(&record.shadow_file),
        access: access_target(config, source),
        explained: record.explain as usize,
    }
}

/// Returns the output of the access log.
fn access_target(config: &Config, source: &ConfigSource) -> Option<LogTarget> {
    let log = &config.log;
    Some(match log.access.as_ref()? {
        AccessOutput::Stdout => LogTarget::Stdout,
        AccessOutput::File(path) => LogTarget::File(FileSpec {
            path: source.resolve(path),
            max_bytes: log.access_max_bytes,
            keep: log.access_keep,
        }),
    })
}
