//! `pd` of a pool: splitting of requests between prefill and decode workers.

use std::time::Duration;

use routing::{Dialect, Role};

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;
use crate::pools::endpoint::plain_url;

/// Former names of dialects.
const FORMER_DIALECTS: [(&str, &str); 1] = [("mooncake", "mooncake-connector")];

/// `pd` of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdConfig {
    /// Dialect of the workers; `None` to detect it.
    pub dialect: Option<Dialect>,
    /// Decode workers may process whole requests.
    pub alone: bool,
    /// Connect timeout; `None` for the server's.
    pub connect_timeout: Option<Duration>,
    /// Timeout of the whole prefill answer; `None` for the server's `first-byte-timeout`.
    pub prefill_timeout: Option<Duration>,
    /// Timeout of the first byte of the decode answer; `None` for the server's `first-byte-timeout`.
    pub first_token_timeout: Option<Duration>,
    /// Timeout between two chunks of the decode answer; `None` for the server's.
    pub idle_timeout: Option<Duration>,
}

/// A `pd` that is present, even if its contents are invalid.
#[derive(Debug)]
pub(crate) struct DeclaredPd {
    pub(crate) config: PdConfig,
    /// The dialect is readable.
    is_readable: bool,
    key_span: Span,
}

pub(crate) fn read(item: &Item<'_>, pool: &str) -> DeclaredPd {
    let mut declared = DeclaredPd {
        config: PdConfig {
            dialect: None,
            alone: true,
            connect_timeout: None,
            prefill_timeout: None,
            first_token_timeout: None,
            idle_timeout: None,
        },
        is_readable: false,
        key_span: item.key_span.clone(),
    };
    if item.value.as_str().is_some() {
        let help = format!("write pd = {{ dialect = \"auto\" }}, or {}", quoted(Dialect::ALL));
        item.wrong_type_but::<()>("a table", Some(help));
    } else if let Some(pd) = Section::of(item, format!("`[pools.{pool}.pd]`")) {
        declared.read_settings(pd);
    }
    declared
}

impl DeclaredPd {
    fn read_settings(&mut self, mut pd: Section<'_>) {
        let mut dialects = vec![("auto", None)];
        dialects.extend(Dialect::ALL.map(|dialect| (dialect.as_str(), Some(dialect))));
        let dialect = match pd.item("dialect") {
            Some(item) => item.renamed_choice(&dialects, &FORMER_DIALECTS),
            None => Some(None),
        };
        self.is_readable = dialect.is_some();
        let dialect = dialect.flatten();
        let alone = pd
            .item("alone")
            .and_then(|item| Some((item.flag()?, item.span.clone())));
        let decodes_alone = dialect.is_none_or(Dialect::decodes_alone);
        if let Some((true, span)) = &alone
            && !decodes_alone
        {
            pd.report().push(
                Problem::new(
                    Code::NotSupported,
                    span,
                    "SGLang's decode workers serve no request alone",
                )
                .help("leave `alone` out: started as decode workers, they wait for a prefill worker's cache"),
            );
        }
        let mut timeout = |key| pd.item(key).and_then(|item| item.duration(&TIMEOUTS));
        self.config = PdConfig {
            dialect,
            alone: alone.map_or(decodes_alone, |(alone, _)| alone),
            connect_timeout: timeout("connect-timeout"),
            prefill_timeout: timeout("prefill-timeout"),
            first_token_timeout: timeout("first-token-timeout"),
            idle_timeout: timeout("idle-timeout"),
        };
        pd.finish();
    }

    /// Warns of a pool that has workers, but none for one of the two sides.
    pub(crate) fn check_sides(&self, pool: &str, roles: &[Role], report: &Report) {
        let has = |role| roles.contains(&role);
        let missing: Vec<&str> = [Role::Prefill, Role::Decode]
            .into_iter()
            .filter(|&role| !has(role))
            .map(Role::as_str)
            .collect();
        if missing.is_empty() || !self.is_readable {
            return;
        }
        let meanwhile = match (has(Role::Mixed), has(Role::Decode) && self.config.alone) {
            (true, true) => "its requests go whole to the mixed and the decode workers",
            (true, false) => "its requests go whole to the mixed workers",
            (false, true) => "its requests go whole to the decode workers",
            (false, false) => "its requests are refused",
        };
        report.push(
            Problem::new(
                Code::OneSidedPool,
                &self.key_span,
                format!(
                    "the pool `{}` has no {} worker to split requests with",
                    pool,
                    missing.join(" and no ")
                ),
            )
            .help(format!("until it has both, {meanwhile}")),
        );
    }
}

/// Reads the role of a worker; `None` if it is invalid.
pub(crate) fn read_role(worker: &mut Section<'_>, pd: Option<&DeclaredPd>) -> Option<Role> {
    let Some(item) = worker.item("role") else {
        return Some(Role::Mixed);
    };
    let roles = [Role::Mixed, Role::Prefill, Role::Decode].map(|role| (role.as_str(), role));
    let role = item.choice(&roles)?;
    if role != Role::Mixed && pd.is_none() {
        item.report.push(
            Problem::new(
                Code::NeedsKey,
                &item.span,
                format!("a {} worker needs a pool with `pd`", role.as_str()),
            )
            .help(format!(
                "add pd = {{ dialect = \"auto\" }} to its pool, or the dialect of its engines: {}",
                quoted(Dialect::ALL)
            )),
        );
        return None;
    }
    Some(role)
}

/// Returns the names of dialects in quotes, with commas between them.
fn quoted(dialects: impl IntoIterator<Item = Dialect>) -> String {
    let names = dialects
        .into_iter()
        .map(|dialect| format!("{:?}", dialect.as_str()));
    names.collect::<Vec<_>>().join(", ")
}

/// Reads `bootstrap` of a worker with this role; `None` if it is invalid.
pub(crate) fn read_bootstrap(
    worker: &mut Section<'_>,
    role: Option<Role>,
    pd: Option<&DeclaredPd>,
) -> Option<String> {
    let item = worker.item("bootstrap")?;
    let useless = |why: &str, help: &str| {
        item.report.push(
            Problem::new(
                Code::NeedsKey,
                &item.key_span,
                format!("`bootstrap` has no effect {why}"),
            )
            .help(help),
        );
    };
    let dialect = pd.map(|pd| pd.config.dialect);
    match (dialect, role) {
        (None, _) => useless(
            "in a pool without `pd`",
            &format!(
                "leave it out; or add pd = {{ dialect = \"{}\" }} to the pool, and role = \"prefill\" here",
                Dialect::Mooncake.as_str()
            ),
        ),
        (Some(Some(dialect)), _) if !dialect.has_bootstrap() => useless(
            &format!("for workers that speak `{}`", dialect.as_str()),
            &format!(
                "leave it out: only prefill workers of {} have a bootstrap server",
                quoted(Dialect::ALL.into_iter().filter(|dialect| dialect.has_bootstrap()))
            ),
        ),
        (_, Some(role)) if role != Role::Prefill => useless(
            &format!("on a {} worker", role.as_str()),
            "put it on the prefill worker whose bootstrap server it is",
        ),
        _ => {}
    }
    plain_url(&item.text()?, item.report)
}
