//! `GET /admin/me`: what the sender of a request may do, and the parts of the router that are off.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::access::{AdminKey, SentAdminKey};
use crate::control::Status;
use crate::refusal::only_get;

/// Sources of the page.
#[derive(Debug, Clone)]
pub(crate) struct MePage {
    pub(crate) key: AdminKey,
    pub(crate) status: Status,
}

/// The page.
#[derive(Debug, Serialize)]
struct Me {
    /// `admin` with the admin key, else `reader`.
    role: &'static str,
    key_configured: bool,
    /// The sent key: `none`, `right` or `wrong`.
    key: &'static str,
    reads_need_key: bool,
    version: &'static str,
    generation: u64,
    disabled: Disabled,
}

/// Reasons why parts of the pages are off. Parts without a reason are on.
#[derive(Debug, Serialize)]
struct Disabled {
    lookup: Option<&'static str>,
    upload: Option<&'static str>,
    apply: Option<&'static str>,
    replay: Option<&'static str>,
    simulate: Option<&'static str>,
    changes: Option<&'static str>,
}

/// Reason for a missing right.
pub(crate) const NO_KEY: &str =
    "no admin key is configured: set `admin-api-key` of [server], or ADMIN_API_KEY before the start";
const NO_FOLDER: &str = "no policy folder is configured: set `policy-dir`";
const NO_LOG: &str = "no traffic is recorded: set `file` and `prompt-blocks` of [record]";
const NO_FILE: &str = "the configuration is made of flags: start the router with `--config FILE`";

impl MePage {
    pub(crate) fn pages(self) -> Router {
        let show = |State(page): State<Self>, headers: HeaderMap| async move { Json(page.show(&headers)) };
        Router::new()
            .route("/admin/me", get(show).fallback(only_get))
            .with_state(self)
    }

    fn show(&self, headers: &HeaderMap) -> Me {
        let key = self.key.sent(headers);
        let config = self.status.config();
        let changes = (key.is_none()).then_some(NO_KEY);
        let policies = self.status.policies();
        let has_folder = policies.policy_dir.is_some();
        let has_log = policies.explore.is_some_and(|explore| explore.log.is_some());
        Me {
            role: match key {
                Some(SentAdminKey::Right) => "admin",
                _ => "reader",
            },
            key_configured: key.is_some(),
            key: key.unwrap_or(SentAdminKey::Missing).as_str(),
            reads_need_key: self.key.guards_reads(),
            version: env!("CARGO_PKG_VERSION"),
            generation: config.generation,
            disabled: Disabled {
                lookup: changes,
                upload: changes.or((!has_folder).then_some(NO_FOLDER)),
                apply: changes.or((!config.is_file).then_some(NO_FILE)),
                replay: changes,
                simulate: changes.or((!has_log).then_some(NO_LOG)),
                changes,
            },
        }
    }
}
