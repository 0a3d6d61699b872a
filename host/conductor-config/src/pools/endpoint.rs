//! Worker URLs, and ZMQ endpoints of KV events.

use crate::address::{has_certificates, one_spelling, split_host_or_port, split_host_port};
use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::{Problem, Report};
use crate::document::value::Text;

const URL_EXAMPLE: &str = "write http://HOST:PORT, for example \"http://127.0.0.1:8000\"";

/// Reads a worker's URL as `http://host:port` or `https://host:port`. The host is canonical, so equal servers are
/// equal texts.
pub(crate) fn worker_url(url: &Text<'_>, report: &Report) -> Option<String> {
    let invalid = |why: &str, help: &str| {
        report.push(
            Problem::new(
                Code::InvalidAddress,
                &url.span,
                format!("`{}` is not the URL of a server: {why}", without_user(url.text)),
            )
            .help(help),
        );
        None
    };
    let schemes = ["http://", "https://"];
    let found = schemes
        .into_iter()
        .find_map(|scheme| Some((scheme, url.text.strip_prefix(scheme)?)));
    let Some((scheme, rest)) = found else {
        return invalid("it begins with neither http:// nor https://", URL_EXAMPLE);
    };
    if rest.contains('@') {
        // The message is logged, so it does not repeat the password.
        report.push(
            Problem::new(
                Code::InvalidAddress,
                &url.span,
                "the URL of a worker carries credentials",
            )
            .help("leave them out: the client's own headers are forwarded"),
        );
        return None;
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return invalid(
            "it goes on after the port",
            "end it at the port: the path of each request is forwarded as it is",
        );
    }
    let default_port = if scheme == "https://" { 443 } else { 80 };
    match split_host_or_port(authority, default_port) {
        // The request path refuses such a URL too, for the whole configuration and without its place.
        Ok((host, _)) if scheme == "https://" && !has_certificates(host) => invalid(
            "no certificate can be checked for its host",
            "write an IP address or a DNS name: labels of 1 to 63 characters without `-` at their ends, the last \
             one not a number",
        ),
        Ok((host, port)) => Some(format!("{scheme}{}:{port}", one_spelling(host))),
        Err(fault) => invalid(fault.why(), URL_EXAMPLE),
    }
}

/// Reads a URL that must be `http://`.
pub(crate) fn plain_url(url: &Text<'_>, report: &Report) -> Option<String> {
    if url.text.starts_with("https://") {
        report.push(
            Problem::new(
                Code::NotSupported,
                &url.span,
                "bootstrap servers are not queried over https",
            )
            .help("write http://: engines serve them without TLS"),
        );
        return None;
    }
    worker_url(url, report)
}

/// Reads an endpoint to connect to: `tcp://host:port` or `ipc://path`.
pub(crate) fn zmq_endpoint(endpoint: &Text<'_>, report: &Report) -> Option<String> {
    let fault = match endpoint.text.split_once("://") {
        Some(("ipc", path)) if !path.is_empty() => return Some(endpoint.text.to_owned()),
        Some(("ipc", _)) => (
            "it has no path",
            "for example \"ipc:///run/vllm/kv-events\"".to_owned(),
        ),
        Some(("tcp", address)) => match bound_port(address) {
            Some(port) => (
                "the publisher binds it, on every interface",
                format!(
                    "keep it in the publisher's own settings (vLLM: --kv-events-config) and write \
                     \"tcp://HOST:{port}\" here, with the host Conductor reaches it at"
                ),
            ),
            None => match split_host_port(address) {
                Ok(_) => return Some(endpoint.text.to_owned()),
                Err(fault) => (fault.why(), "for example \"tcp://127.0.0.1:5557\"".to_owned()),
            },
        },
        _ => (
            "it begins with neither tcp:// nor ipc://",
            "for example \"tcp://127.0.0.1:5557\"; or \"auto\" to query the worker, \"off\" for none"
                .to_owned(),
        ),
    };
    let (why, help) = fault;
    report.push(
        Problem::new(
            Code::InvalidAddress,
            &endpoint.span,
            format!(
                "`{}` is not an endpoint to connect to: {why}",
                without_user(endpoint.text)
            ),
        )
        .help(help),
    );
    None
}

/// Reads an endpoint to bind: `tcp://interface:port`, all interfaces as `*` or `0.0.0.0`, or `ipc://path`.
pub(crate) fn bind_endpoint(endpoint: &Text<'_>, report: &Report) -> Option<String> {
    let why = match endpoint.text.split_once("://") {
        Some(("ipc", path)) if !path.is_empty() => return Some(endpoint.text.to_owned()),
        Some(("ipc", _)) => "it has no path",
        Some(("tcp", address)) => {
            let address = match bound_port(address) {
                Some(port) => format!("0.0.0.0:{port}"),
                None => address.to_owned(),
            };
            match split_host_port(&address) {
                Ok(_) => return Some(format!("tcp://{address}")),
                Err(fault) => fault.why(),
            }
        }
        _ => "it begins with neither tcp:// nor ipc://",
    };
    report.push(
        Problem::new(
            Code::InvalidAddress,
            &endpoint.span,
            format!(
                "`{}` is not an endpoint to bind: {why}",
                without_user(endpoint.text)
            ),
        )
        .help(
            "for example \"tcp://0.0.0.0:5557\", with the engine's endpoint set to \"tcp://THIS-HOST:5557\"",
        ),
    );
    None
}

/// Returns the endpoint of a later rank: its port is higher by `shift`.
pub(crate) fn shifted(endpoint: &str, shift: u16, text: &Text<'_>, report: &Report) -> Option<String> {
    if shift == 0 {
        return Some(endpoint.to_owned());
    }
    let place = endpoint
        .rsplit_once(':')
        .filter(|_| endpoint.starts_with("tcp://"));
    let place = place.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?.checked_add(shift)?)));
    if let Some((host, port)) = place {
        return Some(format!("{host}:{port}"));
    }
    report.push(
        Problem::new(
            Code::InvalidAddress,
            &text.span,
            format!("`{endpoint}` has no place for data-parallel rank {shift} beside it"),
        )
        .help("ranks are on consecutive ports of tcp:// endpoints: lower the port or the number of ranks"),
    );
    None
}

/// Returns the port of `*:port` and of addresses that mean all interfaces.
fn bound_port(address: &str) -> Option<&str> {
    ["*:", "0.0.0.0:", "[::]:"]
        .iter()
        .find_map(|every| address.strip_prefix(every))
}
