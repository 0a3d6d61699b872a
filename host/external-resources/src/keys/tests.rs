//! Tests of reading keys, and of the errors of unavailable ones.

use super::*;
use crate::test_config::parsed;

fn read(text: &str, variable: Option<&str>) -> Result<Keys, KeyError> {
    let source = ConfigSource::Text(text.to_owned());
    let config = parsed(&source, text);
    let read = Keys::read_from(&config, &source, |name| {
        (name == "KEY").then_some(variable).flatten().map(OsString::from)
    });
    read.map_err(|problems| problems.into_iter().next().unwrap().error)
}

#[test]
fn every_unavailable_key_is_an_error_of_the_router_with_its_place() {
    let text = format!(
        "[clients.a]\nkey = {{ file = \"/nowhere/a\" }}\n{}",
        pool("{ env = \"CONDUCTOR_KEY_THAT_NOBODY_SETS\" }")
    );
    let source = ConfigSource::Text(text.clone());
    let problems = Keys::read(&parsed(&source, &text), &source).unwrap_err();
    let shown: Vec<_> = problems
        .iter()
        .map(|problem| (problem.primary.location.to_string(), problem.code.as_str()))
        .collect();
    let expected = [("2:7", "key-unavailable"), ("4:17", "key-unavailable")];
    assert_eq!(shown, expected.map(|(at, code)| (at.to_owned(), code)));
    assert!(problems.iter().all(|problem| problem.help.is_some()));
}

/// Returns a pool with this `authorization`.
fn pool(authorization: &str) -> String {
    format!("[pools.a]\nauthorization = {authorization}\nworkers = [{{ url = \"http://a:1\" }}]\n")
}

#[track_caller]
fn refused(result: Result<Keys, KeyError>, expected: &str) {
    let error = error_chain(&result.unwrap_err());
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_key_is_read_from_the_environment_or_a_files_first_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, " secret \nnot this\n").unwrap();
    let check = |text: &str| {
        let source = ConfigSource::Text(text.to_owned());
        let config = parsed(&source, text);
        let keys = read(text, Some("secret\n")).unwrap();
        let expected = Authorization::bearer("secret").unwrap();
        assert_eq!(keys.authorization(&config.pools[0]), expected);
    };
    check(&pool("{ env = \"KEY\" }"));
    check(&pool(&format!("{{ file = {path:?} }}")));
}

#[test]
fn headers_of_traces_are_read_as_keys_and_shown_by_no_debug_text() {
    let traces = "[traces]\nendpoint = \"http://c:4318\"\nheaders = { X-Key = { env = \"KEY\" } }\n";
    let text = format!("{traces}{}", pool("\"pass\""));
    let keys = read(&text, Some("secret\n")).unwrap();
    assert_eq!(keys.trace_headers()["x-key"], "secret");
    assert!(!format!("{keys:?}").contains("secret"));
    refused(read(&text, None), "`traces.headers.x-key`");
    refused(read(&text, Some("a\u{7f}b")), "no header can carry it");
}

#[test]
fn the_indexers_key_is_read_as_the_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let keys = |key: &str| {
        read(
            &format!("[indexer]\nlisten = \"127.0.0.1:1\"\n{key}"),
            Some("secret\n"),
        )
    };
    std::fs::write(&path, " secret \nnot this\n").unwrap();
    let of_file = [
        format!("api-key-file = {path:?}"),
        format!("api-key = {{ file = {path:?} }}"),
    ];
    let elsewhere = ["api-key = { env = \"KEY\" }", "api-key = \"secret\""];
    for key in of_file.iter().map(String::as_str).chain(elsewhere) {
        assert_eq!(keys(key).unwrap().indexer, Some(Key::new("secret")), "{key}");
    }
    for bad in ["", "\nsecret"] {
        std::fs::write(&path, bad).unwrap();
        refused(keys(&of_file[0]), "indexer.api-key");
    }
}

/// SHA-256 of `test`, as sha256sum prints it.
const HASH_OF_TEST: &str =
    "key-sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"";

