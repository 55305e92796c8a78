//! No text is too strange: there is a program, or there are mistakes inside the text.

use proptest::prelude::*;

use super::{STORY, parse};
use crate::program::error::Position;

fn assert_answers(text: &str) {
    if let Err(errors) = parse(text) {
        let lines: Vec<_> = text.split('\n').collect();
        assert!(!errors.mistakes().is_empty(), "{text}");
        for mistake in errors.mistakes() {
            let Position { line, column } = mistake.position;
            let length = lines[line - 1].chars().count();
            assert!(column <= length + 1, "{mistake} in {text:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        assert_answers(&text);
    }

    #[test]
    fn any_text_of_toml_letters_is_answered(text in "[a-c.={}\\[\\]\"'\\\\ux0-3#\n\r,: é]{0,80}") {
        assert_answers(&text);
    }

    #[test]
    fn a_damaged_program_is_answered(
        at in 0..STORY.len(),
        cut in 0..12_usize,
        put in "[{}\\[\\]\"'=, a1\\\\\n\u{202e}]{0,4}",
    ) {
        let (before, after) = STORY.split_at(at);
        let after = after.get(cut..).unwrap_or_default();
        assert_answers(&format!("{before}{put}{after}"));
    }
}
