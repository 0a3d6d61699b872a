//! Metrics of clients. The configuration limits the number of label values.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientLabel {
    client: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientReasonLabel {
    client: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientKindLabel {
    client: String,
    kind: &'static str,
}

const REASONS: [&str; 5] = ["model", "field", "requests", "tokens", "concurrent"];
const KINDS: [&str; 2] = ["prompt", "output"];

/// The metrics of all clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientFamilies {
    requests: Family<ClientLabel, Counter>,
    running: Family<ClientLabel, Gauge>,
    refusals: Family<ClientReasonLabel, Counter>,
    tokens: Family<ClientKindLabel, Counter>,
    implausible: Family<ClientLabel, Counter>,
}

/// Metrics of requests without a client's key.
#[derive(Debug)]
pub(super) struct Unknown {
    pub(super) no_key: Counter,
    pub(super) wrong_key: Counter,
}

/// Metrics of one client.
#[derive(Debug)]
pub(super) struct ClientMetrics {
    pub(super) requests: Counter,
    pub(super) running: Gauge,
    pub(super) refused: Refused,
    pub(super) prompt_tokens: Counter,
    pub(super) output_tokens: Counter,
    pub(super) implausible: Counter,
}

/// Refusals of one client, by the exceeded limit.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) model: Counter,
    pub(super) field: Counter,
    pub(super) requests: Counter,
    pub(super) tokens: Counter,
    pub(super) concurrent: Counter,
}

impl ClientFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "client_requests",
            "Requests of a client within its limits of requests and of concurrency",
            self.requests.clone(),
        );
        r.register(
            "client_requests_running",
            "Requests of a client in progress",
            self.running.clone(),
        );
        r.register(
            "client_refusals",
            "Refused requests by client and reason; client is empty for requests without a valid key",
            self.refusals.clone(),
        );
        r.register(
            "client_tokens",
            "Prompt and output tokens of a client: from the worker's usage, otherwise estimated",
            self.tokens.clone(),
        );
        r.register(
            "client_implausible_usage",
            "Answers with an implausible usage, for which the router's own count is used",
            self.implausible.clone(),
        );
    }

    pub(super) fn unknown(&self) -> Unknown {
        let refused = |reason| self.refused("", reason);
        Unknown {
            no_key: refused("no-key"),
            wrong_key: refused("wrong-key"),
        }
    }

    pub(super) fn client(&self, name: &str) -> ClientMetrics {
        let client = ClientLabel {
            client: name.to_owned(),
        };
        let tokens = |kind| self.tokens.get_or_create_owned(&of_kind(name, kind));
        let [model, field, requests, tokens_reason, concurrent] =
            REASONS.map(|reason| self.refused(name, reason));
        let [prompt, output] = KINDS;
        ClientMetrics {
            requests: self.requests.get_or_create_owned(&client),
            running: self.running.get_or_create_owned(&client),
            refused: Refused {
                model,
                field,
                requests,
                tokens: tokens_reason,
                concurrent,
            },
            prompt_tokens: tokens(prompt),
            output_tokens: tokens(output),
            implausible: self.implausible.get_or_create_owned(&client),
        }
    }

    fn refused(&self, name: &str, reason: &'static str) -> Counter {
        self.refusals.get_or_create_owned(&for_reason(name, reason))
    }

    /// Removes the metrics of a client that no longer exists.
    pub(crate) fn forget(&self, name: &str) {
        let client = ClientLabel {
            client: name.to_owned(),
        };
        self.requests.remove(&client);
        self.implausible.remove(&client);
        self.running.remove(&client);
        for reason in REASONS {
            self.refusals.remove(&for_reason(name, reason));
        }
        for kind in KINDS {
            self.tokens.remove(&of_kind(name, kind));
        }
    }
}

fn for_reason(name: &str, reason: &'static str) -> ClientReasonLabel {
    ClientReasonLabel {
        client: name.to_owned(),
        reason,
    }
}

fn of_kind(name: &str, kind: &'static str) -> ClientKindLabel {
    ClientKindLabel {
        client: name.to_owned(),
        kind,
    }
}
