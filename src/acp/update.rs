//! What a client is told of a session, and how the protocol says it.

use agent_client_protocol::v1::schema as s;
use greenroom_session::id::SessionId;
use serde_json::{Map, Value, json};

/// Bytes of text in one update, at most; a longer text becomes several, or loses its end where the protocol has one piece only.
const PIECE: usize = 64 * 1024;

/// Something that a client is told of a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    /// Somebody said something to the agent.
    User { id: String, text: String, source: Value },
    /// The agent said something.
    Agent { id: String, text: String },
    /// The agent thought something.
    Thought { id: String, text: String },
    /// A call of a tool began.
    CallStarted { id: String, name: String, title: String, arguments: Option<String> },
    /// A call of a tool was answered. `asked` is its name and arguments if its beginning was not told.
    CallEnded { id: String, text: Option<String>, failed: bool, asked: Option<(String, String)> },
    /// A child began to live, or came to rest.
    Child(Child),
    /// A turn that no prompt waits for came to no good end.
    TurnFailed { turn: u64, code: String, message: String },
}

/// A child as its root's client is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Child {
    pub(super) id: SessionId,
    pub(super) parent: SessionId,
    pub(super) label: Option<String>,
    pub(super) running: bool,
    /// How its last turn ended, and the code of a failure.
    pub(super) outcome: Option<(String, Option<String>)>,
    /// The call that stands for its delegation, and whether the call is a tool's own, which has an end of its own.
    pub(super) call: Option<(String, bool)>,
}

impl Update {
    /// Says it in the protocol's words, in as many updates as it takes.
    pub(super) fn said(self, with_subagents: bool) -> Vec<s::SessionUpdate> {
        match self {
            Self::User { id, text, source } => {
                pieces(&text).map(|piece| s::SessionUpdate::UserMessageChunk(chunk(&id, piece).meta(meta("greenroom/source", source.clone())))).collect()
            }
            Self::Agent { id, text } => pieces(&text).map(|piece| s::SessionUpdate::AgentMessageChunk(chunk(&id, piece))).collect(),
            Self::Thought { id, text } => pieces(&text).map(|piece| s::SessionUpdate::AgentThoughtChunk(chunk(&id, piece))).collect(),
            Self::CallStarted { id, name, title, arguments } => {
                vec![s::SessionUpdate::ToolCall(call(id, name, title, arguments).status(s::ToolCallStatus::InProgress))]
            }
            Self::CallEnded { id, text, failed, asked } => {
                let status = if failed { s::ToolCallStatus::Failed } else { s::ToolCallStatus::Completed };
                let content = text.map(|text| vec![s::ToolCallContent::from(cut(&text))]);
                vec![if let Some((name, arguments)) = asked {
                    let title = name.clone();
                    s::SessionUpdate::ToolCall(call(id, name, title, Some(arguments)).status(status).content(content.unwrap_or_default()))
                } else {
                    let fields = s::ToolCallUpdateFields::new().status(status).content(content);
                    s::SessionUpdate::ToolCallUpdate(s::ToolCallUpdate::new(id, fields))
                }]
            }
            Self::Child(child) => child.said(with_subagents),
            Self::TurnFailed { turn, code, message } => {
                let facts = json!({"turn": turn, "code": code, "message": cut(&message)});
                vec![s::SessionUpdate::SessionInfoUpdate(s::SessionInfoUpdate::new().meta(meta("greenroom/turnFailed", facts)))]
            }
        }
    }
}

