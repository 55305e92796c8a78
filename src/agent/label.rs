//! Labels from values.

use greenroom_session::{limits::MAX_LABEL_CHARS, text::Escaped};

/// Makes a label of any text: unsafe characters are escaped, and a long text loses its middle, since names of files differ at
/// their ends. An empty text stays empty, which is no label.
///
/// ```
/// use greenroom::agent::label_of;
/// assert_eq!(label_of("a\nb"), "a\\nb");
/// assert_eq!(label_of(&"x".repeat(500)).chars().count(), 200);
/// ```
pub fn label_of(text: &str) -> String {
    let text = Escaped(text).to_string();
    let length = text.chars().count();
    if length <= MAX_LABEL_CHARS {
        return text;
    }
    let tail = MAX_LABEL_CHARS / 2;
    let head = MAX_LABEL_CHARS - tail - 1;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use greenroom_session::text::check_label;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_label_keeps_both_ends() {
        let label = label_of(&format!("first{}last", "-".repeat(300)));
        assert!(label.starts_with("first-") && label.ends_with("-last") && label.contains("-…-"));
    }

    proptest! {
        #[test]
        fn every_text_but_the_empty_one_gives_a_label(text in "\\PC{1,300}|[\\x00-\\x1f\u{202e}a]{1,300}") {
            prop_assert_eq!(check_label(&label_of(&text)), Ok(()));
        }
    }
}
