//! Conversations with arguments of the template.

use super::*;

/// Plays the simple conversation with these arguments at a time. Returns the number of continued turns.
fn continued_turns(model: &Model, cache: &TokenizationCache, arguments: &str, seconds: u64) -> usize {
    let now = now() + Duration::from_secs(seconds);
    let messages = simple(false).messages;
    let turn = |end: &usize| {
        let (text, positions) = written(&messages[..*end]);
        let chat = Chat {
            messages: &text,
            chat_template_kwargs: Some(arguments),
            positions: &positions,
            ..Chat::default()
        };
        let prepared = model.prepare_chat(&chat, now, cache).unwrap();
        let tokens = model.complete(prepared, cache, &mut Budget::unlimited()).unwrap();
        assert_eq!(tokens.ids.to_vec(), whole(model, &chat).unwrap());
        tokens.is_continued
    };
    [1, 3, 5, 7].iter().filter(|end| turn(end)).count()
}

#[test]
fn arguments_that_no_conversation_uses_any_more_leave_room_for_others() {
    let model = Model::load(&files(&TEMPLATES[0]), None).unwrap();
    let cache = cache();
    for number in 0..30 {
        continued_turns(&model, &cache, &format!(r#"{{"x":{number}}}"#), 0);
    }
    let turns = |arguments: &str, seconds| continued_turns(&model, &cache, arguments, seconds);
    assert_eq!(turns(r#"{"y":1}"#, 1), 0, "another frame gave way just now");
    assert_eq!(turns(r#"{"y":1}"#, 60), 3);
    assert_eq!(turns(r#"{ "y": 1 }"#, 61), 3, "the same arguments");
    for number in 2..20 {
        assert_eq!(turns(&format!(r#"{{"y":{number}}}"#), 60 * number), 3);
    }
    // The states of its first frame are left.
    assert_eq!(turns(r#"{"y":1}"#, 60 * 30), 3);
}
