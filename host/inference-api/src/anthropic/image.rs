//! Image sources as URLs.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::inner;

#[derive(Deserialize)]
struct ImageSource<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(default, borrow)]
    url: Option<&'a RawValue>,
    #[serde(default, borrow)]
    media_type: Option<&'a RawValue>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

/// Returns the URL of an image as the inside of a JSON string: its own, or a `data:` URL of its bytes.
pub(super) fn url(source: &RawValue) -> Option<String> {
    let source: ImageSource<'_> = serde_json::from_str(source.get()).ok()?;
    let or = |raw: Option<&RawValue>, default: &str| match raw {
        None => Some(default.to_owned()),
        Some(raw) => inner(raw).map(str::to_owned),
    };
    if source.kind.is_some_and(|kind| kind.get() == "\"url\"") {
        return or(source.url, "");
    }
    let media_type = or(source.media_type, "image/jpeg")?;
    Some(format!("data:{media_type};base64,{}", or(source.data, "")?))
}

/// Returns `true` if the source is empty: the engine skips such a block.
pub(super) fn is_empty(source: &RawValue) -> bool {
    let text = source.get();
    text.strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inside| inside.trim_ascii().is_empty())
}
