//! A log as a person reads it: turns with their times, who said what, what was done.
//!
//! Every text that comes from the log is escaped, so that a terminal obeys none of it.

use greenroom::session::{
    descriptor::Descriptor,
    event::{Body, Event, SurfaceMessage, TurnEnd},
    message::{Block, Source},
    text::{Escaped, EscapedLines},
};

use super::{
    paint::{Paint, Role},
    span,
};

/// Characters of an id that stand for it here: a beginning that every verb takes.
const SHORT_ID: usize = 8;
/// Characters of a recorded input that are shown.
const RECORDED_CHARS: usize = 100;

/// Writes events as lines, in the order of the log.
#[derive(Debug)]
pub(crate) struct Transcript {
    paint: Paint,
    /// When the turn under way began; unknown where the transcript begins within it.
    turn_began: Option<u64>,
    seed_length: u64,
}

impl Transcript {
    /// Begins a transcript of a log whose first `seed_length` events were inherited.
    pub(crate) fn new(paint: Paint, seed_length: u64) -> Self {
        Self { paint, turn_began: None, seed_length }
    }

    /// Returns the lines of the next event; none where it says nothing to a person.
    pub(crate) fn lines(&mut self, event: &Event) -> Vec<String> {
        let mut lines = Vec::new();
        if self.seed_length > 0 && event.seq == self.seed_length {
            lines.push(self.aside("— inherited up to here —"));
        }
        match &event.body {
            Body::RootOpened(root) => {
                let title = format!("{}, played by {}", Escaped(&root.label), Escaped(&root.agent));
                lines.push(self.paint.show(Role::Heading, title).to_string());
                lines.extend(root.vars.iter().map(|(name, value)| self.aside(format!("{} = {}", Escaped(name), Escaped(value)))));
            }
            Body::Descriptor(data) => lines.push(self.descriptor(data)),
            Body::EndSeed {} | Body::StepStart { .. } | Body::StepEnd { cut: None | Some(false), .. } | Body::NoteJoined { .. } => {}
            Body::ActivationStart { epoch } => lines.push(self.aside(format!("epoch {epoch} begins, {}", span::time(event.time)))),
            Body::ActivationEnd { epoch, reason } => lines.push(self.aside(format!("epoch {epoch} ends: {}", name_of(reason)))),
            Body::TurnStart { turn, message, attempt } => {
                self.turn_began = Some(event.time);
                let again = if *attempt > 1 { self.paint.show(Role::Odd, format!(" · attempt {attempt}")).to_string() } else { String::new() };
                let aside = self.paint.show(Role::Aside, format!(" · {} · message {}", span::time(event.time), short(message.as_str()))).to_string();
                lines.push(String::new());
                lines.push(format!("{}{again}{aside}", self.paint.show(Role::Heading, format!("turn {turn}"))));
            }
            Body::TurnEnd { reason, .. } => lines.push(self.turn_end(reason, event.time)),
            Body::StepEnd { step, cut: Some(true), .. } => lines.push(self.aside(format!("  step {step} was cut off"))),
            Body::Memo { key, text, .. } => {
                lines.extend(match key {
                    // A recorded input is for the machine; its beginning is enough to know it by.
                    Some(key) => vec![self.aside(format!("  recorded {}: {}", Escaped(key), beginning(text)))],
                    None => speech("memo", text).into_iter().map(|line| self.aside(line)).collect(),
                });
            }
            Body::EffectAccepted { kind, target, id, .. } => lines.push(self.aside(format!("  → {} {} ({})", kind.as_str(), short(target), short(id)))),
            Body::AnswerRecorded { text, .. } => lines.push(self.aside(format!("  the command answered, {}", span::bytes(text.len() as u64)))),
            Body::UserMessage(message) | Body::AssistantMessage { message, .. } => self.message(message, &mut lines),
            Body::ToolCall { name, call_id, .. } => lines.push(self.aside(format!("  tool {} runs ({})", Escaped(name), short(call_id)))),
            Body::ToolResult { message, error, .. } => {
                self.message(message, &mut lines);
                if let Some(error) = error {
                    lines.push(self.paint.show(Role::Bad, format!("  the tool failed: {}", Escaped(&error.to_string()))).to_string());
                }
            }
            Body::MessageWithdrawn { message, by } => lines.push(self.aside(format!("message {} withdrawn by {}", short(message.as_str()), Escaped(by)))),
            Body::ControlAnswered { op, outcome, .. } => lines.push(self.aside(format!("request {}: {}", Escaped(op), Escaped(outcome)))),
            Body::Opaque(opaque) => lines.push(self.aside(format!("({})", Escaped(&opaque.name)))),
        }
        lines
    }

