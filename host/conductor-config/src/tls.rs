//! `[server.tls]` and `[pools.NAME.tls]`: PEM files, as written.

use std::path::PathBuf;

use crate::code::Code;
use crate::diagnostic::Mark;
use crate::report::Problem;
use crate::section::Section;
use crate::value::Item;

/// A PEM file, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    /// A relative one starts at the configuration's folder.
    pub path: PathBuf,
    /// Where the configuration names it.
    pub at: Mark,
}

/// `[server.tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    /// The certificate that clients are shown, then those that vouch for it.
    pub cert: PemFile,
    /// Its key.
    pub key: PemFile,
    /// Authorities of which clients must show a certificate; none: they show none.
    pub client_ca: Option<PemFile>,
}

/// `[pools.NAME.tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTlsConfig {
    /// Authorities that vouch for the workers; none: those the system trusts.
    pub ca: Option<PemFile>,
    /// What workers are shown, and its key; none: nothing.
    pub identity: Option<(PemFile, PemFile)>,
    /// The name in the workers' certificates; none: the host of each URL.
    pub server_name: Option<String>,
    /// Where the table begins.
    pub at: Mark,
}

/// None where something is missing, which is reported.
pub(crate) fn read_server(mut tls: Section<'_>) -> Option<ServerTlsConfig> {
    let cert = tls
        .required("cert", "\"server.crt\"")
        .and_then(|item| file(&item));
    let key = tls.required("key", "\"server.key\"").and_then(|item| file(&item));
    let client_ca = tls.item("client-ca").and_then(|item| file(&item));
    tls.finish();
    Some(ServerTlsConfig {
        cert: cert?,
        key: key?,
        client_ca,
    })
}

pub(crate) fn read_pool(mut tls: Section<'_>) -> PoolTlsConfig {
    let ca = tls.item("ca").and_then(|item| file(&item));
    let (cert, key) = (tls.item("cert"), tls.item("key"));
    let identity = match (&cert, &key) {
        (Some(cert), Some(key)) => file(cert).zip(file(key)),
        (None, None) => None,
        (Some(alone), None) | (None, Some(alone)) => {
            let (other, example) = if alone.key == "cert" {
                ("key", "its private key")
            } else {
                ("cert", "the certificate it belongs to")
            };
            alone.report.push(
                Problem::new(
                    Code::NeedsKey,
                    &alone.key_span,
                    format!("`{}` means nothing without `{other}`", alone.key),
                )
                .help(format!("name the file of {example}")),
            );
            None
        }
    };
    let name = tls.text("server-name");
    if let Some(name) = name.as_ref().filter(|name| name.text.is_empty()) {
        tls.report().push(
            Problem::new(Code::InvalidValue, &name.span, "`server-name` is empty")
                .help("write the name that is in the workers' certificates, or leave the key out"),
        );
    }
    let at = tls.report().mark(tls.span());
    tls.finish();
    PoolTlsConfig {
        at,
        ca,
        identity,
        server_name: name.map(|name| name.text.to_owned()),
    }
}

fn file(item: &Item<'_>) -> Option<PemFile> {
    let text = item.text()?;
    if text.text.is_empty() {
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key))
                .help("name a PEM file"),
        );
        return None;
    }
    Some(PemFile {
        path: PathBuf::from(text.text),
        at: item.report.mark(&text.span),
    })
}
