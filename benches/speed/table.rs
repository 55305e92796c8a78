//! The table that a run prints.

use std::fmt;

/// One figure beside its floor.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: String,
    pub(crate) floor: String,
    pub(crate) ratio: f64,
    pub(crate) target: Target,
    pub(crate) note: String,
}

/// What the ratio is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// At least this share of the floor.
    AtLeast(f64),
    /// At most this many times the floor.
    AtMost(f64),
    /// Something that is not a plain ratio: how it is written, and whether it is met.
    Other(&'static str, bool),
}

impl Target {
    fn text(self) -> String {
        match self {
            Self::AtLeast(share) => format!(">= {share}"),
            Self::AtMost(times) => format!("<= {times}"),
            Self::Other(text, _) => text.to_owned(),
        }
    }

    fn verdict(self, ratio: f64) -> &'static str {
        let met = match self {
            Self::AtLeast(share) => ratio >= share,
            Self::AtMost(times) => ratio <= times,
            Self::Other(_, met) => met,
        };
        if met { "yes" } else { "NO" }
    }
}

/// The rows of a run.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) Vec<Row>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["what", "ours", "floor", "ratio", "target", "met", "note"].map(str::to_owned);
        let rule = ["---"; 7].map(str::to_owned);
        let body = self.0.iter().map(|row| {
            let verdict = row.target.verdict(row.ratio).to_owned();
            [row.what.clone(), row.ours.clone(), row.floor.clone(), format!("{:.2}", row.ratio), row.target.text(), verdict, row.note.clone()]
        });
        let lines: Vec<[String; 7]> = [head, rule].into_iter().chain(body).collect();
        let mut widths = [0; 7];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for line in &lines {
            for (width, cell) in widths.iter().zip(line) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
        }
        Ok(())
    }
}
