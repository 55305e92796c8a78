//! The table of what the children reported.
//!
//! It is derived: the reports from the notes that joined the own log, labels and outcomes from the children's logs. So it is the
//! same however often a run was cut off in between.

use std::collections::HashMap;

use greenroom_actors::{Turn, TurnError, catalog::Entry};
use greenroom_session::{
    id::SessionId,
    message::{Source, text_of},
};

/// What went wrong for a row without being in any log: a child that could not be started, a message that it could not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The child, if there is one.
    pub(super) child: Option<SessionId>,
    /// Its label.
    pub(super) label: String,
    /// What failed.
    pub(super) code: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    label: String,
    id: String,
    cells: Vec<String>,
}

/// Writes one row per child, by label bytes and then id: its reports in order, then `failed: CODE` if its last turn failed; `diagnostic: REASON` for a
/// child that cannot be described.
pub(super) async fn table(turn: &Turn, failures: &[Failure]) -> Result<String, TurnError> {
    let mut reports: HashMap<SessionId, Vec<String>> = HashMap::new();
    for message in turn.history() {
        if let Source::SubagentReport { session } = &message.source {
            reports.entry(session.clone()).or_default().push(text_of(&message.content));
        }
    }
    let mut rows: Vec<Row> = turn.list_agents().await?.into_iter().map(|entry| row(entry, &mut reports, failures)).collect();
    rows.extend(failures.iter().filter(|failure| failure.child.is_none()).map(|failure| Row {
        label: failure.label.clone(),
        id: String::new(),
        cells: vec![failed(&failure.code)],
    }));
    rows.sort_by(|a, b| (a.label.as_bytes(), &a.id).cmp(&(b.label.as_bytes(), &b.id)));
    Ok(render(&rows))
}

fn row(entry: Entry, reports: &mut HashMap<SessionId, Vec<String>>, failures: &[Failure]) -> Row {
    let id = entry.id().clone();
    let mut cells = reports.remove(&id).unwrap_or_default();
    let label = match entry {
        Entry::Root(listed) | Entry::Child(listed) => {
            if let Some(last) = listed.last_outcome.filter(|last| matches!(&*last.kind, "error" | "aborted")) {
                cells.push(failed(&last.code.unwrap_or_else(|| last.kind.to_uppercase())));
            }
            listed.label
        }
        Entry::Diagnostic { reason, .. } => {
            cells.push(format!("diagnostic: {}", reason.as_str()));
            None
        }
    };
    cells.extend(failures.iter().filter(|failure| failure.child.as_ref() == Some(&id)).map(|failure| failed(&failure.code)));
    Row { label: label.unwrap_or_else(|| id.to_string()), id: id.to_string(), cells }
}

fn failed(code: &str) -> String {
    format!("failed: {code}")
}

const GAP: &str = "   ";
/// The widest line that columns are aligned by, in characters; a longer one stands out of its column.
const WIDEST: usize = 200;

/// Puts rows into columns. A report of several lines takes several lines of its column.
fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "(no subagents)".to_owned();
    }
    let cells: Vec<Vec<Vec<&str>>> = rows
        .iter()
        .map(|row| std::iter::once(&row.label).chain(&row.cells).map(|cell| cell.trim_end_matches(['\n', '\r']).lines().collect()).collect())
        .collect();
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |column: usize| {
        let lines = cells.iter().filter_map(|row| row.get(column)).flatten();
        // One line that is longer than any screen must not make every row as long.
        lines.map(|line| line.chars().take(WIDEST + 1).count()).filter(|width| *width <= WIDEST).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width_of).collect();
    let mut table = String::new();
    for row in &cells {
        for height in 0..row.iter().map(Vec::len).max().unwrap_or(0).max(1) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let text = cell.get(height).copied().unwrap_or_default();
                line.push_str(text);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(text.chars().take(WIDEST).count())));
                line.push_str(GAP);
            }
            table.push_str(line.trim_end());
            table.push('\n');
        }
    }
    table.pop();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, cells: &[&str]) -> Row {
        Row { label: label.into(), id: String::new(), cells: cells.iter().map(|cell| (*cell).to_owned()).collect() }
    }

    #[test]
    fn one_long_line_does_not_widen_the_others() {
        let long = "x".repeat(4_000_000);
        let mut rows: Vec<Row> = (0..40).map(|n| row(&format!("r{n:02}"), &["ok", "ok"])).collect();
        rows.push(row("wide", &[&long, "ok"]));
        let table = render(&rows);
        assert!(table.len() < 4_010_000, "{}", table.len());
        assert!(table.starts_with("r00    ok   ok\nr01    ok   ok\n"));
        assert!(table.ends_with("x   ok"));
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let rows = [row("a.md", &["12 lines\n", "line 3"]), row("été.md", &["7 lines"]), row("b", &[])];
        assert_eq!(render(&rows), "a.md     12 lines   line 3\nété.md   7 lines\nb");
    }

    #[test]
    fn a_report_of_several_lines_stays_in_its_column() {
        let rows = [row("a", &["one\ntwo\n\n", "x"]), row("bb", &["", "y"])];
        assert_eq!(render(&rows), "a    one   x\n     two\nbb         y");
    }

    #[test]
    fn no_children_are_said_to_be_none() {
        assert_eq!(render(&[]), "(no subagents)");
    }
}
