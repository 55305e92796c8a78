//! How long texts are laid out: wrapped to the terminal, with hanging lines, or as they are where nobody looks.

use textwrap::{Options, WordSplitter, core::display_width, wrap};

/// Narrower than this no terminal is taken to be: a text of one word below another reads worse than one that the terminal breaks.
const NARROWEST: usize = 30;
/// What a tab counts for where lines are wrapped.
const TAB: &str = "    ";

/// The width of what is written to; none where lines may be of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout(Option<usize>);

impl Layout {
    /// Lays out for a terminal of this many columns, or for none.
    pub(crate) fn new(columns: Option<usize>) -> Self {
        Self(columns.map(|columns| columns.max(NARROWEST)))
    }

    /// Tells whether a text that begins this many columns in has no room worth the name.
    pub(crate) fn is_narrow_after(self, first: &str) -> bool {
        self.0.is_some_and(|columns| display_width(first) > columns / 2)
    }

    /// Breaks a text into lines that fit. `first` stands before the first one, `rest` before those that follow; both count. Line feeds of the text stand.
    /// Spaces at which a line breaks are dropped; nothing else is. The text is escaped already; colours in it take no room.
    pub(crate) fn lines(self, first: &str, rest: &str, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in text.split('\n') {
            let indent = if lines.is_empty() { first } else { rest };
            match self.0 {
                Some(columns) if !fits(indent, line, columns) => {
                    let options =
                        Options::new(columns).initial_indent(indent).subsequent_indent(rest).break_words(true).word_splitter(WordSplitter::NoHyphenation);
                    lines.extend(wrap(&line.replace('\t', TAB), options).into_iter().map(|line| line.trim_end().to_owned()));
                }
                _ => lines.push(format!("{indent}{line}").trim_end().to_owned()),
            }
        }
        lines
    }

    /// Lays out parts on as few lines as will do, a dot between two. A part is shown as `show` paints it. Further lines stand two columns in.
    pub(crate) fn parts<T>(self, parts: &[(T, String)], show: impl Fn(&T, &str) -> String) -> Vec<String> {
        const DOT: &str = " · ";
        let mut lines: Vec<String> = Vec::new();
        let mut used = 0;
        for (role, part) in parts {
            let wide = display_width(part);
            let joins = self.0.is_none_or(|columns| used + DOT.chars().count() + wide <= columns);
            match lines.last_mut() {
                Some(line) if joins => {
                    line.push_str(DOT);
                    line.push_str(&show(role, part));
                    used += DOT.chars().count() + wide;
                }
                last => {
                    let indent = if last.is_none() { "" } else { "  " };
                    lines.push(format!("{indent}{}", show(role, part)));
                    used = indent.len() + wide;
                }
            }
        }
        lines
    }

    /// Draws a thin line with a text in it.
    pub(crate) fn rule(self, text: &str) -> String {
        let begun = format!("── {text} ");
        let left = self.0.map_or(2, |columns| columns.saturating_sub(display_width(&begun)));
        format!("{begun}{}", "─".repeat(left))
    }
}

/// A text that fits as it is keeps its tabs and its spaces; how wide a tab is only the terminal knows.
fn fits(indent: &str, line: &str, columns: usize) -> bool {
    !line.contains('\t') && display_width(indent) + display_width(line) <= columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_where_somebody_looks_and_nowhere_else() {
        let text = "one two three four five six seven eight nine ten\n\n  indented";
        assert_eq!(Layout::new(None).lines("a: ", "   ", text), ["a: one two three four five six seven eight nine ten", "", "     indented"]);
        assert_eq!(Layout::new(Some(30)).lines("a: ", "   ", text), ["a: one two three four five six", "   seven eight nine ten", "", "     indented"]);
        assert_eq!(Layout::new(Some(1)), Layout::new(Some(NARROWEST)));
    }

    #[test]
    fn no_character_but_spaces_is_lost_and_no_line_is_too_long() {
        let texts = ["x".repeat(1_000), "漢字".repeat(300), "ab ".repeat(500), "a\tb\t".repeat(100), "\\u{1b}[2J".repeat(80), "é🙂 ".repeat(99)];
        for text in texts {
            for columns in [30, 60, 61, 120] {
                let lines = Layout::new(Some(columns)).lines("  who: ", "    ", &text);
                assert!(lines.iter().all(|line| display_width(line) <= columns), "{columns}: {lines:?}");
                let dense = |text: &str| text.split_whitespace().collect::<String>();
                assert_eq!(dense(&lines.join("")), format!("who:{}", dense(&text)));
            }
        }
    }

    #[test]
    fn parts_go_on_further_in_where_a_line_is_full() {
        let parts = ["turn 1", "from the user", "completed", "2025-11-30"].map(|part| ((), part.to_owned()));
        let show = |(): &(), part: &str| part.to_owned();
        assert_eq!(Layout::new(None).parts(&parts, show), ["turn 1 · from the user · completed · 2025-11-30"]);
        assert_eq!(Layout::new(Some(36)).parts(&parts, show), ["turn 1 · from the user · completed", "  2025-11-30"]);
    }

    #[test]
    fn a_rule_is_as_wide_as_the_terminal() {
        assert_eq!(Layout::new(None).rule("epoch 1"), "── epoch 1 ──");
        assert_eq!(Layout::new(Some(40)).rule("epoch 1").chars().count(), 40);
    }
}
