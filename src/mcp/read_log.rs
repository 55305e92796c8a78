//! Reading a subagent's log by pages.

use greenroom_session::{codec::encode_event, event::Event, id::SessionId};
use serde_json::{Value, json};

use super::{answer::Answer, arguments, call::Call, desk::Desk};
use crate::tool::ToolError;

/// Events of a page for which no number is asked.
const EVENTS: u64 = 50;
/// Bytes of a page.
const PAGE_BYTES: usize = 64 << 10;
/// Events that are read at once: each may be as long as a message may be.
const READ_AT_ONCE: u64 = 4;
/// The fewest bytes that are shown of a long text.
const LEAST_SHOWN: usize = 1_000;

impl Desk {
    pub(super) async fn read_log(&self, arguments: Result<arguments::ReadLog, ToolError>, call: &Call) -> Result<Answer, ToolError> {
        let arguments::ReadLog { subagent_id, from, limit } = arguments?;
        let child = self.below(&subagent_id, call).await?;
        let (from, limit) = (from.unwrap_or(0), limit.unwrap_or(EVENTS));
        let mut page =
            Page { text: String::new(), next: from, shown: (PAGE_BYTES / 4 * 3 / usize::try_from(limit).unwrap_or(usize::MAX).max(1)).max(LEAST_SHOWN) };
        let (mut ends, mut left) = (false, limit);
        while !ends && left > 0 {
            let wanted = READ_AT_ONCE.min(left);
            left -= wanted;
            let read = self.host.read_events(&child, page.next, usize::try_from(wanted).unwrap_or(1), call.cancelled.clone()).await;
            let events = read.map_err(|error| ToolError::new(error.code(), format!("subagent \"{child}\" is unavailable: {error}")))?;
            ends = (events.len() as u64) < wanted;
            if !events.iter().all(|event| page.take(&child, event)) {
                ends = false;
                break;
            }
        }
        let Page { text, mut next, .. } = page;
        if ends && text.is_empty() {
            // Somebody may have asked for what comes long after the end.
            next = self.position(&child).await?;
        }
        let place = if ends { format!("the log ends here, position {next}") } else { format!("there may be more, the next page is from {next}") };
        let place = format!("{} events from {from}; {place}", text.lines().count());
        Ok(Answer(if text.is_empty() { vec![place] } else { vec![text, place] }))
    }
}

struct Page {
    text: String,
    next: u64,
    /// Bytes that are shown of each long text.
    shown: usize,
}

impl Page {
    /// Adds an event as a line of JSON; `false` if the page has no room for it.
    fn take(&mut self, session: &SessionId, event: &Event) -> bool {
        let mut line = line_of(session, event, self.shown);
        if line.len() > PAGE_BYTES / 2 {
            line = json!({"seq": event.seq, "time": event.time, "type": event.body.type_name(), "omitted": "too long for a page"}).to_string();
        }
        if !self.text.is_empty() && self.text.len() + line.len() > PAGE_BYTES {
            return false;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&line);
        self.next = event.seq + 1;
        true
    }
}

/// Writes an event as the log has it, with long texts cut.
fn line_of(session: &SessionId, event: &Event, shown: usize) -> String {
    let whole = encode_event(session, event).ok().and_then(|encoded| serde_json::from_slice::<Value>(&encoded.body).ok());
    let Some(mut whole) = whole else {
        return json!({"seq": event.seq, "type": event.body.type_name(), "omitted": "it cannot be written"}).to_string();
    };
    let mut open = vec![&mut whole];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => cut(text, shown),
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.iter_mut().map(|(_, value)| value)),
            _ => {}
        }
    }
    whole.to_string()
}

/// Cuts a text, and says how much of it that took away.
pub(super) fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let mut at = most;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let rest = text.len() - at;
    text.truncate(at);
    text.extend(["… (", &rest.to_string(), " more bytes)"]);
}
