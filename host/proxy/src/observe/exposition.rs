//! `/metrics`: the format and the compression that a scraper accepts.

use std::io::{self, Write as _};
use std::sync::Arc;

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, Response};
use observability::{ExemplarBook, openmetrics_page, plain_text};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::base::reply::{self, Refusal};

/// Most pages that are made at once. Others wait.
const MOST_AT_ONCE: usize = 2;

/// The registry that `/metrics` shows.
#[derive(Debug)]
pub(crate) struct Exposition {
    registry: Arc<Registry>,
    exemplars: ExemplarBook,
    turns: Semaphore,
}

/// Format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// Returns the format that a scraper prefers. OpenMetrics only if it accepts it.
    fn accepted(headers: &HeaderMap) -> Self {
        let (mut openmetrics, mut text) = (0.0_f64, 0.0_f64);
        for range in items(headers, &ACCEPT) {
            let kind = range.split(';').next().unwrap_or_default().trim();
            let weight = weight(range);
            if kind.eq_ignore_ascii_case("application/openmetrics-text") {
                openmetrics = openmetrics.max(weight);
            } else if ["text/plain", "text/*", "*/*"]
                .iter()
                .any(|own| kind.eq_ignore_ascii_case(own))
            {
                text = text.max(weight);
            }
        }
        if openmetrics > 0.0 && openmetrics >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        })
    }
}

/// Returns whether a scraper takes a compressed page.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let is_gzip = |item: &str| {
        let name = item.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("gzip") && weight(item) > 0.0
    };
    items(headers, &ACCEPT_ENCODING).any(is_gzip)
}

/// Returns the items of a header that is a list.
fn items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let lines = headers.get_all(name).iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
}

/// Returns the weight of an item, 1 if it states none.
fn weight(item: &str) -> f64 {
    let mut parameters = item.split(';').skip(1).map(str::trim);
    let stated = parameters.find_map(|one| one.strip_prefix("q=").or_else(|| one.strip_prefix("Q=")));
    stated.map_or(1.0, |weight| weight.parse().unwrap_or(0.0))
}

impl Exposition {
    pub(crate) fn new(registry: Arc<Registry>, exemplars: ExemplarBook) -> Self {
        Self {
            registry,
            exemplars,
            turns: Semaphore::new(MOST_AT_ONCE),
        }
    }

    /// Answers a scrape. The page is made on a thread of its own: large fleets take milliseconds.
    pub(crate) async fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let (format, is_compressed) = (Format::accepted(headers), takes_gzip(headers));
        let (registry, exemplars) = (Arc::clone(&self.registry), self.exemplars.clone());
        // The semaphore is never closed. Without a turn, the page is made all the same.
        let _turn = self.turns.acquire().await;
        let page =
            tokio::task::spawn_blocking(move || page(&registry, &exemplars, format, is_compressed)).await;
        let Ok(Ok(page)) = page else {
            return reply::refuse(&Refusal::ShuttingDown).map(Body::from);
        };
        let mut response = Response::new(Body::from(page));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, format.content_type());
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if is_compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

fn page(
    registry: &Registry,
    exemplars: &ExemplarBook,
    format: Format,
    is_compressed: bool,
) -> io::Result<Vec<u8>> {
    let mut text = String::new();
    encode(&mut text, registry).map_err(io::Error::other)?;
    let text = match format {
        Format::OpenMetrics => openmetrics_page(&text, exemplars),
        Format::Text => plain_text(&text),
    };
    if !is_compressed {
        return Ok(text.into_bytes());
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn openmetrics_is_for_scrapers_that_accept_it() {
        let check = |accept: &str, expected| {
            assert_eq!(Format::accepted(&headers(ACCEPT, accept)), expected, "{accept}");
        };
        assert_eq!(Format::accepted(&HeaderMap::new()), Format::Text);
        check("*/*", Format::Text);
        check("application/openmetrics-text", Format::OpenMetrics);
        check(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Format::OpenMetrics,
        );
        check(
            "text/plain;version=0.0.4, application/openmetrics-text;q=0.5",
            Format::Text,
        );
        check("application/openmetrics-text;q=0, text/html", Format::Text);
        check("application/openmetrics-text; q=x", Format::Text);
    }

    #[test]
    fn a_page_is_compressed_for_those_who_take_it() {
        let check = |accept: &str, expected| {
            assert_eq!(
                takes_gzip(&headers(ACCEPT_ENCODING, accept)),
                expected,
                "{accept}"
            );
        };
        assert!(!takes_gzip(&HeaderMap::new()));
        check("gzip", true);
        check("deflate, GZIP;q=0.5", true);
        check("gzip;q=0", false);
        check("identity", false);
    }

    #[tokio::test]
    async fn a_compressed_page_has_the_same_text() {
        let mut registry = Registry::default();
        registry.register("a", "Help", Counter::<u64>::default());
        let exposition = Exposition::new(Arc::new(registry), ExemplarBook::default());
        let answer = exposition.answer(&headers(ACCEPT_ENCODING, "gzip")).await;
        assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(
            answer.headers()[CONTENT_TYPE],
            "text/plain; version=0.0.4; charset=utf-8"
        );
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut text = String::new();
        GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "# HELP a_total Help.\n# TYPE a_total counter\na_total 0\n");
    }
}
