//! Decision log of a configuration, as specs for the recorder.

use std::path::PathBuf;
use std::sync::Arc;

use conductor_config::Config;
use decision_log::{FileSpec, RecordFiles, RecordSpec, Recorder, Sampling};

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
        explained: record.explain as usize,
    }
}
