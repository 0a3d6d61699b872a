//! Whatever the text is: no panic, places inside the text, and an answer that can be drawn.

mod claims;

use conductor_config::{Config, Paint};
use proptest::prelude::*;

use crate::claims::KNOWN;

/// Files with every key and with many kinds of mistakes.
const SEEDS: &[&str] = &[
    include_str!("cases/everything.toml"),
    include_str!("cases/syntax.toml"),
    include_str!("cases/duplicate-keys.toml"),
    include_str!("cases/policies.toml"),
    include_str!("cases/routes.toml"),
    include_str!("cases/workers.toml"),
    include_str!("cases/pd.toml"),
];

/// Pieces that mean something to the parser.
const PIECES: &[&str] = &[
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\"",
    "\"\"\"",
    "'",
    "#",
    "\n",
    "\r\n",
    "\0",
    "é",
    "\u{feff}",
    "server",
    "pools",
    "routes",
    "policies",
    "[server]\n",
    "[[routes]]\n",
    "[pools.a]\n",
    "workers",
    "match",
    "url = \"http://a:1\"\n",
    "params = {",
    "a.b.c = 1\n",
    "1e999",
    "0x",
    "1979-05-27",
    "-0",
    "nan",
    "true",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn any_text_gets_an_answer(text in ".{0,200}") {
        claims::text(&text);
    }

    #[test]
    fn any_heap_of_pieces_gets_an_answer(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        claims::text(&pieces.concat());
    }

    #[test]
    fn a_file_cut_and_patched_anywhere_gets_an_answer(
        seed in prop::sample::select(SEEDS),
        cut in any::<prop::sample::Index>(),
        skip in 0_usize..40,
        piece in prop::sample::select(PIECES),
    ) {
        let cut = seed.floor_char_boundary(cut.index(seed.len()));
        let resume = seed.floor_char_boundary((cut + skip).min(seed.len()));
        claims::text(&seed[..cut]);
        claims::text(&format!("{}{piece}{}", &seed[..cut], &seed[resume..]));
    }
}

#[test]
fn every_prefix_of_a_file_gets_an_answer() {
    for seed in &SEEDS[..2] {
        for (end, _) in seed.char_indices() {
            claims::text(&seed[..end]);
        }
    }
}

#[test]
fn a_file_wrong_throughout_is_reported_in_bounded_space() {
    let check = |text: String| {
        let mistakes = Config::parse("any", &text, &KNOWN).expect_err("wrong throughout");
        assert!((101..=1_000).contains(&mistakes.items().len()));
        let drawn = mistakes.render(Paint::Plain);
        assert_eq!(drawn.matches("error[").count(), 100);
        assert!(drawn.ends_with("... and more: these are the first 100\n"));
    };
    let many =
        |line: fn(usize) -> String| "[server]\n".to_owned() + &(0..5_000).map(line).collect::<String>();
    check(many(|n| format!("k{n} = 1\n")));
    check(many(|_| "attempts = 1\n".to_owned()));
    check(many(|_| "attempts = \n".to_owned()));
    check(format!(
        "server = {{ {} }}",
        many(|n| format!("k{n} = 1, ")).split_off(9)
    ));
}

#[test]
fn no_message_repeats_the_password_of_an_address() {
    let lines = [
        "[replicas]\nservers = [\"URL\"]",
        "[replicas]\nservers = \"URL\"",
        "[traces]\nendpoint = \"URL\"",
        "[traces]\nendpoint = \"URL/v1/traces\"",
        "[server]\nlisten = \"URL\"",
        "[server]\nadmin-listen = \"URL\"",
        "[server]\nadmin-hosts = [\"URL\"]",
        "[server.cors]\norigins = [\"URL\"]",
        "[indexer]\nlisten = \"URL\"",
        "[pools.p]\nkv-events-hosts = [\"URL\"]",
        "[stores.s]\nkv-events = \"URL\"\nstatus = \"URL\"",
        "[pools.p]\nworkers = [{ url = \"URL\" }]",
        "[pools.p]\nworkers = [{ url = \"http://a:1\", kv-events = \"URL\", kv-replay = \"URL\" }]",
        "[pools.p]\nworkers = [{ url = \"http://a:1\", kv-events = \"URL\", kv-bind = true }]",
        "[pools.p]\nworkers = [{ url = \"http://a:1\", bootstrap = \"URL\" }]",
        "[discovery.d]\npool = \"p\"\nhttp-sd = \"URL\"",
        "[discovery.d]\npool = \"p\"\ndns = \"URL\"\ndns-server = \"URL\"",
        "[discovery.d]\npool = \"p\"\nkubernetes = { service = \"s\", api-server = \"URL\", namespace = \"n\" }",
        "[[indexer.services]]\nendpoint = \"URL\"\nreplay = \"URL\"",
    ];
    let urls = ["nats", "http", "tcp", "ftp"].map(|scheme| format!("{scheme}://me:hush@h:1"));
    for line in lines {
        for url in urls.iter().map(String::as_str).chain(["me:hush@h:1"]) {
            let text = line.replace("URL", url);
            let mistakes = Config::parse("any", &text, &KNOWN).expect_err(&text);
            for item in mistakes.items() {
                let help = item.help.as_deref().unwrap_or_default();
                assert!(!item.message.contains("hush"), "{text}: {}", item.message);
                assert!(!help.contains("hush"), "{text}: {help}");
            }
        }
    }
}

#[test]
fn warnings_in_their_thousands_do_not_hide_an_error() {
    let pools: String = (0..2_000).map(|n| format!("[pools.p{n}]\n")).collect();
    let text = pools + "[[routes]]\npool = \"nowhere\"\n";
    let mistakes = Config::parse("any", &text, &KNOWN).expect_err("the pool is not there");
    assert_eq!(mistakes.error_count(), 1);
}
