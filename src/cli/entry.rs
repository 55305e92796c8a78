//! One line of a listing, as text and as JSON.

use greenroom::{Entry, Listed, session::descriptor::Mode, session::text::Escaped};
use serde_json::{Map, Value, json};

use super::paint::{Paint, Role};

/// Version of the JSON that listings are written in.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Writes an entry as `<id> [<status>] — <label>` or `<id> [diagnostic: <reason>]`: the lines of the `list_agents` tool.
pub(crate) fn line(entry: &Entry) -> String {
    match entry {
        Entry::Root(listed) | Entry::Child(listed) => format!("{} [{}] — {}", Escaped(listed.id.as_str()), listed.status.as_str(), label(listed)),
        Entry::Diagnostic { id, reason } => format!("{} [diagnostic: {}]", Escaped(id.as_str()), reason.as_str()),
    }
}

/// Writes an entry for a person: the line, and what else is worth a glance.
pub(crate) fn glance(entry: &Entry, paint: Paint) -> String {
    let Some(listed) = entry.listed() else { return paint.show(Role::Bad, line(entry)).to_string() };
    let mut aside = format!(" · {}", super::span::count(listed.turns, "turn"));
    if listed.pending > 0 {
        aside = format!("{aside} · {} pending", listed.pending);
    }
    if listed.held {
        aside.push_str(" · held");
    }
    if listed.mode == Mode::OneShot {
        aside.push_str(" · one-shot");
    }
    let turn = match listed.turn.as_str() {
        "idle" => String::new(),
        other => format!(" · {}", paint.show(Role::Odd, other)),
    };
    let outcome = match listed.last_outcome.as_ref().map(|outcome| &*outcome.kind) {
        None | Some("completed") => String::new(),
        Some(kind) => format!(" · {}", paint.show(Role::Bad, Escaped(kind))),
    };
    format!("{}{}{turn}{outcome}", line(entry), paint.show(Role::Aside, aside))
}

fn label(listed: &Listed) -> String {
    listed.label.as_deref().map_or_else(|| "(no label)".to_owned(), |label| Escaped(label).to_string())
}

/// Writes an entry as JSON.
pub(crate) fn json(entry: &Entry) -> Map<String, Value> {
    let kind = match entry {
        Entry::Root(_) => "root",
        Entry::Child(_) => "child",
        Entry::Diagnostic { .. } => "diagnostic",
    };
    let value = match entry {
        Entry::Root(listed) | Entry::Child(listed) => json!({
            "kind": kind,
            "id": listed.id,
            "mode": listed.mode,
            "label": listed.label,
            "status": listed.status.as_str(),
            "turn": listed.turn.as_str(),
            "pending": listed.pending,
            "held": listed.held,
            "last_outcome": listed.last_outcome.as_ref().map(|outcome| &outcome.kind),
            "has_children": listed.has_children,
        }),
        Entry::Diagnostic { id, reason } => json!({"kind": kind, "id": id, "reason": reason.as_str()}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Tells whether a listing without `--all` leaves an entry out.
pub(crate) fn is_one_shot(entry: &Entry) -> bool {
    entry.listed().is_some_and(|listed| listed.mode == Mode::OneShot)
}