impl Child {
    fn said(self, with_subagents: bool) -> Vec<s::SessionUpdate> {
        let Self { id, parent, label, running, outcome, call } = self;
        let (kind, code) = outcome.map_or((None, None), |(kind, code)| (Some(kind), code));
        let facts = json!({
            "sessionId": id.as_str(), "parentId": parent.as_str(), "label": label, "status": if running { "running" } else { "complete" },
            "outcome": kind, "code": code, "toolCallId": call.as_ref().map(|(id, _)| id),
        });
        let facts = meta("greenroom/subagent", facts);
        let mut said = Vec::new();
        if let Some((call, of_tool)) = call {
            let failed = matches!(kind.as_deref(), Some("error" | "aborted"));
            let status = match (running, failed) {
                (true, _) => s::ToolCallStatus::InProgress,
                (false, true) => s::ToolCallStatus::Failed,
                (false, false) => s::ToolCallStatus::Completed,
            };
            // What a tool answered stands; the child's end is told beside it.
            let fields = if of_tool { s::ToolCallUpdateFields::new() } else { s::ToolCallUpdateFields::new().status(status) };
            said.push(s::SessionUpdate::ToolCallUpdate(s::ToolCallUpdate::new(call, fields).meta(facts.clone())));
        }
        said.push(s::SessionUpdate::SessionInfoUpdate(s::SessionInfoUpdate::new().meta(facts)));
        if with_subagents {
            let state = if running { s::StateUpdate::Running(s::RunningStateUpdate::new()) } else { s::StateUpdate::Idle(s::IdleStateUpdate::new()) };
            let mut update = s::SubagentUpdate::new(id.as_str().to_owned()).state(state);
            if let Some(label) = label {
                update = update.title(label);
            }
            said.push(s::SessionUpdate::SubagentUpdate(update));
        }
        said
    }
}

fn call(id: String, name: String, title: String, arguments: Option<String>) -> s::ToolCall {
    let call = s::ToolCall::new(id, title).name(name).kind(s::ToolKind::Other);
    let Some(arguments) = arguments else { return call };
    let input = if arguments.len() > PIECE { Value::String(cut(&arguments)) } else { serde_json::from_str(&arguments).unwrap_or(Value::String(arguments)) };
    call.raw_input(input)
}

fn chunk(id: &str, text: &str) -> s::ContentChunk {
    s::ContentChunk::new(text.to_owned().into()).message_id(s::MessageId::new(id.to_owned()))
}

fn meta(key: &str, value: Value) -> s::Meta {
    Map::from_iter([(key.to_owned(), value)])
}

/// Splits a text; an empty one has no piece.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut left = text;
    std::iter::from_fn(move || {
        let end = (0..=PIECE.min(left.len())).rev().find(|end| left.is_char_boundary(*end))?;
        let (piece, rest) = left.split_at_checked(end)?;
        left = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn cut(text: &str) -> String {
    match pieces(text).next() {
        Some(piece) if piece.len() < text.len() => format!("{piece}… (the whole has {} bytes)", text.len()),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_becomes_several_updates_and_none_of_it_is_lost() {
        let text = "ä".repeat(PIECE);
        let said = Update::Agent { id: "m".into(), text: text.clone() }.said(false);
        let parts: Vec<String> = said
            .iter()
            .map(|update| match update {
                s::SessionUpdate::AgentMessageChunk(s::ContentChunk { content: s::ContentBlock::Text(text), .. }) => text.text.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= PIECE));
        assert_eq!(parts.concat(), text);
        assert_eq!(Update::Agent { id: "m".into(), text: String::new() }.said(false), []);
        assert!(cut(&text).ends_with(&format!("… (the whole has {} bytes)", text.len())) && cut("a") == "a");
    }

    #[test]
    fn a_child_is_told_in_the_protocols_own_words_to_who_knows_them_only() {
        let child = Child {
            id: SessionId::new("c").unwrap(),
            parent: SessionId::new("p").unwrap(),
            label: Some("facts".into()),
            running: true,
            outcome: None,
            call: None,
        };
        let kinds = |said: Vec<s::SessionUpdate>| said.iter().filter(|update| matches!(update, s::SessionUpdate::SubagentUpdate(_))).count();
        assert_eq!(kinds(Update::Child(child.clone()).said(false)), 0);
        assert_eq!(kinds(Update::Child(child).said(true)), 1);
    }
}
