//! Text that people see: the rule for labels, and how any text is shown so that a terminal obeys none of it.

use std::fmt::{self, Write};

use thiserror::Error;

use crate::limits::MAX_LABEL_CHARS;

/// Why a text is not a label.
///
/// ```
/// use greenroom_session::text::{LabelError, check_label};
/// let error = check_label("cod\u{202e}e").unwrap_err(); // it would read backwards
/// assert_eq!(error, LabelError::Character(0x202e));
/// assert_eq!(error.code(), "INVALID_LABEL");
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabelError {
    /// The label is empty.
    #[error("a label must not be empty")]
    Empty,
    /// The label has more than [`MAX_LABEL_CHARS`] Unicode scalar values.
    #[error("a label has at most {MAX_LABEL_CHARS} characters, this one has {0}")]
    TooLong(usize),
    /// The label has a character that would let it pose as something else.
    #[error("a label must not contain the control, line-separator or bidi character U+{0:04X}")]
    Character(u32),
}

impl LabelError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "INVALID_LABEL"
    }
}

/// Checks a label: 1 to 200 Unicode scalar values without control, line-separator or bidi-control characters.
///
/// # Errors
/// [`LabelError`] naming the first rule that is broken.
pub fn check_label(label: &str) -> Result<(), LabelError> {
    if label.is_empty() {
        return Err(LabelError::Empty);
    }
    let count = label.chars().count();
    if count > MAX_LABEL_CHARS {
        return Err(LabelError::TooLong(count));
    }
    match label.chars().find(|&c| is_unsafe(c)) {
        Some(c) => Err(LabelError::Character(c as u32)),
        None => Ok(()),
    }
}

/// Tells whether a terminal or a reader's eye could be misled by this character: a control, one of the two line separators, or one with the property
/// `Bidi_Control` (`PropList.txt` of Unicode 16.0).
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Shows a text on one line with every unsafe character escaped as `\u{hex}`.
///
/// ```
/// use greenroom_session::text::Escaped;
/// assert_eq!(Escaped("a\x1b[31mb").to_string(), "a\\u{1b}[31mb");
/// assert_eq!(Escaped("a\nb").to_string(), "a\\nb");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, false, f)
    }
}

/// Shows a text on as many lines as it has; line feeds and tabs stand, every other unsafe character is escaped.
///
/// ```
/// use greenroom_session::text::EscapedLines;
/// assert_eq!(EscapedLines("one\n\ttwo\x1b[2J").to_string(), "one\n\ttwo\\u{1b}[2J");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EscapedLines<'a>(pub &'a str);

impl fmt::Display for EscapedLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, true, f)
    }
}

fn escape(text: &str, lines: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(is_unsafe) {
        let (plain, tail) = rest.split_at(at);
        f.write_str(plain)?;
        let mut chars = tail.chars();
        match chars.next() {
            Some(c @ ('\n' | '\t')) if lines => f.write_char(c)?,
            Some('\n') => f.write_str("\\n")?,
            Some('\t') => f.write_str("\\t")?,
            Some('\r') => f.write_str("\\r")?,
            Some(c) => write!(f, "\\u{{{:x}}}", c as u32)?,
            None => {}
        }
        rest = chars.as_str();
    }
    f.write_str(rest)
}

/// Makes a label of any text: unsafe characters are escaped, and a long text loses its middle, since names of files differ at their ends. An empty
/// text stays empty, which is no label.
///
/// ```
/// use greenroom_session::text::label_from;
/// assert_eq!(label_from("a\nb"), "a\\nb");
/// assert_eq!(label_from(&"x".repeat(500)).chars().count(), 200);
/// ```
pub fn label_from(text: &str) -> String {
    let escaped = Escaped(text).to_string();
    let count = escaped.chars().count();
    if count <= MAX_LABEL_CHARS {
        return escaped;
    }
    let head = (MAX_LABEL_CHARS - 1) / 2;
    let tail = MAX_LABEL_CHARS - 1 - head;
    escaped.chars().take(head).chain(std::iter::once('…')).chain(escaped.chars().skip(count - tail)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_refuse_what_could_mislead() {
        let long = "x".repeat(201);
        for (label, expected) in [
            ("", Some(LabelError::Empty)),
            ("ok — ünïcode 漢字", None),
            (long.as_str(), Some(LabelError::TooLong(201))),
            ("a\nb", Some(LabelError::Character(0x0a))),
            ("a\u{1b}b", Some(LabelError::Character(0x1b))),
            ("a\u{2028}b", Some(LabelError::Character(0x2028))),
            ("a\u{202e}b", Some(LabelError::Character(0x202e))),
            ("a\u{9b}b", Some(LabelError::Character(0x9b))),
        ] {
            assert_eq!(check_label(label).err(), expected, "{label:?}");
        }
    }

    #[test]
    fn every_character_that_could_mislead_is_unsafe_and_no_other() {
        let bidi =
            ['\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}'];
        for c in ['\0', '\t', '\n', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}', '\u{2028}', '\u{2029}'].into_iter().chain(bidi) {
            assert!(is_unsafe(c), "{c:?}");
        }
        for c in [' ', 'é', '漢', '\u{ad}', '\u{200b}', '\u{200d}', '\u{2027}', '\u{202f}', '\u{2065}', '\u{206a}', '\u{feff}'] {
            assert!(!is_unsafe(c), "{c:?}");
        }
    }

    #[test]
    fn a_long_label_keeps_both_ends() {
        let label = label_from(&format!("first{}last", "-".repeat(300)));
        assert!(label.starts_with("first-") && label.ends_with("-last") && label.contains("-…-"));
    }

    proptest! {
        #[test]
        fn every_text_but_the_empty_one_gives_a_label(text in "\\PC{1,300}|[\\x00-\\x1f\u{202e}a]{1,300}") {
            prop_assert_eq!(check_label(&label_from(&text)), Ok(()));
        }
    }
}
