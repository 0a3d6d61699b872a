//! Topics of the live page.

use crate::query::{Query, QueryError};

/// Topic of the live page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Pools and workers.
    Fleet,
    /// Recorded requests.
    Requests,
    /// Changes of configuration, policies and fleet.
    Changes,
}

impl Topic {
    /// All topics, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Fleet, Self::Requests, Self::Changes];

    /// Returns its name in queries and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Requests => "requests",
            Self::Changes => "changes",
        }
    }

    /// Parses `topics=A,B` of a query string. Without it, all topics are wanted.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn parse(query: &str) -> Result<Vec<Self>, QueryError> {
        let query = Query::parse(query, &["topics"])?;
        let Some(names) = query.text("topics") else {
            return Ok(Self::ALL.to_vec());
        };
        let topic = |name: &str| {
            let known = Self::ALL.into_iter().find(|topic| topic.as_str() == name);
            known.ok_or_else(|| QueryError::Invalid {
                key: "topics",
                value: names.to_owned(),
                expected: "a list of fleet, requests and changes",
            })
        };
        let mut topics = Vec::new();
        for name in names.split(',') {
            let topic = topic(name.trim())?;
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        Ok(topics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_listed_once_each_and_unknown_ones_are_refused() {
        assert_eq!(
            Topic::parse("topics=changes,fleet,changes").unwrap(),
            [Topic::Changes, Topic::Fleet]
        );
        assert_eq!(Topic::parse("").unwrap(), Topic::ALL);
        assert!(Topic::parse("topics=fleet,x").is_err());
        assert!(Topic::parse("topic=fleet").is_err());
    }
}
