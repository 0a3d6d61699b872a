//! `[replicas]`: exchange of loads with the other routers of a fleet.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;
use crate::file::{NamedFile, read_file};
use crate::name;

/// `[replicas]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicasConfig {
    /// NATS servers, in the order of the file.
    pub servers: Vec<String>,
    /// Name of the fleet: routers share with those of the same name.
    pub fleet: String,
    /// Name of this router, as the others show it.
    pub name: Option<String>,
    /// Shortest time between two messages with loads while requests are held; twice that otherwise.
    pub share_every: Duration,
    /// Silence after which another router's loads fade.
    pub dead_after: Duration,
    /// Credentials file of NATS.
    pub credentials: Option<NamedFile>,
    /// User and password, if the servers have users without credentials files.
    pub login: Option<ReplicaLogin>,
    /// Copies of each agreed entry in the cluster of the servers.
    pub agreed_copies: u64,
    /// Certificates of the servers' authorities.
    pub ca: Option<NamedFile>,
}

/// User and password of NATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaLogin {
    /// Name of the user.
    pub user: String,
    /// File with the password.
    pub password_file: NamedFile,
}

const COPIES: RangeInclusive<u64> = 1..=5;
const PERIODS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);
const SILENCES: RangeInclusive<Duration> = Duration::from_millis(1_000)..=Duration::from_secs(60);
/// Help for a file without a name.
const FILE: &str = "name a file, or leave the key out";
/// Most servers.
const MOST: usize = 16;

pub(crate) fn read(section: Option<Section<'_>>) -> Option<ReplicasConfig> {
    let mut replicas = section?;
    let servers = replicas.required("servers", "[\"nats://127.0.0.1:4222\"]");
    let servers = servers.map_or_else(Vec::new, |item| read_servers(&item));
    let named = |item: Item<'_>, what: &str| {
        let text = item.text()?;
        name::check(text.text, "-_", what, &text.span, item.report).then(|| text.text.to_owned())
    };
    let config = ReplicasConfig {
        fleet: replicas
            .item("fleet")
            .and_then(|item| named(item, "a fleet"))
            .unwrap_or_else(|| "main".to_owned()),
        name: replicas.item("name").and_then(|item| named(item, "a router")),
        share_every: replicas.duration("share-every", Duration::from_millis(5), PERIODS),
        dead_after: replicas.duration("dead-after", Duration::from_millis(1_500), SILENCES),
        credentials: replicas
            .item("credentials")
            .and_then(|item| read_file(&item, FILE)),
        login: read_login(&mut replicas),
        agreed_copies: replicas.count("agreed-copies", 1, COPIES),
        ca: replicas.item("ca").and_then(|item| read_file(&item, FILE)),
        servers,
    };
    replicas.finish();
    (!config.servers.is_empty()).then_some(config)
}

/// Reads the user with its password. Each needs the other.
fn read_login(replicas: &mut Section<'_>) -> Option<ReplicaLogin> {
    let (user, file) = (replicas.item("user"), replicas.item("password-file"));
    let (Some(user), Some(file)) = (&user, &file) else {
        if let Some(lonely) = user.or(file) {
            let message = format!("`{}` needs its counterpart", lonely.key);
            let problem = Problem::new(Code::InvalidValue, &lonely.span, message);
            lonely.report.push(
                problem.help("set `user` and `password-file` together, or `credentials` instead of both"),
            );
        }
        return None;
    };
    Some(ReplicaLogin {
        user: user.text()?.text.to_owned(),
        password_file: read_file(file, FILE)?,
    })
}

fn read_servers(item: &Item<'_>) -> Vec<String> {
    let Some(texts) = item.text_or_texts() else {
        return Vec::new();
    };
    if texts.is_empty() || texts.len() > MOST {
        let message = format!("`{}` must have 1 to {MOST} servers", item.key);
        let problem = Problem::new(Code::InvalidValue, &item.span, message);
        item.report.push(
            problem.help("name at least one server of the NATS cluster; the client learns of the others"),
        );
        return Vec::new();
    }
    let mut servers = Vec::new();
    for text in texts {
        let rest = ["nats://", "tls://"]
            .iter()
            .find_map(|scheme| text.text.strip_prefix(scheme));
        let is_address = rest.is_some_and(|rest| {
            let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "4222"));
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@/?#\\".contains(&byte);
            !host.is_empty() && host.bytes().all(is_plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if is_address {
            servers.push(text.text.to_owned());
        } else {
            let message = format!(
                "`{}` is not the address of a NATS server",
                without_user(text.text)
            );
            let problem = Problem::new(Code::InvalidAddress, &text.span, message);
            item.report.push(problem.help(
                "write nats://HOST:PORT, or tls://HOST:PORT for TLS; secrets belong into `credentials`",
            ));
        }
    }
    servers
}
