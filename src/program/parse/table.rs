//! A table whose keys are known.

use toml::de::DeTable;

use super::report::{Report, Value};
use super::similar::did_you_mean;

/// Hands out the entries of a table one by one and remembers which were asked for: those are
/// the known keys.
pub(super) struct Fields<'v, 'i> {
    table: &'v DeTable<'i>,
    /// Where a missing key is reported: the table's header, or its opening brace.
    at: usize,
    /// How messages name the table.
    name: String,
    known: Vec<&'static str>,
}

impl<'v, 'i> Fields<'v, 'i> {
    /// Takes a value that must be a table.
    pub(super) fn new(report: &mut Report<'_>, value: &'v Value<'i>, name: &str) -> Option<Self> {
        let table = report.table(value, &format!("the table {name}"))?;
        Some(Self::of(table, value.span().start, name))
    }

    pub(super) fn of(table: &'v DeTable<'i>, at: usize, name: &str) -> Self {
        Self { table, at, name: name.to_owned(), known: Vec::new() }
    }

    /// Returns the value of a key that may be missing.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'v Value<'i>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// Returns the value of a key that must be there.
    pub(super) fn need(&mut self, report: &mut Report<'_>, key: &'static str) -> Option<&'v Value<'i>> {
        let value = self.take(key);
        if value.is_none() {
            let name = &self.name;
            report.add(self.at, format!("expected the key `{key}` in {name}, found none"));
        }
        value
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self, report: &mut Report<'_>) {
        for key in self.table.keys() {
            let found = key.get_ref().as_ref();
            if self.known.contains(&found) {
                continue;
            }
            let known = self.known.join("`, `");
            let guess = did_you_mean(found, self.known.iter().copied());
            report.add(key.span().start, format!("expected a key of {}, one of `{known}`, found `{}`{guess}", self.name, found.escape_debug()));
        }
    }
}