    fn aside(&self, text: impl std::fmt::Display) -> String {
        self.paint.show(Role::Aside, text).to_string()
    }

    fn descriptor(&self, data: &serde_json::Value) -> String {
        match Descriptor::parse(data) {
            Ok(descriptor) => {
                let label = descriptor.label.as_deref().unwrap_or("(no label)");
                self.paint.show(Role::Heading, format!("{}, played by {}", Escaped(label), Escaped(&descriptor.agent))).to_string()
            }
            Err(error) => self.paint.show(Role::Bad, Escaped(&error.to_string())).to_string(),
        }
    }

    fn turn_end(&mut self, reason: &TurnEnd, time: u64) -> String {
        let span = self.turn_began.take().map_or_else(String::new, |began| self.aside(format!(" · {}", span::span(time.saturating_sub(began)))));
        let (role, text) = match reason {
            TurnEnd::Completed => (Role::Good, "completed".to_owned()),
            TurnEnd::MaxTokens => (Role::Odd, "ended: the model ran out of output tokens".to_owned()),
            TurnEnd::Aborted { cause } => (Role::Odd, format!("aborted: {}", Escaped(cause))),
            TurnEnd::Error { code, message } => (Role::Bad, format!("failed [{}]: {}", Escaped(code), Escaped(message))),
            TurnEnd::Disposed => (Role::Odd, "put down by a shutdown, to be served again".to_owned()),
            TurnEnd::Interrupted => (Role::Odd, "interrupted, to be served again".to_owned()),
        };
        format!("  {}{span}", self.paint.show(role, text))
    }

    fn message(&self, message: &SurfaceMessage, lines: &mut Vec<String>) {
        let name = speaker(&message.source);
        for block in &message.content {
            match block {
                Block::Text { text } => {
                    let mut said = speech(&name, text).into_iter();
                    lines.extend(said.next().map(|first| match first.split_once(": ") {
                        Some((who, what)) => format!("{}: {what}", self.paint.show(Role::Heading, who)),
                        None => first,
                    }));
                    lines.extend(said);
                }
                Block::Reasoning { text } => lines.extend(speech(&format!("{name} thinks"), text).into_iter().map(|line| self.aside(line))),
                Block::ToolCall { name: tool, arguments, .. } => lines.push(self.aside(format!("  {name} calls {}({})", Escaped(tool), Escaped(arguments)))),
                Block::ToolResult { text, .. } => lines.extend(speech("tool", text)),
            }
        }
    }
}

/// Puts a name before a text, and its further lines below it.
fn speech(name: &str, text: &str) -> Vec<String> {
    let shown = EscapedLines(text).to_string();
    let mut lines = shown.split('\n');
    let first = format!("  {name}: {}", lines.next().unwrap_or_default());
    std::iter::once(first).chain(lines.map(|line| format!("    {line}"))).collect()
}

