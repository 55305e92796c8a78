//! Where results and remarks go. The only file that writes stdout.
//!
//! stdout carries the result and nothing else; whatever a person may want to know besides goes to stderr. A reader of stdout that has
//! gone away has had enough: that is no failure, and what follows is dropped.

use std::{
    fmt::{self, Write as _},
    io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write},
};

use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::{args::Global, failure::Failure, layout::Layout, paint::Paint};
use greenroom::session::text::{EscapedLines, is_unsafe};

/// The two streams of one command.
#[derive(Debug)]
pub(crate) struct Terminal {
    out: BufWriter<Stdout>,
    closed: bool,
    json: bool,
    verbose: u8,
    paint: Paint,
    paint_err: Paint,
}

impl Terminal {
    /// Looks at the flags and at the two streams.
    pub(crate) fn new(global: &Global) -> Self {
        Self {
            out: BufWriter::new(io::stdout()),
            closed: false,
            json: global.json,
            verbose: global.verbose,
            paint: Paint::of(global.color, io::stdout().is_terminal()),
            paint_err: Paint::of(global.color, io::stderr().is_terminal()),
        }
    }

    /// Leaves stdout to a protocol: a failure is told on stderr only, also with `--json`.
    pub(crate) fn leave_stdout(&mut self) {
        self.json = false;
    }

    /// Tells whether the result is to be JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Tells how often `-v` was given.
    pub(crate) fn verbose(&self) -> u8 {
        self.verbose
    }

    /// Tells whether somebody looks at stderr now.
    #[expect(clippy::unused_self, reason = "remarks belong to the terminal as results do")]
    pub(crate) fn watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Tells whether nobody reads stdout any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the colours of stdout.
    pub(crate) fn paint(&self) -> Paint {
        self.paint
    }

    /// Returns the colours of stderr.
    pub(crate) fn paint_err(&self) -> Paint {
        self.paint_err
    }

    /// Returns how result lines are laid out: wrapped on a terminal that tells its width, else not.
    #[expect(clippy::unused_self, reason = "the layout belongs to the terminal as the colours do")]
    pub(crate) fn layout(&self) -> Layout {
        let out = io::stdout();
        let columns = out.is_terminal().then(|| tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0));
        Layout::new(columns.flatten())
    }

    /// Writes a line of the result. The caller has escaped what others wrote.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        let written = writeln!(self.out, "{line}");
        self.written(written)
    }

    /// Writes what an agent said: as it is, but escaped where a terminal would obey it.
    pub(crate) fn said(&mut self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() { self.line(EscapedLines(text)) } else { self.line(text) }
    }

    /// Writes a JSON document on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::new("OUTPUT_FAILED", error.to_string()))?;
        self.line(tame(&text))
    }

    /// Writes JSON text on a line of its own.
    pub(crate) fn json_text(&mut self, text: &str) -> Result<(), Failure> {
        self.line(tame(text))
    }

    /// Hands over what has been written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.out.flush();
        self.written(flushed)
    }

    fn written(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            _ if self.closed => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => {
                self.closed = true;
                Err(Failure::new("OUTPUT_FAILED", format!("the result cannot be written: {error}")))
            }
        }
    }

    /// Hands stdout over to a protocol that nothing else of the command writes to.
    #[expect(clippy::unused_self, reason = "only whoever has the terminal may")]
    pub(crate) fn pipe(&mut self) -> tokio::io::Stdout {
        tokio::io::stdout()
    }

    /// Writes a remark. Nobody reading it is no failure.
    #[expect(clippy::unused_self, reason = "remarks belong to the terminal as results do")]
    pub(crate) fn remark(&self, line: impl fmt::Display) {
        drop(writeln!(io::stderr(), "{line}"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // `main` has flushed; on a failure before that, what was written stands.
        drop(self.out.flush());
    }
}

/// Escapes what a terminal could obey and JSON lets stand. Such characters occur within JSON strings only, so the value stays the same.
fn tame(json: &str) -> String {
    let mut tamed = String::with_capacity(json.len());
    let mut buffer = [0; 2];
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut buffer) {
                // Writing to a string cannot fail.
                let _ = write!(tamed, "\\u{unit:04x}");
            }
        } else {
            tamed.push(c);
        }
    }
    tamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_is_the_same_json() {
        let value = serde_json::json!("a\u{1b}\u{9b}31m\u{202e}b\u{7f} ü");
        let text = tame(&value.to_string());
        assert!(!text.chars().any(is_unsafe), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
