//! `[server.tls]` and `[pools.NAME.tls]`: PEM files, as written.

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::source::Mark;
use crate::document::value::Item;
use crate::file::{NamedFile, read_file};

/// `[server.tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsConfig {
    /// Certificate chain of the server.
    pub cert: NamedFile,
    /// Private key of the certificate.
    pub key: NamedFile,
    /// Authorities of client certificates; `None` for no client certificates.
    pub client_ca: Option<NamedFile>,
}

/// `[pools.NAME.tls]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTlsConfig {
    /// Authorities of the workers' certificates; `None` for those the system trusts.
    pub ca: Option<NamedFile>,
    /// Client certificate and key for workers; `None` for none.
    pub identity: Option<(NamedFile, NamedFile)>,
    /// Name in the workers' certificates; `None` for the host of each URL.
    pub server_name: Option<String>,
    /// Position of the table.
    pub at: Mark,
}

/// Returns `None` if something is missing, which is reported.
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
                    format!("`{}` has no effect without `{other}`", alone.key),
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

fn file(item: &Item<'_>) -> Option<NamedFile> {
    read_file(item, "name a PEM file")
}