fn speaker(source: &Source) -> String {
    match source {
        Source::Coordinator { session } => format!("parent {}", short(session.as_str())),
        Source::SubagentReport { session } => format!("report of {}", short(session.as_str())),
        Source::SubagentSettled { session, .. } => format!("notice of {}", short(session.as_str())),
        Source::Agent { name } | Source::Plugin { name } | Source::Model { name, .. } => Escaped(name).to_string(),
        other => Escaped(other.kind()).to_string(),
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(RECORDED_CHARS) {
        Some((at, _)) => format!("{}…", Escaped(text.get(..at).unwrap_or(text))),
        None => Escaped(text).to_string(),
    }
}

fn short(id: &str) -> String {
    let end = id.char_indices().nth(SHORT_ID).map_or(id.len(), |(at, _)| at);
    Escaped(id.get(..end).unwrap_or(id)).to_string()
}

/// The name that a unit variant has on disk.
pub(crate) fn name_of(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use greenroom::session::{
        event::{EpochEnd, Role as Speaker, RootOpened},
        id::{EffectKind, MessageId, SessionId},
        text::is_unsafe,
    };

    use super::*;

    fn message(source: Source, text: &str) -> SurfaceMessage {
        SurfaceMessage { id: MessageId::new("m0").unwrap(), role: Speaker::User, content: vec![Block::text(text)], source }
    }

    fn transcript(bodies: Vec<Body>) -> String {
        let mut transcript = Transcript::new(Paint::plain(), 0);
        let events = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_764_512_345_678 + seq * 500));
        events.flat_map(|event| transcript.lines(&event)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_transcript_reads_like_a_conversation() {
        let m = MessageId::new("0123456789").unwrap();
        let child = SessionId::new("abcdefghijk").unwrap();
        let opened = RootOpened {
            label: "launch".into(),
            agent: "editor".into(),
            program_sha256: None,
            vars: [("city".to_owned(), "Lyon".to_owned())].into(),
            seed: None,
            params: None,
        };
        let settled = Source::SubagentSettled { session: child.clone(), epoch: 1, outcome: "completed".into(), code: None };
        insta::assert_snapshot!(transcript(vec![
            Body::RootOpened(opened),
            Body::EndSeed {},
            Body::ActivationStart { epoch: 1 },
            Body::TurnStart { turn: 1, message: m.clone(), attempt: 2 },
            Body::UserMessage(message(Source::User, "Cover the launch.\nBoth sides.")),
            Body::StepStart { turn: 1, step: 1 },
            Body::Memo { turn: 1, message: m.clone(), key: None, text: "two files".into() },
            Body::EffectAccepted { turn: 1, message: m, key: "k".into(), kind: EffectKind::Delegate, target: "r1".into(), id: child.to_string() },
            Body::UserMessage(message(settled, "settled: completed")),
            Body::StepEnd { turn: 1, step: 1, cut: Some(true) },
            Body::TurnEnd { turn: 1, reason: TurnEnd::error("COMMAND_TIMEOUT", "too slow") },
            Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled },
        ]), @r"
        launch, played by editor
        city = Lyon
        epoch 1 begins, 2025-11-30 14:19:06Z

        turn 1 · attempt 2 · 2025-11-30 14:19:07Z · message 01234567
          user: Cover the launch.
            Both sides.
          memo: two files
          → delegate r1 (abcdefgh)
          notice of abcdefgh: settled: completed
          step 1 was cut off
          failed [COMMAND_TIMEOUT]: too slow · 3.5 s
        epoch 1 ends: settled
        ");
    }

    #[test]
    fn nothing_that_a_log_says_reaches_the_terminal_as_a_command() {
        let bad = "a\u{1b}[2Jb\r\u{9b}c\u{202e}d";
        let m = MessageId::new(bad).unwrap();
        let shown = transcript(vec![
            Body::TurnStart { turn: 1, message: m.clone(), attempt: 1 },
            Body::UserMessage(message(Source::Agent { name: bad.into() }, bad)),
            Body::Memo { turn: 1, message: m.clone(), key: Some(bad.into()), text: bad.into() },
            Body::EffectAccepted { turn: 1, message: m, key: bad.into(), kind: EffectKind::Send, target: bad.into(), id: bad.into() },
            Body::Descriptor(serde_json::json!({"version": 1, "mode": "one-shot", "provider": "p", "agent": bad, "label": bad})),
            Body::TurnEnd { turn: 1, reason: TurnEnd::Aborted { cause: bad.into() } },
        ]);
        assert!(!shown.chars().any(|c| c != '\n' && is_unsafe(c)), "{shown:?}");
    }
}
