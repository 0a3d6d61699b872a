//! The inference endpoints, by path.

/// An endpoint whose requests are placed on workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 4] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
    ];

    /// The endpoint at a path, without its query.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::ChatCompletions),
            "/v1/completions" => Some(Self::Completions),
            "/v1/embeddings" => Some(Self::Embeddings),
            "/v1/responses" => Some(Self::Responses),
            _ => None,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_found_at_its_own_path() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::of_path(endpoint.path()), Some(endpoint));
        }
        assert_eq!(Endpoint::of_path("/v1/completions/"), None);
    }
}
