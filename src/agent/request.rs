//! The request of a command: one JSON object on its standard input, and a few variables.

use std::collections::BTreeMap;

use greenroom_actors::{Turn, TurnError, catalog::Entry};
use greenroom_session::{
    event::SurfaceMessage,
    message::{Source, text_of},
};
use serde::Serialize;
use serde_json::Value;

/// Most messages of the history that a command gets.
const HISTORY_MESSAGES: usize = 50;
/// Most bytes of JSON that the history takes.
const HISTORY_BYTES: usize = 256 * 1024;
/// Most bytes of the message in the environment; the whole of it is on the standard input.
const ENV_MESSAGE_BYTES: usize = 64 * 1024;

#[derive(Serialize)]
struct Request<'a> {
    session: &'a str,
    parent: Option<&'a str>,
    depth: u32,
    turn: u64,
    attempt: u32,
    params: Option<Value>,
    message: Option<Said>,
    notes: Vec<Said>,
    children: Vec<Child>,
    vars: &'a BTreeMap<String, String>,
    history: Vec<Value>,
}

/// A message as a command sees it.
#[derive(Serialize)]
struct Said {
    id: String,
    text: String,
    source: Source,
}

#[derive(Serialize)]
struct Child {
    id: String,
    #[serde(rename = "as")]
    alias: Option<String>,
    label: Option<String>,
    status: &'static str,
    pending: u64,
    last_outcome: Option<greenroom_session::head::Outcome>,
}

impl From<&SurfaceMessage> for Said {
    fn from(message: &SurfaceMessage) -> Self {
        Self { id: message.id.to_string(), text: text_of(&message.content), source: message.source.clone() }
    }
}

/// Writes the request of a turn.
pub(super) async fn request(turn: &Turn, vars: &BTreeMap<String, String>) -> Result<Vec<u8>, TurnError> {
    let children = turn.list_agents().await?;
    let request = Request {
        session: turn.session().as_str(),
        parent: turn.parent().map(greenroom_session::id::SessionId::as_str),
        depth: turn.depth(),
        turn: turn.number(),
        attempt: turn.attempt(),
        params: turn.params(),
        message: turn.message().map(|message| Said::from(&*message)),
        notes: turn.notes().iter().map(|note| Said::from(&**note)).collect(),
        children: children.into_iter().filter_map(child).collect(),
        vars,
        history: history(turn)?,
    };
    encode(&request)
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, TurnError> {
    serde_json::to_vec(value).map_err(|error| TurnError::new("COMMAND_IO", format!("the request cannot be written: {error}")))
}

/// A child that cannot be described is left out: a command could do nothing with it.
fn child(entry: Entry) -> Option<Child> {
    let Entry::Child(listed) = entry else { return None };
    Some(Child {
        id: listed.id.to_string(),
        alias: listed.alias,
        label: listed.label,
        status: listed.status.as_str(),
        pending: listed.pending,
        last_outcome: listed.last_outcome,
    })
}

/// The last messages that fit, in order.
fn history(turn: &Turn) -> Result<Vec<Value>, TurnError> {
    let mut kept = Vec::new();
    let mut bytes = 0;
    for message in turn.history().iter().rev().take(HISTORY_MESSAGES) {
        let said = serde_json::json!({ "id": message.id, "role": message.role, "text": text_of(&message.content), "source": message.source });
        bytes += encode(&said)?.len() + 1;
        if bytes > HISTORY_BYTES {
            break;
        }
        kept.push(said);
    }
    kept.reverse();
    Ok(kept)
}

/// Returns the variables that every command gets.
pub(super) fn variables(turn: &Turn) -> [(String, String); 4] {
    [
        ("GREENROOM_MESSAGE".to_owned(), env_text(&turn.text())),
        ("GREENROOM_SESSION".to_owned(), turn.session().to_string()),
        ("GREENROOM_TURN".to_owned(), turn.number().to_string()),
        ("GREENROOM_ATTEMPT".to_owned(), turn.attempt().to_string()),
    ]
}

/// Cuts a text for the environment, which takes no NUL.
fn env_text(text: &str) -> String {
    let end = (0..=ENV_MESSAGE_BYTES.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let text = env_text(&format!("x{}", "é".repeat(ENV_MESSAGE_BYTES)));
        assert_eq!(text.len(), ENV_MESSAGE_BYTES - 1);
        assert_eq!(env_text("a\0b"), "a\u{fffd}b");
        assert_eq!(env_text(""), "");
    }
}
