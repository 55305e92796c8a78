//! The text of a program file: where its bytes are, for people.

use std::ops::Range;

use crate::program::error::Position;

/// A program's text with the starts of its lines.
pub(super) struct Source<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> Source<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let first = if text.starts_with('\u{feff}') { 3 } else { 0 };
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, line_starts: std::iter::once(first).chain(newlines).collect() }
    }

    /// Returns the position of a byte; the end of the text is one too.
    pub(super) fn position(&self, at: usize) -> Position {
        let line = self.line_starts.partition_point(|start| *start <= at).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..at.min(self.text.len()));
        Position { line, column: before.map_or(0, |text| text.chars().count()) + 1 }
    }

    /// Returns the byte of the text that a byte of a string's *value* comes from. `span` is the
    /// string with its quotes.
    pub(super) fn inside_string(&self, span: Range<usize>, value_at: usize) -> usize {
        let start = span.start;
        let Some(raw) = self.text.get(span) else {
            return start;
        };
        let basic = raw.starts_with('"');
        let many_lines = raw.starts_with("\"\"\"") || raw.starts_with("'''");
        let quotes = if many_lines { 3 } else { 1 };
        let body = raw.get(quotes..).unwrap_or_default();
        let newline = match (many_lines, body.as_bytes()) {
            (true, [b'\r', b'\n', ..]) => 2,
            (true, [b'\n', ..]) => 1,
            _ => 0,
        };
        let body = body.get(newline..).unwrap_or_default();
        let inside = if basic { written_at(body, value_at) } else { value_at };
        start + quotes + newline + inside
    }
}

/// Walks the body of a basic string until `value_at` bytes of its value have been seen.
fn written_at(body: &str, value_at: usize) -> usize {
    let mut seen = 0;
    let mut chars = body.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            if seen >= value_at {
                return at;
            }
            seen += c.len_utf8();
            continue;
        }
        let escaped = chars.next().map_or('\\', |(_, escaped)| escaped);
        if escaped.is_ascii_whitespace() {
            // A backslash at a line's end takes away all blanks up to the next word.
            while chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
            continue;
        }
        if seen >= value_at {
            return at;
        }
        let digits = match escaped {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let hex = body.get(at + 2..at + 2 + digits).unwrap_or_default();
        seen += u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).map_or(1, char::len_utf8);
        for _ in 0..digits {
            chars.next();
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_from_one_and_in_scalars() {
        let source = Source::new("\u{feff}ab\n\u{e9}\u{1f600}c\n");
        let at = |at| (source.position(at).line, source.position(at).column);
        assert_eq!(at(3), (1, 1));
        assert_eq!(at(5), (1, 3));
        assert_eq!(at(6), (2, 1));
        assert_eq!(at(12), (2, 3));
        assert_eq!(at(14), (3, 1));
        assert_eq!(Source::new("").position(0), Position { line: 1, column: 1 });
    }

    #[test]
    fn a_byte_of_a_value_is_found_behind_escapes() {
        for (raw, value, sought) in [
            (r#""a{x}""#, "a{x}", "{x}"),
            (r"'a\{x}'", r"a\{x}", "{x}"),
            (r#""\t\"\u00e9\U0001f600\x41\e{x}""#, "\t\"é😀A\u{1b}{x}", "{x}"),
            ("\"\"\"\nab\\\n   c{x}\"\"\"", "abc{x}", "{x}"),
            ("\"\"\"\r\nab\\  \n\n   {x}\"\"\"", "ab{x}", "{x}"),
            ("'''\na\n{x}'''", "a\n{x}", "{x}"),
        ] {
            let text = format!("k = {raw}");
            let value_at = value.find(sought).expect("in the value");
            let found = Source::new(&text).inside_string(4..text.len(), value_at);
            assert_eq!(found, text.find(sought).expect("in the text"), "{raw}");
        }
    }
}
