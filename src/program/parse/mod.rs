//! From the text of a program file to a [`Program`](super::Program), or to all its mistakes.
//!
//! `document` reads the file as a whole, `agent` and `step` its parts. `report` collects the
//! mistakes and knows where a byte of the text is; `table` sees that no key is left over; `text`
//! knows which names a template may use; `similar` guesses what was meant.

mod agent;
mod document;
mod report;
mod similar;
mod source;
mod step;
mod table;
mod text;

#[cfg(test)]
mod tests;

pub(super) use document::program;
