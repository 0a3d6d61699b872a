//! Tests of command lines and their configurations.

use clap::Parser;
use conductor_config::{Code, Paint};

use super::*;
use crate::tests::diagnostics_of;

/// Command line with nothing but the flags.
#[derive(Debug, Parser)]
struct FleetCommand {
    #[command(flatten)]
    fleet: FleetArgs,
}

const DEFAULTS: FlagDefaults<'_> = FlagDefaults {
    policy: "ttft-queue",
    has_engine_key: false,
};

/// Returns the configuration's text of a command line.
fn toml(line: &str) -> Result<String, FleetFlagError> {
    let args = std::iter::once("conductor").chain(line.split_whitespace());
    let args = args.map(|arg| arg.replace('"', ""));
    configuration(&FleetCommand::try_parse_from(args).unwrap().fleet, DEFAULTS)
}

/// Returns the same text, after a check without errors and warnings.
#[track_caller]
fn valid(line: &str) -> String {
    let text = toml(line).unwrap();
    assert_eq!(diagnostics_of(&text).render(Paint::Plain), "", "{text}");
    text
}

#[track_caller]
fn check(line: &str, expected: &str) {
    assert_eq!(
        valid(line),
        format!("# The configuration these flags mean.\n{expected}")
    );
}

#[track_caller]
fn refused(line: &str, expected: &str) {
    let error = toml(line).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn several_workers_may_follow_one_flag() {
    let repeated = valid("--worker http://a:1 --worker http://b:2");
    assert_eq!(valid("--worker http://a:1 http://b:2"), repeated);
}

#[test]
fn workers_become_a_valid_configuration() {
    check(
        "--policy round-robin --worker http://127.0.0.1:1 \
         --worker http://127.0.0.1:2,kv-events=tcp://127.0.0.1:3,kv-replay=tcp://127.0.0.1:4",
        r#"[[pools.default.workers]]
url = "http://127.0.0.1:1"

[[pools.default.workers]]
url = "http://127.0.0.1:2"
kv-events = "tcp://127.0.0.1:3"
kv-replay = "tcp://127.0.0.1:4"

[[routes]]
pool = "default"
policy = "round-robin"
"#,
    );
}

#[test]
fn prefill_and_decode_urls_are_a_pool_whose_dialect_is_detected() {
    check(
        "--prefill http://p1:8010 9001 --prefill http://p2:8010 none p3:8010 --decode http://d1:8020/ d2:8020 \
         --mixed m1:8030 --decode-policy load-weighted",
        r#"[server]
listen = "127.0.0.1:8000"
admin-listen = "127.0.0.1:8001"

[pools.default]
pd = { dialect = "auto" }

[[pools.default.workers]]
url = "http://m1:8030"

[[pools.default.workers]]
url = "http://p1:8010"
role = "prefill"
bootstrap = "http://p1:9001"

[[pools.default.workers]]
url = "http://p2:8010"
role = "prefill"

[[pools.default.workers]]
url = "http://p3:8010"
role = "prefill"

[[pools.default.workers]]
url = "http://d1:8020"
role = "decode"

[[pools.default.workers]]
url = "http://d2:8020"
role = "decode"

[[routes]]
pool = "default"
policy = "ttft-queue"
decode-policy = "load-weighted"
"#,
    );
}

#[test]
fn bootstrap_servers_of_https_workers_are_queried_without_tls() {
    let text = valid("--prefill https://p:8443 8998 --decode https://d:8443");
    assert!(text.contains("bootstrap = \"http://p:8998\""), "{text}");
}

#[test]
fn the_flags_of_the_cpp_proxy_are_a_pool_of_prefill_and_decode_workers() {
    check(
        r#"--port=8180 --host="0.0.0.0" --prefiller_hosts="127.0.0.1,10.0.0.1" --prefiller_ports="8181,8002"
           --decoder_hosts="127.0.0.1" --decoder_ports="8182" --mixed_hosts="127.0.0.1" --mixed_ports="8100"
           --mooncake_store_host="10.175.119.75" --mooncake_store_port=50098 --pd_enable="true" --max_retries=3
           --retry_delay=0.001"#,
        r#"# --retry_delay is not used: another worker is tried at once, and the failed one is ejected.
# --mooncake_store_host and --mooncake_store_port are not used: the store's clients are the workers. Its master
# publishes what it holds elsewhere (--enable_kv_events): add a [stores.NAME] with that address to follow it.
[server]
listen = "0.0.0.0:8180"
admin-listen = "127.0.0.1:8183"
# The first try, and --max_retries more.
attempts = 4

[pools.default]
pd = { dialect = "auto" }

[[pools.default.workers]]
url = "http://127.0.0.1:8100"

[[pools.default.workers]]
url = "http://127.0.0.1:8181"
role = "prefill"

[[pools.default.workers]]
url = "http://10.0.0.1:8002"
role = "prefill"

[[pools.default.workers]]
url = "http://127.0.0.1:8182"
role = "decode"

[[routes]]
pool = "default"
policy = "ttft-queue"
"#,
    );
}

#[test]
fn without_pd_every_worker_does_whole_requests() {
    let text = valid(
        "--pd_enable=false --prefiller_hosts=a,b --prefiller_ports=1,2 --decoder_hosts=c --decoder_ports=3 \
         --dialect nixl",
    );
    assert_eq!(text.matches("url = ").count(), 3);
    assert!(!text.contains("role") && !text.contains("pd ="), "{text}");
    assert!(text.contains("policy = \"ttft-queue\""), "{text}");
    assert!(text.contains("# --dialect is not used"), "{text}");
}

#[test]
fn both_is_an_older_name_of_mixed() {
    let text = valid("--both_hosts=a,b --both-ports=1,2 --prefiller_hosts= --prefiller_ports=");
    assert_eq!(text.matches("url = ").count(), 2);
    assert!(!text.contains("pd ="), "{text}");
}

#[test]
fn the_dialect_can_be_given() {
    let text = valid("--prefill p:1 9000 --decode d:1 --dialect sglang");
    assert!(text.contains("dialect = \"sglang\"") && text.contains("bootstrap = \"http://p:9000\""));
    let text =
        valid("--prefiller_hosts p --prefiller_ports 1 --decoder_hosts d --decoder_ports 1 --dialect store");
    assert!(text.contains("dialect = \"store\""));
    let text = toml("--prefill p:1 9000 --decode d:1 --dialect nixl").unwrap();
    let rendered = diagnostics_of(&text).render(Paint::Plain);
    assert!(rendered.contains("has no effect for workers that speak `nixl`"));
}

#[test]
fn the_key_of_the_environment_goes_to_the_workers_as_those_proxies_send_it() {
    let key = "authorization = { env = \"OPENAI_API_KEY\" }";
    let check = |line: &str, expected: bool| {
        let args = std::iter::once("conductor").chain(line.split_whitespace());
        let args = FleetCommand::try_parse_from(args).unwrap().fleet;
        let defaults = FlagDefaults {
            has_engine_key: true,
            ..DEFAULTS
        };
        let text = configuration(&args, defaults).unwrap();
        assert_eq!(text.contains(key), expected, "{text}");
        let reason = "# OPENAI_API_KEY is set: the workers get it in place of the client's own key.\n";
        assert_eq!(text.contains(reason), expected, "{text}");
        let diagnostics = diagnostics_of(&text);
        let mut others = diagnostics
            .items()
            .iter()
            .filter(|item| item.code != Code::KeyNotHere);
        assert!(others.next().is_none(), "{}", diagnostics.render(Paint::Plain));
    };
    check("--prefill p:1 --decode d:1", true);
    check("--mixed_hosts a --mixed_ports 1", true);
    check("--worker http://a:1", false);
}

#[test]
fn the_admin_pages_are_on_a_free_port_beside_on_this_machine_only() {
    let check = |listen: &str, admin: &str| {
        let text = valid(&format!("--worker http://127.0.0.1:9001 --listen {listen}"));
        let line = format!("admin-listen = \"127.0.0.1:{admin}\"");
        assert!(text.contains(&line), "{text}");
    };
    check("0.0.0.0:9002", "9003");
    check("0.0.0.0:9000", "9002");
    check("127.0.0.1:65535", "0");
    check("127.0.0.1:0", "0");
}

#[test]
fn invalid_flags_are_refused_with_the_reason() {
    refused("--worker http://127.0.0.1:1,weight=2", "weight=2");
    refused(
        "--prefiller_hosts a,b --prefiller_ports 1",
        "the number of hosts is 2, that of ports 1",
    );
    refused("--decoder_hosts a --decoder_ports x", "`x` in `--decoder_ports`");
    refused("--mixed_hosts a --mixed_ports 0", "`0` in `--mixed_ports`");
    refused("--mixed_hosts= --mixed_ports=", "their lists are empty");
    refused("--prefill 9000", "after its worker's URL");
    refused("--prefill a:1 9000 9001", "--prefill 9001");
    refused("--prefill a:1 70000", "70000");
    refused(
        "--prefill http://a:1 x",
        "`--prefill x`: it is neither a URL nor a port",
    );
    refused("--mixed a:1 --host gpu-1", "gpu-1");
}
