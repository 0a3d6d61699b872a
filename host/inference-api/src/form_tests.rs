//! Tests of accepted and refused forms.

use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=b";

fn part(disposition: &str, value: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
}

fn body(parts: &[String]) -> String {
    format!("{}--b--\r\n", parts.concat())
}

#[track_caller]
fn check(content_type: &str, body: &str, model: Option<&str>) {
    let form = Form::read(content_type.as_bytes(), body.as_bytes());
    assert_eq!(form.map(|form| form.model), Ok(model), "{content_type} {body:?}");
}

#[track_caller]
fn refused(content_type: &str, body: &str, expected: FormError) {
    let form = Form::read(content_type.as_bytes(), body.as_bytes());
    assert_eq!(form, Err(expected), "{content_type} {body:?}");
}

#[test]
fn a_form_has_its_model_whether_it_streams_and_how_large_it_is() {
    let text = body(&[
        part("name=\"file\"; filename=\"a.wav\"", "\0\r\n--c\r\n\u{fffd}"),
        part("name=\"model\"", "whisper"),
        part("name=\"stream\"", "True"),
        part("name=\"prompt\"", ""),
    ]);
    let form = Form::read(TYPE.as_bytes(), text.as_bytes()).unwrap();
    assert_eq!((form.model, form.stream), (Some("whisper"), true));
    assert_eq!(
        form.size,
        FormSize {
            text_bytes: 11,
            files: 1
        }
    );
}

#[test]
fn boundaries_are_read_quoted_and_unquoted_in_any_case() {
    let text = body(&[part("name=model", "m")]);
    for content_type in [
        "multipart/form-data; boundary=\"b\"",
        "Multipart/Form-Data;charset=utf-8 ; Boundary=b ",
        "multipart/form-data; x=\"; boundary=c\"; boundary=b;",
    ] {
        check(content_type, &text, Some("m"));
    }
    let longest = "b".repeat(70);
    let text = text.replace("--b", &format!("--{longest}"));
    check(
        &format!("multipart/form-data; boundary={longest}"),
        &text,
        Some("m"),
    );
}

#[test]
fn a_type_without_one_clear_boundary_is_refused() {
    let text = body(&[part("name=model", "m")]);
    let longest = "b".repeat(71);
    for content_type in [
        "application/json",
        "multipart/mixed; boundary=b",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"b",
        "multipart/form-data; boundary=b; boundary=c",
        "multipart/form-data; boundary*=utf-8''b",
        "multipart/form-data; boundary=\"b\\\"\"",
        &format!("multipart/form-data; boundary={longest}"),
    ] {
        refused(content_type, &text, FormError::NoBoundary);
    }
}

#[test]
fn a_form_without_an_end_or_a_beginning_is_refused() {
    let text = body(&[part("name=model", "m")]);
    for cut in 0..text.len() - 4 {
        assert!(
            Form::read(TYPE.as_bytes(), &text.as_bytes()[..cut]).is_err(),
            "cut at {cut}"
        );
    }
    refused(TYPE, "", FormError::NoEnd);
    refused(TYPE, "--c\r\n\r\n--c--", FormError::NoEnd);
    refused(TYPE, "--b", FormError::NoEnd);
    // No part at all names no model.
    check(TYPE, "--b--", None);
    check(TYPE, &format!("before\r\n{text}after"), Some("m"));
}

#[test]
fn text_that_resembles_a_delimiter_belongs_to_its_part() {
    // An inner form, whose boundary begins like the outer one.
    let inner = "--bb\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ninner\r\n--bb--";
    let text = body(&[part("name=\"x\"", inner), part("name=\"model\"", "m\n--b")]);
    check(TYPE, &text, Some("m\n--b"));
    // Ended by CRLF alone.
    refused(TYPE, &text.replace("\r\n", "\n"), FormError::NoEnd);
}

#[test]
fn the_headers_of_a_part_are_bounded_and_its_name_is_plain() {
    let long = "x".repeat(LONGEST_HEAD);
    refused(
        TYPE,
        &body(&[part(&format!("name=model; x={long}"), "m")]),
        FormError::HeadTooLong,
    );
    for disposition in [
        "name=\"model",
        "name=model; name=model",
        "name*=utf-8''model",
        "name*0=mo; name*1=del",
        "name=\"mo\\del\"",
        "name=\"model\"x",
        "filename=\"model\"",
        "name",
    ] {
        refused(TYPE, &body(&[part(disposition, "m")]), FormError::BadName);
    }
    let named = |head: &str| format!("--b\r\n{head}\r\n\r\nm\r\n--b--");
    for head in [
        "Content-Type: text/plain",
        "Content-Disposition: attachment; name=model",
        "Content-Disposition: form-data; name=x\r\nContent-Disposition: form-data; name=model",
        "Content-Disposition: form-data;\r\n name=model",
        "Content-Disposition : form-data; name=model",
        "no colon",
    ] {
        refused(TYPE, &named(head), FormError::BadName);
    }
    refused(TYPE, "--b\r\n\r\nm\r\n--b--", FormError::BadName);
    check(
        TYPE,
        &named("X: y\r\ncontent-disposition:FORM-DATA;NAME=model"),
        Some("m"),
    );
}

#[test]
fn a_model_is_named_once_or_the_same_way_twice() {
    let model = |value: &str| part("name=\"model\"", value);
    check(TYPE, &body(&[model("m"), model("m")]), Some("m"));
    refused(TYPE, &body(&[model("m"), model("n")]), FormError::TwoModels);
    // A file is not a model name.
    let file = part("name=\"model\"; filename=\"n\"", "n");
    check(TYPE, &body(&[model("m"), file]), Some("m"));
    refused(
        TYPE,
        &body(&[model(&"m".repeat(LONGEST_MODEL + 1))]),
        FormError::BadModel,
    );
    let text = body(&[model("m?")]).replace("m?", "m\u{1}");
    let mut bytes = text.into_bytes();
    let at = bytes.iter().position(|byte| *byte == 1).unwrap();
    bytes[at] = 0xff;
    assert_eq!(Form::read(TYPE.as_bytes(), &bytes), Err(FormError::BadModel));
}

#[test]
fn the_number_of_parts_is_bounded() {
    let parts = |count| body(&vec![part("name=x", "1"); count]);
    check(TYPE, &parts(MOST_PARTS), None);
    refused(TYPE, &parts(MOST_PARTS + 1), FormError::TooManyParts);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        content_type in r#"multipart/form-data(; ?(boundary|x)=("[a-b\\"]{0,4}"?|[a-b;]{0,3})){0,3}"#,
        pieces in prop::collection::vec(prop::sample::select(vec![
            "\r\n", "--b", "--", "b", "\n", "Content-Disposition: form-data; name=", "model", "\"", ":", ";", "=", "\\", "x",
        ]), 0..40),
    ) {
        let _ = Form::read(content_type.as_bytes(), pieces.concat().as_bytes());
    }
}
