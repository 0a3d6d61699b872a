//! Hands the recorder the files that a configuration names.

use conductor_config::Config;
use proxy::record::Recorder;
use tracing::error;

use crate::compose;
use crate::config_source::ConfigSource;
use crate::policy_library::chain;

/// Has decisions recorded where the configuration says, or nowhere, and no more of them kept than it says.
pub(crate) fn apply(recorder: &Recorder, config: &Config, source: &ConfigSource) {
    recorder.keep_latest(config.record.explain as usize);
    let [decisions, shadows] = compose::record_files(config, source);
    for (log, started) in [
        ("decision", recorder.write_to(decisions)),
        ("shadow", recorder.write_shadows_to(shadows)),
    ] {
        if let Err(error) = started {
            error!(
                error = chain(&error),
                "failed to start the thread that writes the {log} log"
            );
        }
    }
}
