//! How far a long command has come: a bar where somebody looks, nothing otherwise.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{failure::Failure, terminal::Terminal};

/// What a bar counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things, by their name in the plural: `sessions`.
    Of(&'static str),
    /// Bytes.
    Bytes,
}

/// A bar on stderr. It takes itself away when it is dropped. While its length is 0 it shows no more than the time and what is said: a bar of nothing would be full.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    unit: Unit,
}

impl Bar {
    /// Begins at 0; a length that is not known yet is 0.
    pub(crate) fn new(terminal: &Terminal, unit: Unit, length: u64) -> Self {
        let target = if terminal.watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = Self { bar: ProgressBar::with_draw_target(Some(length), target), unit };
        bar.style(length);
        bar
    }

    fn style(&self, length: u64) {
        let template = match self.unit {
            _ if length == 0 => "{elapsed}{msg}".to_owned(),
            Unit::Of(things) => format!("{{bar:24}} {{pos}}/{{len}} {things}{{msg}} · {{elapsed}}"),
            Unit::Bytes => "{bar:24} {bytes}/{total_bytes}{msg} · {elapsed}".to_owned(),
        };
        // The templates are constants; were one wrong, the default bar would do.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            self.bar.set_style(style.progress_chars("━╸ "));
        }
    }

    /// Goes on by so many.
    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Stands at this count.
    pub(crate) fn stand(&self, at: u64) {
        self.bar.set_position(at);
    }

    /// Learns the length.
    pub(crate) fn length(&self, length: u64) {
        if (self.bar.length() == Some(0)) != (length == 0) {
            self.style(length);
        }
        self.bar.set_length(length);
    }

    /// Says something beside the bar, in a few words that the caller has escaped.
    pub(crate) fn say(&self, words: impl fmt::Display) {
        self.bar.set_message(format!(" · {words}"));
    }

    /// Writes a line of the result without tearing the bar.
    pub(crate) fn line(&self, terminal: &mut Terminal, line: impl fmt::Display) -> Result<(), Failure> {
        if !terminal.watched() {
            return terminal.line(line);
        }
        self.bar.suspend(|| terminal.line(line).and_then(|()| terminal.flush()))
    }

    /// Lets something be written to stderr without tearing the bar.
    pub(crate) fn beside(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Takes the bar away before its time.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}
