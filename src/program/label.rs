//! The rule for labels: 1 to 200 Unicode scalars, none of which could break or reorder a line.

/// The most Unicode scalars that a label may have.
pub(super) const LONGEST_LABEL: usize = 200;

/// Finds the first character that no label may hold, with its byte offset.
pub(super) fn first_forbidden(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, c)| is_forbidden(*c))
}

/// Control characters, the two line separators, and the characters with the Unicode property
/// `Bidi_Control` (`PropList.txt` of Unicode 16.0).
fn is_forbidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}'
                | '\u{2029}'
                | '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_holds_no_character_that_breaks_or_reorders_a_line() {
        assert_eq!(first_forbidden("élan — 東京 \u{200d}"), None);
        for c in ['\n', '\u{1b}', '\u{7f}', '\u{85}', '\u{2028}', '\u{202e}', '\u{2066}'] {
            assert_eq!(first_forbidden(&format!("é{c}x")), Some((2, c)));
        }
    }
}
