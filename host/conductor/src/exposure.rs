//! What a configuration leaves open to others than those it is meant for. It starts all the same: whether a network can be
//! trusted is its owner's to know.

use conductor_config::Config;

use crate::keys::Keys;

/// What to warn of; `keys` were read for this configuration.
pub(crate) fn warnings(config: &Config, keys: &Keys) -> Vec<String> {
    let mut warnings = Vec::new();
    let admin = config
        .server
        .admin_listen
        .filter(|address| !address.ip().is_loopback());
    if let (Some(address), None) = (admin, &keys.admin) {
        warnings.push(format!(
            "the admin pages on {address} can be reached from other machines, and nobody needs a key there to add workers or \
             to change policies: set `admin-api-key` of [server], or listen on 127.0.0.1"
        ));
    }
    let indexer = config
        .indexer
        .listen
        .filter(|address| !address.ip().is_loopback());
    if let (Some(address), None) = (indexer, &config.indexer.api_key) {
        warnings.push(format!(
            "the indexer on {address} can be reached from other machines, and nobody needs a key there to have Conductor \
             connect to an endpoint: set `api-key-file` of [indexer], or listen on 127.0.0.1"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_source::ConfigSource;

    /// Which listeners are warned of.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let source = ConfigSource::Text(text.to_owned());
        let config = crate::reload::read(&source, text).expect("valid").config;
        let warnings = warnings(&config, &Keys::read(&config, &source).unwrap());
        assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }

    #[test]
    fn listeners_that_change_things_for_anybody_are_told() {
        let worker = "[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        check(worker, &[]);
        let open = "[server]\nadmin-listen = \"0.0.0.0:8081\"\n[indexer]\nlisten = \"[::]:1\"\n";
        check(
            &format!("{open}{worker}"),
            &["admin pages on 0.0.0.0:8081", "indexer on [::]:1"],
        );
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "secret").unwrap();
        let closed = format!(
            "[server]\nadmin-listen = \"0.0.0.0:8081\"\nadmin-api-key = {{ file = {key:?} }}\n\
             [indexer]\nlisten = \"[::]:1\"\napi-key = \"x\"\n{worker}"
        );
        check(&closed, &[]);
        let off = "[server]\nlisten = \"0.0.0.0:80\"\nadmin-listen = \"off\"\n";
        check(&format!("{off}{worker}"), &[]);
    }
}
