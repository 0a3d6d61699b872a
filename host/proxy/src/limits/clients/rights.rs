//! Permissions for engine fields that affect other clients.

use http::HeaderMap;
use inference_api::Peek;
use worker_client::X_DATA_PARALLEL_RANK;

use super::principal::Principal;
use crate::base::reply::Refusal;

/// Inputs of the check of a request's engine fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldCheck<'a> {
    /// Class of the request's route.
    pub(crate) class: Option<i32>,
    /// Class that the body states, if the pool reads it.
    pub(crate) body_class: Option<i64>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peek: &'a Peek<'a>,
}

impl Principal {
    /// Checks a request's engine fields against the client's permissions.
    pub(crate) fn check_fields(&self, request: FieldCheck<'_>) -> Result<(), Refusal> {
        let field = self.forbidden_field(request);
        if let Some(field) = field {
            self.ledger.metrics.refused.field.inc();
            return Err(Refusal::FieldNotAllowed { field });
        }
        let Some(adapter) = self.forbidden_adapter(request.peek) else {
            return Ok(());
        };
        self.ledger.metrics.refused.model.inc();
        Err(Refusal::not_served(&adapter))
    }

    fn forbidden_field(&self, request: FieldCheck<'_>) -> Option<&'static str> {
        if request.peek.sets_priority() && !self.may_set.priority && !self.is_within_class(request) {
            return Some("priority");
        }
        if self.may_set.rank {
            return None;
        }
        let in_headers = request.headers.contains_key(X_DATA_PARALLEL_RANK);
        in_headers
            .then_some("X-data-parallel-rank")
            .or_else(|| request.peek.rank_field())
    }

    /// Returns `true` if the pool reads the body's `priority`, and it does not exceed the client's own class.
    fn is_within_class(&self, request: FieldCheck<'_>) -> bool {
        let class = request.class.unwrap_or(self.priority);
        request.body_class.is_some_and(|own| own <= class.into())
    }

    /// Returns an adapter named beside the model that the client may not use.
    fn forbidden_adapter(&self, peek: &Peek<'_>) -> Option<String> {
        match peek.adapters() {
            Ok(names) => names
                .into_iter()
                .find(|name| !self.may_use(name))
                .map(|name| name.into_owned()),
            // An unreadable body may name any adapter.
            Err(_) => (!self.may_use_all()).then(|| "lora_path".to_owned()),
        }
    }
}
