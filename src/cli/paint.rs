//! Colours: a text in one of a few roles, or plain where colours are not wanted.

use std::{ffi::OsString, fmt};

use super::args::Color;

/// Paints texts, or leaves them as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

/// What a text is, hence how it looks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    Heading,
    Aside,
    Good,
    Bad,
    Odd,
}

impl Paint {
    /// Decides for one stream. `NO_COLOR` counts when it is set to anything but the empty text (no-color.org).
    pub(crate) fn of(color: Color, is_terminal: bool) -> Self {
        Self::decide(color, is_terminal, std::env::var_os("NO_COLOR"), std::env::var_os("TERM"))
    }

    fn decide(color: Color, is_terminal: bool, no_color: Option<OsString>, term: Option<OsString>) -> Self {
        Self(match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && no_color.is_none_or(|value| value.is_empty()) && term.is_none_or(|term| term != "dumb"),
        })
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self(false)
    }

    /// Tells whether there are colours.
    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    /// Shows a text in its role.
    pub(crate) fn show<T: fmt::Display>(self, role: Role, text: T) -> Painted<T> {
        Painted { escape: self.0.then(|| role.escape()), text }
    }
}

impl Role {
    fn escape(self) -> &'static str {
        match self {
            Self::Heading => "\x1b[1m",
            Self::Aside => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Odd => "\x1b[33m",
        }
    }
}

/// A text in its role.
#[derive(Debug)]
pub(crate) struct Painted<T> {
    escape: Option<&'static str>,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.escape {
            Some(escape) => write!(f, "{escape}{}\x1b[0m", self.text),
            None => self.text.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let dumb = Some(OsString::from("dumb"));
        let set = Some(OsString::from("1"));
        let empty = Some(OsString::new());
        for (color, terminal, no_color, term, expected) in [
            (Color::Auto, true, None, None, true),
            (Color::Auto, false, None, None, false),
            (Color::Auto, true, set.clone(), None, false),
            (Color::Auto, true, empty, None, true),
            (Color::Auto, true, None, dumb, false),
            (Color::Always, false, set, None, true),
            (Color::Never, true, None, None, false),
        ] {
            assert_eq!(Paint::decide(color, terminal, no_color, term).0, expected, "{color:?} {terminal}");
        }
    }
}
