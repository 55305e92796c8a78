//! The mistakes found so far, and the values that are read on the way.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::source::Source;
use crate::program::error::{Mistake, Position};

/// A TOML value and where it is.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// Collects the mistakes of one file. Each reader returns `None` after it has reported.
pub(super) struct Report<'t> {
    file_name: &'t str,
    source: Source<'t>,
    mistakes: Vec<Mistake>,
}

impl<'t> Report<'t> {
    pub(super) fn new(text: &'t str, file_name: &'t str) -> Self {
        Self { file_name, source: Source::new(text), mistakes: Vec::new() }
    }

    /// Returns all mistakes in the order of their positions.
    pub(super) fn into_mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.mistakes;
        mistakes.sort_by_key(|mistake| mistake.position);
        mistakes
    }

    /// Notes a mistake at a byte of the text.
    pub(super) fn add(&mut self, at: usize, message: impl Into<String>) {
        self.mistakes.push(Mistake { file: self.file_name.to_owned(), position: self.source.position(at), message: message.into() });
    }

    /// Notes a mistake at a byte of a string's value.
    pub(super) fn add_inside(&mut self, string: Range<usize>, value_at: usize, message: impl Into<String>) {
        let at = self.source.inside_string(string, value_at);
        self.add(at, message);
    }

    /// Notes that something else was expected in a value's place.
    pub(super) fn wrong(&mut self, value: &Value<'_>, expected: &str) {
        let found = describe(value.get_ref());
        self.add(value.span().start, format!("expected {expected}, found {found}"));
    }

    /// Returns where a byte of the text is.
    pub(super) fn position(&self, at: usize) -> Position {
        self.source.position(at)
    }

    pub(super) fn string<'v>(&mut self, value: &'v Value<'_>, expected: &str) -> Option<&'v str> {
        let found = value.get_ref().as_str();
        if found.is_none() {
            self.wrong(value, expected);
        }
        found
    }

    /// Reads a string that may not be empty, nor hold a NUL, which no system call takes.
    pub(super) fn name(&mut self, value: &Value<'_>, expected: &str) -> Option<String> {
        let text = self.string(value, expected)?;
        if text.is_empty() || text.contains('\0') {
            self.wrong(value, expected);
            return None;
        }
        Some(text.to_owned())
    }

    pub(super) fn boolean(&mut self, value: &Value<'_>) -> Option<bool> {
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.wrong(value, "true or false");
        }
        found
    }

    pub(super) fn integer(&mut self, value: &Value<'_>, range: RangeInclusive<u32>) -> Option<u32> {
        let found = value.get_ref().as_integer().and_then(to_i64).and_then(|found| u32::try_from(found).ok()).filter(|found| range.contains(found));
        if found.is_none() {
            let (least, most) = range.into_inner();
            self.wrong(value, &format!("an integer from {least} to {most}"));
        }
        found
    }

    pub(super) fn array<'v, 'i>(&mut self, value: &'v Value<'i>, expected: &str) -> Option<&'v DeArray<'i>> {
        let found = value.get_ref().as_array();
        if found.is_none() {
            self.wrong(value, expected);
        }
        found
    }

    pub(super) fn table<'v, 'i>(&mut self, value: &'v Value<'i>, expected: &str) -> Option<&'v DeTable<'i>> {
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.wrong(value, expected);
        }
        found
    }
}

/// Returns the integer, unless it needs more than 64 bits.
pub(super) fn to_i64(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Names a value in a message.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("the integer {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(entries) if entries.is_empty() => "an empty table".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Quotes a text for a message, cut to 40 characters and without control characters.
pub(super) fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    let dots = if chars.next().is_some() { "..." } else { "" };
    format!("{start:?}{dots}")
}
