//! Text with names in braces.
//!
//! A template is cut into segments once, when the program is read, and filled in one pass: a
//! value that holds braces itself is never looked at again.
//!
//! Shell lines and JSON are full of braces, so only two things are special:
//!
//! - `{name}`, where the name is `[A-Za-z_][A-Za-z0-9_.]*`, is replaced. `{print $1}`, `{}` and
//!   `{"a": 1}` are not names and stay as they are.
//! - `{{` stands for one brace, and so does the `}}` that closes it. A `}}` that closes
//!   two single braces, as in `{"a": {"b": 1}}`, stays as it is.
//!
//! A text with neither `{{` nor a name is therefore always itself.

use std::borrow::Cow;
use std::ops::Range;

/// A text whose `{name}` parts are filled in later.
///
/// ```
/// use std::borrow::Cow;
/// use greenroom::program::Template;
/// let template = Template::parse("awk '{print $1}' {file}");
/// assert_eq!(template.names().map(|(name, _)| name).collect::<Vec<_>>(), ["file"]);
/// let filled = template.render(&|name| (name == "file").then_some(Cow::Borrowed("facts.txt")));
/// assert_eq!(filled, "awk '{print $1}' facts.txt");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    segments: Vec<Segment>,
}

/// One part of a [`Template`].
///
/// ```
/// use greenroom::program::{Segment, Template};
/// let template = Template::parse("a {name}");
/// assert_eq!(template.segments()[0], Segment::Text("a ".into()));
/// assert_eq!(template.segments()[1], Segment::Name { name: "name".into(), span: 2..8 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Text that stands for itself, with escaped braces already made single.
    Text(String),
    /// A name to be replaced.
    Name {
        /// The name without its braces.
        name: String,
        /// The bytes of the source that it takes, braces included.
        span: Range<usize>,
    },
}

/// How a brace that still waits for its partner was written.
#[derive(Clone, Copy, PartialEq)]
enum Brace {
    Single,
    Doubled,
}

impl Template {
    /// Cuts a text into segments. Every text is a template; whether its names exist is for the
    /// caller to say.
    pub fn parse(source: &str) -> Self {
        let mut segments = Vec::new();
        let mut text = String::new();
        let mut open = Vec::new();
        let mut rest = source;
        while let Some(first) = rest.chars().next() {
            let taken = if rest.starts_with("{{") {
                open.push(Brace::Doubled);
                text.push('{');
                2
            } else if let Some(name) = leading_name(rest) {
                if !text.is_empty() {
                    segments.push(Segment::Text(std::mem::take(&mut text)));
                }
                let start = source.len() - rest.len();
                let taken = name.len() + 2;
                segments.push(Segment::Name { name: name.to_owned(), span: start..start + taken });
                taken
            } else if first == '{' {
                open.push(Brace::Single);
                text.push('{');
                1
            } else if rest.starts_with("}}") && open.last() == Some(&Brace::Doubled) {
                open.pop();
                text.push('}');
                2
            } else if first == '}' {
                if open.last() == Some(&Brace::Single) {
                    open.pop();
                }
                text.push('}');
                1
            } else {
                let plain = rest.find(['{', '}']).unwrap_or(rest.len());
                text.push_str(&rest[..plain]);
                plain
            };
            rest = &rest[taken..];
        }
        if !text.is_empty() {
            segments.push(Segment::Text(text));
        }
        Self { source: source.to_owned(), segments }
    }

    /// Returns the text as it was written, after TOML's own escapes.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the parts in order; no part is empty.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns every name with the bytes of the source that it takes, in order.
    pub fn names(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Name { name, span } => Some((name.as_str(), span.clone())),
            Segment::Text(_) => None,
        })
    }

    /// Returns the parts that stand for themselves, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Text(text) => Some(text.as_str()),
            Segment::Name { .. } => None,
        })
    }

    /// Fills in the names. A name that the lookup does not know stays as `{name}`; a checked
    /// program has none except `{params.NAME}`, for which the lookup decides.
    pub fn render<'v>(&self, lookup: &dyn Fn(&str) -> Option<Cow<'v, str>>) -> String {
        let mut out = String::with_capacity(self.source.len());
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => out.push_str(text),
                Segment::Name { name, span } => match lookup(name) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(self.source.get(span.clone()).unwrap_or_default()),
                },
            }
        }
        out
    }
}

/// Returns the name when the text begins with `{name}`.
fn leading_name(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let mut bytes = name.bytes();
    let first = bytes.next()?;
    let fits = (first.is_ascii_alphabetic() || first == b'_') && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn render(text: &str) -> String {
        Template::parse(text).render(&|name| match name {
            "city" => Some("Lyon".into()),
            "braces" => Some("{city} {{x}}".into()),
            "params.n" => Some("7".into()),
            _ => None,
        })
    }

    #[test]
    fn only_names_and_doubled_braces_are_special() {
        for (text, expected) in [
            ("", ""),
            ("Cover {city}.", "Cover Lyon."),
            ("{city}{city}", "LyonLyon"),
            ("{params.n}", "7"),
            ("{{city}}", "{city}"),
            ("{{{city}}}", "{Lyon}"),
            ("{{ and {city}}}", "{ and Lyon}"),
            ("awk '{print $1}' {city}", "awk '{print $1}' Lyon"),
            ("awk '{{print}}'", "awk '{print}'"),
            ("awk '{if (x) {{y}}}'", "awk '{if (x) {y}}'"),
            ("find . -exec ls {} \\; ${{HOME}}", "find . -exec ls {} \\; ${HOME}"),
            ("{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"),
            ("{{\"a\":{{\"b\":\"{city}\"}}}}", "{\"a\":{\"b\":\"Lyon\"}}"),
            ("{{{{ .Name }}}}", "{{ .Name }}"),
            ("*.{txt,md}", "*.{txt,md}"),
            ("}} } {", "}} } {"),
            ("{1a} {-} {a b} {é} {city", "{1a} {-} {a b} {é} {city"),
            ("{nobody}", "{nobody}"),
        ] {
            assert_eq!(render(text), expected, "{text}");
        }
    }

    #[test]
    fn a_value_with_braces_is_not_filled_in_again() {
        assert_eq!(render("{braces}|{city}"), "{city} {{x}}|Lyon");
    }

    #[test]
    fn a_name_knows_its_place() {
        let template = Template::parse("é {{x}} {city}!");
        let names: Vec<_> = template.names().collect();
        assert_eq!(names, [("city", 9..15)]);
        assert_eq!(&template.source()[9..15], "{city}");
    }

    proptest! {
        #[test]
        fn a_text_without_names_and_doubled_braces_is_itself(text in "[a-z{} $\"1,é]{0,40}") {
            let template = Template::parse(&text);
            prop_assume!(!text.contains("{{") && template.names().next().is_none());
            prop_assert_eq!(template.render(&|_| None), text);
        }
    }
}
