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

/// A bar on stderr. It takes itself away when it is dropped.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Begins at 0; a length that is not known yet is 0.
    pub(crate) fn new(terminal: &Terminal, unit: Unit, length: u64) -> Self {
        let target = if terminal.watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let template = match unit {
            Unit::Of(things) => format!("{{bar:24}} {{pos}}/{{len}} {things}{{msg}} · {{elapsed}}"),
            Unit::Bytes => "{bar:24} {bytes}/{total_bytes}{msg} · {elapsed}".to_owned(),
        };
        // The templates are constants; were one wrong, the default bar would do.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        Self(bar)
    }

    /// Goes on by so many.
    pub(crate) fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    /// Stands at this count.
    pub(crate) fn stand(&self, at: u64) {
        self.0.set_position(at);
    }

    /// Learns the length.
    pub(crate) fn length(&self, length: u64) {
        self.0.set_length(length);
    }

    /// Says something beside the bar, in a few words that the caller has escaped.
    pub(crate) fn say(&self, words: impl fmt::Display) {
        self.0.set_message(format!(" · {words}"));
    }

    /// Writes a line of the result without tearing the bar.
    pub(crate) fn line(&self, terminal: &mut Terminal, line: impl fmt::Display) -> Result<(), Failure> {
        if !terminal.watched() {
            return terminal.line(line);
        }
        self.0.suspend(|| terminal.line(line).and_then(|()| terminal.flush()))
    }

    /// Writes a line of stderr without tearing the bar.
    #[allow(dead_code, reason = "a bar that cannot be talked beside is half a bar")]
    pub(crate) fn remark(&self, terminal: &Terminal, line: impl fmt::Display) {
        self.0.suspend(|| terminal.remark(line));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
