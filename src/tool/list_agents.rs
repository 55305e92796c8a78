//! Listing the children.

use futures::future::BoxFuture;
use greenroom_actors::{Host, catalog::Entry};
use greenroom_session::{descriptor::Mode, text::Escaped};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Tool, ToolCall, ToolError, ToolLoadError, ToolOutput};
use crate::model::ToolSpec;

/// `list_agents`: lists the continuable children of whoever calls, without waking any.
///
/// It needs the query service and is not loaded without it.
///
/// ```
/// use greenroom::tool::{ListAgentsTool, Tool};
/// let spec = ListAgentsTool::new().spec();
/// assert_eq!(spec.schema, serde_json::json!({"type": "object", "properties": {}})); // it has no parameters
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ListAgentsTool;

const NAME: &str = "list_agents";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {}

impl ListAgentsTool {
    /// Makes the tool.
    pub fn new() -> Self {
        Self
    }
}

impl Tool for ListAgentsTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description: "Lists the subagents that you have started and that take further messages, the oldest first, each with its durable id and its label. `running` means that it \
                          is live now. `complete` means that it is only stored, which says nothing of success: a message by `send_message` opens another turn of the same \
                          conversation. The list is a snapshot and promises no delivery. A subagent that cannot be read is listed as a diagnostic with the reason."
                .into(),
            schema: json!({"type": "object", "properties": {}}),
        }
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn load(&mut self, host: &Host) -> Result<(), ToolLoadError> {
        if host.has_query() {
            return Ok(());
        }
        Err(ToolLoadError::Needs { tool: NAME.into(), need: "the session query service (SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE)".into() })
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let turn = call.turn(NAME)?;
            let Arguments {} = call.parse()?;
            let (text, values) = render(&turn.list_agents().await?);
            Ok(ToolOutput::text(text).value(Value::Array(values)))
        })
    }
}

/// Returns a text with a line, and an object, for each entry that is listed. One-shot children take no messages and are left out; of a broken child nobody knows what it was.
pub(crate) fn render(entries: &[Entry]) -> (String, Vec<Value>) {
    let shown = entries.iter().filter_map(|entry| match entry {
        Entry::Child(child) if child.mode == Mode::Continuable => {
            let (id, label, status) = (&child.id, child.label.as_deref().unwrap_or_default(), child.status.as_str());
            // A label of an old log may hold what would break the line.
            Some((format!("{id} [{status}] — {}", Escaped(label)), json!({"kind": "child", "id": id, "label": label, "status": status})))
        }
        Entry::Child(_) | Entry::Root(_) => None,
        Entry::Diagnostic { id, reason } => {
            let reason = reason.as_str();
            Some((format!("{id} [diagnostic: {reason}]"), json!({"kind": "diagnostic", "id": id, "reason": reason})))
        }
    });
    let (lines, values): (Vec<String>, Vec<Value>) = shown.unzip();
    (if lines.is_empty() { "(no subagents)".to_owned() } else { lines.join("\n") }, values)
}

#[cfg(test)]
mod tests {
    use greenroom_actors::catalog::{Listed, Status};
    use greenroom_session::{head::TurnState, id::SessionId, listing::Reason};

    use super::*;

    fn child(id: &str, mode: Mode, status: Status, label: &str) -> Entry {
        Entry::Child(Listed {
            id: SessionId::new(id).unwrap(),
            mode,
            label: Some(label.to_owned()),
            agent: "clerk".into(),
            alias: None,
            status,
            turn: TurnState::Idle,
            pending: 3,
            held: false,
            turns: 1,
            last_outcome: None,
            has_children: true,
            created_at: 7,
        })
    }

    #[test]
    fn each_entry_is_one_line_and_one_closed_object_and_one_shot_children_are_left_out() {
        let entries = [
            child("a", Mode::OneShot, Status::Running, "once"),
            child("b", Mode::Continuable, Status::Complete, "facts"),
            child("c", Mode::Continuable, Status::Running, "an old\nlabel"),
            Entry::Diagnostic { id: SessionId::new("d").unwrap(), reason: Reason::Unsupported },
        ];
        let (text, values) = render(&entries);
        assert_eq!(text, "b [complete] — facts\nc [running] — an old\\nlabel\nd [diagnostic: unsupported]");
        let expected = json!([
            {"kind": "child", "id": "b", "label": "facts", "status": "complete"},
            {"kind": "child", "id": "c", "label": "an old\nlabel", "status": "running"},
            {"kind": "diagnostic", "id": "d", "reason": "unsupported"},
        ]);
        assert_eq!(Value::Array(values), expected);
    }
}