/// Returns two clients with these keys.
fn clients(one: &str, other: &str) -> String {
    format!("[clients.a]\n{one}\n[clients.b]\n{other}\n") + &pool("\"drop\"")
}

#[test]
fn only_the_hash_of_a_clients_key_is_kept() {
    let text = clients("key = { env = \"KEY\" }", HASH_OF_TEST);
    let source = ConfigSource::Text(text.clone());
    let config = parsed(&source, &text);
    let keys = read(&text, Some("secret")).unwrap();
    let of = |client: usize| keys.of_client(&config.clients[client]).collect::<Vec<_>>();
    assert_eq!(of(0), [KeyHash::of(b"secret")]);
    assert_eq!(of(1), [KeyHash::of(b"test")]);
    assert!(!format!("{keys:?}").contains("secret"));
}

#[test]
fn no_two_clients_have_one_key() {
    let env = "key = { env = \"KEY\" }";
    refused(
        read(&clients(env, env), Some("secret")),
        "`clients.b.key`: another client",
    );
    refused(
        read(&clients(HASH_OF_TEST, env), Some("test")),
        "`clients.b.key`: another client",
    );
    assert!(read(&clients(HASH_OF_TEST, env), Some("test2")).is_ok());
    refused(read(&clients(HASH_OF_TEST, env), None), "`clients.b.key`");
}

#[test]
fn an_admin_key_for_reads_needs_an_admin_key() {
    let text = "[server]\nadmin-key-for-reads = true\n".to_owned() + &pool("\"drop\"");
    refused(read(&text, None), "needs `server.admin-api-key`");
}

#[test]
fn every_file_of_a_key_is_watched() {
    let text = "[server]\nadmin-api-key = { file = \"admin\" }\n[clients.a]\nkey = { file = \"a\" }\n"
        .to_owned()
        + &pool("{ file = \"engine\" }");
    let source = ConfigSource::File("/etc/c/conductor.toml".into());
    let config = parsed(&source, &text);
    let expected = ["/etc/c/admin", "/etc/c/engine", "/etc/c/a"].map(PathBuf::from);
    assert_eq!(Keys::files(&config, &source), expected);
}

#[test]
fn the_admin_key_is_separate_from_the_keys_of_pools() {
    let text = "[server]\nadmin-api-key = { env = \"KEY\" }\n".to_owned() + &pool("\"drop\"");
    let keys = read(&text, Some("secret")).unwrap();
    assert_eq!(keys.admin.as_ref().map(Key::reveal), Some("secret"));
    assert!(!format!("{keys:?}").contains("secret"));
    refused(
        read(&text, None),
        "`server.admin-api-key`: the environment variable `KEY` is not set",
    );
}

#[test]
fn the_default_admin_key_is_that_of_the_environment() {
    let admin = |value: Option<&str>| {
        let config = parsed(&ConfigSource::Text(String::new()), &pool("\"drop\""));
        let env = |name: &str| {
            (name == ADMIN_API_KEY)
                .then_some(value)
                .flatten()
                .map(OsString::from)
        };
        let keys = Keys::read_from(&config, &ConfigSource::Text(String::new()), env);
        keys.map(|keys| keys.admin.map(|key| key.reveal().to_owned()))
    };
    assert_eq!(admin(Some("secret")).unwrap().as_deref(), Some("secret"));
    assert_eq!(admin(Some("")).unwrap(), None);
    assert_eq!(admin(None).unwrap(), None);
    assert!(admin(Some(" ")).is_err(), "a blank key is an error");
}

#[test]
fn an_unavailable_key_is_named_and_never_shown() {
    let from_env = pool("{ env = \"KEY\" }");
    let whose = "`pools.a.authorization`";
    refused(read(&from_env, None), whose);
    refused(read(&from_env, Some(" ")), "`KEY` is empty");
    refused(read(&from_env, Some("a\u{1}b")), whose);
    refused(
        read(&pool("{ file = \"/nowhere/key\" }"), None),
        "from the file `/nowhere/key`: ",
    );
    let error = read(&from_env, Some("se\u{1}cret")).unwrap_err();
    assert!(!format!("{error:?}{error}").contains("cret"));
}
