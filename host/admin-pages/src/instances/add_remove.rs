//! Parser of the body of a request that changes the fleet.

use axum::http::StatusCode;
use conductor_config::{bootstrap_address, check_worker_name, worker_address};
use routing::Role;
use serde::Deserialize;

use crate::refusal::Refusal;
use runtime_overrides::{Addition, InstanceChange, Removal};

const FORM: &str = r#"send for example {"type": "decode", "instance": "10.0.0.7:8000"}"#;

/// Request body as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverlayRequest {
    r#type: Option<String>,
    instance: String,
    pool: Option<String>,
    name: Option<String>,
    bootstrap: Option<String>,
}

/// Parses an addition.
pub(super) fn addition(body: &[u8]) -> Result<InstanceChange, Refusal> {
    let form = read(body)?;
    let missing = || {
        let message = format!("`type` is missing: say what the instance is to do; {FORM}");
        bad("type_missing", message).of("type")
    };
    if let Some(name) = &form.name {
        check_worker_name(name).map_err(|why| bad("name_invalid", why).of("name"))?;
    }
    Ok(InstanceChange::Add(Addition {
        url: instance(&form.instance)?,
        role: role(form.r#type.as_deref())?.ok_or_else(missing)?,
        bootstrap: form.bootstrap.as_deref().map(bootstrap).transpose()?,
        name: form.name,
        pool: form.pool,
    }))
}

/// Parses a removal.
pub(super) fn removal(body: &[u8]) -> Result<InstanceChange, Refusal> {
    let form = read(body)?;
    if form.bootstrap.is_some() {
        let message = "`bootstrap` means nothing for an instance that is removed: leave it out";
        return Err(bad("bootstrap_not_allowed", message).of("bootstrap"));
    }
    Ok(InstanceChange::Remove(Removal {
        url: instance(&form.instance)?,
        role: role(form.r#type.as_deref())?,
        name: form.name,
        pool: form.pool,
    }))
}

fn read(body: &[u8]) -> Result<OverlayRequest, Refusal> {
    // A struct is also read from an array of its fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(bad(
            "invalid_json",
            format!("the body is not a JSON object; {FORM}"),
        ));
    }
    serde_json::from_slice(body).map_err(|error| {
        bad(
            "invalid_json",
            format!("the body cannot be read: {error}; {FORM}"),
        )
    })
}

fn role(text: Option<&str>) -> Result<Option<Role>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let mut roles = [Role::Prefill, Role::Decode, Role::Mixed].into_iter();
    let found = roles.find(|role| role.as_str() == text);
    let unknown = || {
        let message = format!("`type` is `{text}`: it must be `prefill`, `decode` or `mixed`");
        bad("type_unknown", message).of("type")
    };
    found.map(Some).ok_or_else(unknown)
}

/// Parses the URL of an instance, whose `http://` may be left out.
fn instance(text: &str) -> Result<String, Refusal> {
    worker_address(&with_scheme(text)).map_err(|why| bad("address_invalid", why).of("instance"))
}

/// Parses the URL of a bootstrap server, whose `http://` may be left out.
fn bootstrap(text: &str) -> Result<String, Refusal> {
    bootstrap_address(&with_scheme(text)).map_err(|why| bad("address_invalid", why).of("bootstrap"))
}

fn with_scheme(text: &str) -> String {
    if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    }
}

fn bad(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_read_with_or_without_its_scheme() {
        for instance in ["GPU-1:8000", "http://gpu-1:8000", "http://gpu-1:8000/"] {
            let body = format!(r#"{{"type": "decode", "instance": "{instance}"}}"#);
            let Ok(InstanceChange::Add(addition)) = addition(body.as_bytes()) else {
                panic!("refused {instance}")
            };
            assert_eq!(addition.url, "http://gpu-1:8000");
            assert_eq!(addition.role, Role::Decode);
        }
    }

    #[test]
    fn an_instance_without_a_port_is_at_the_schemes_own() {
        let Ok(InstanceChange::Add(addition)) = addition(br#"{"type": "decode", "instance": "gpu-1"}"#)
        else {
            panic!("refused")
        };
        assert_eq!(addition.url, "http://gpu-1:80");
    }

    #[track_caller]
    fn check(change: Result<InstanceChange, Refusal>, code: &str, expected: &str) {
        let refusal = change.unwrap_err();
        assert_eq!(
            (refusal.status, refusal.code),
            (StatusCode::BAD_REQUEST, code),
            "{}",
            refusal.message
        );
        assert!(refusal.message.contains(expected), "{}", refusal.message);
    }

    #[test]
    fn an_invalid_instance_body_is_refused_with_a_hint() {
        check(addition(b"{"), "invalid_json", "10.0.0.7:8000");
        check(addition(b"[1]"), "invalid_json", "10.0.0.7:8000");
        check(addition(br#"{"type": "decode"}"#), "invalid_json", "`instance`");
        check(
            addition(br#"{"type": "decode", "instance": "a:1", "role": "x"}"#),
            "invalid_json",
            "`role`",
        );
        check(addition(br#"{"instance": "a:1"}"#), "type_missing", "`type`");
        check(
            addition(br#"{"type": "both", "instance": "a:1"}"#),
            "type_unknown",
            "`prefill`",
        );
        for instance in [
            "a:0",
            "a:b",
            "ftp://a:1",
            "a:1/v1",
            "http://u:p@a:1",
            "https://a..b:1",
            "",
        ] {
            let body = format!(r#"{{"type": "mixed", "instance": "{instance}"}}"#);
            check(addition(body.as_bytes()), "address_invalid", "");
        }
        check(
            addition(br#"{"type": "prefill", "instance": "a:1", "bootstrap": "https://a:2"}"#),
            "address_invalid",
            "over https",
        );
        check(
            addition(br#"{"type": "mixed", "instance": "a:1", "name": "a b"}"#),
            "name_invalid",
            "a b",
        );
        check(
            removal(br#"{"instance": "a:1", "bootstrap": "a:2"}"#),
            "bootstrap_not_allowed",
            "leave it out",
        );
    }
}
