//! A log as a person reads it: turns with who asked, how they ended and how long they took, who said what, what was done.
//!
//! Every text that comes from the log is escaped, so that a terminal obeys none of it. A turn's heading says how it ended, so the lines of a turn are held back
//! until it has, or until somebody waits for them ([`Transcript::pause`]).

use std::collections::HashMap;

use greenroom::session::{
    descriptor::{Descriptor, ModelRoute, ToolFilter},
    event::{Body, Event, RootOpened, SurfaceMessage, SurfaceOp, TurnEnd},
    id::{EffectKind, MessageId, SessionId},
    message::{Block, Source},
    text::{Escaped, EscapedLines},
};

use super::{
    layout::Layout,
    names::{Names, short},
    paint::{Paint, Role},
    span,
};

/// Characters of a recorded input that are shown: it is for the machine, and its beginning is enough to know it by.
const RECORDED_CHARS: usize = 100;
/// Lines of a turn that are held back for its heading to say how it ended.
const HELD_LINES: usize = 50_000;

/// Writes events as lines, in the order of the log.
#[derive(Debug)]
pub(crate) struct Transcript<'a> {
    paint: Paint,
    layout: Layout,
    names: Names<'a>,
    seed_length: u64,
    /// The turn under way; unknown where the transcript begins within it.
    turn: Option<OpenTurn>,
    /// Who asked for what is not done with: a later attempt is told without its message.
    asked: HashMap<MessageId, String>,
    /// The tools by the calls of the turn.
    tools: HashMap<String, String>,
}

#[derive(Debug)]
struct OpenTurn {
    turn: u64,
    message: MessageId,
    attempt: u32,
    began: u64,
    /// Its lines so far; none once its heading is shown.
    held: Option<Vec<String>>,
}

impl<'a> Transcript<'a> {
    /// Begins a transcript of a log whose first `seed_length` events were inherited.
    pub(crate) fn new(paint: Paint, layout: Layout, names: Names<'a>, seed_length: u64) -> Self {
        Self { paint, layout, names, seed_length, turn: None, asked: HashMap::new(), tools: HashMap::new() }
    }

    /// Returns the lines that are to be shown after the next event.
    pub(crate) fn lines(&mut self, event: &Event) -> Vec<String> {
        let mut lines = Vec::new();
        if self.seed_length > 0 && event.seq == self.seed_length {
            lines.push(self.rule("inherited up to here"));
        }
        match &event.body {
            Body::TurnStart { turn, message, attempt } => {
                lines.extend(self.pause());
                self.tools.clear();
                self.turn = Some(OpenTurn { turn: *turn, message: message.clone(), attempt: *attempt, began: event.time, held: Some(Vec::new()) });
                lines
            }
            Body::TurnEnd { reason, .. } => {
                lines.extend(self.turn_end(reason, event.time));
                lines
            }
            body => {
                self.body(body, event, &mut lines);
                self.hold(lines)
            }
        }
    }

    /// Returns what is held back: the heading of a turn that has not ended, and its lines so far. What follows of it is shown as it comes.
    pub(crate) fn pause(&mut self) -> Vec<String> {
        let Some(mut open) = self.turn.take() else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(held) = open.held.take() {
            lines = self.heading(&open, None);
            lines.extend(held);
        }
        self.turn = Some(open);
        lines
    }

    /// Returns what is left to be shown at the end of the log.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut lines = self.pause();
        if self.turn.take().is_some() {
            lines.push(self.paint.show(Role::Odd, "  (not ended yet)").to_string());
        }
        lines
    }

    fn hold(&mut self, lines: Vec<String>) -> Vec<String> {
        let Some(held) = self.turn.as_mut().and_then(|open| open.held.as_mut()) else { return lines };
        held.extend(lines);
        if held.len() > HELD_LINES { self.pause() } else { Vec::new() }
    }

    fn turn_end(&mut self, reason: &TurnEnd, time: u64) -> Vec<String> {
        let open = self.turn.take();
        let mut lines = Vec::new();
        let mut told = false;
        if let Some(open) = &open {
            if let Some(held) = &open.held {
                lines = self.heading(open, Some((reason, time)));
                lines.extend(held.iter().cloned());
                told = *reason == TurnEnd::Completed;
            }
            if reason.is_final() {
                self.asked.remove(&open.message);
            }
        }
        if !told {
            let (role, short, long) = ending(reason);
            self.block(&mut lines, 2, "", Some(role), &long.unwrap_or(short));
        }
        lines
    }

    fn heading(&self, open: &OpenTurn, end: Option<(&TurnEnd, u64)>) -> Vec<String> {
        let mut parts = vec![(Some(Role::Heading), format!("turn {}", open.turn))];
        parts.extend(self.asked.get(&open.message).map(|asked| (None, asked.clone())));
        if open.attempt > 1 {
            parts.push((Some(Role::Odd), format!("attempt {}", open.attempt)));
        }
        let mut times = span::time(open.began);
        if let Some((reason, time)) = end {
            let (role, short, _) = ending(reason);
            parts.push((Some(role), short));
            parts.push((Some(Role::Aside), span::span(time.saturating_sub(open.began))));
            let ended = span::time(time);
            if ended != times {
                let same_day = ended.get(..10) == times.get(..10);
                times = format!("{times} – {}", if same_day { ended.get(11..).unwrap_or(&ended) } else { &ended });
            }
        }
        parts.push((Some(Role::Aside), times));
        parts.push((Some(Role::Aside), format!("message {}", short(open.message.as_str()))));
        let mut lines = vec![String::new()];
        lines.extend(self.layout.parts(&parts, |role, part| self.painted(*role, part)));
        lines
    }

    fn body(&mut self, body: &Body, event: &Event, lines: &mut Vec<String>) {
        match body {
            Body::RootOpened(root) => self.root(root, lines),
            Body::Descriptor(data) => self.descriptor(data, lines),
            Body::ActivationStart { epoch } => lines.push(self.rule(&format!("epoch {epoch} · {}", span::time(event.time)))),
            Body::ActivationEnd { epoch, reason } => lines.push(self.rule(&format!("epoch {epoch} ended: {}", name_of(reason)))),
            Body::StepEnd { step, cut: Some(true), .. } => self.aside(lines, &format!("step {step} was cut off")),
            Body::Memo { key, text, .. } => match key {
                Some(key) => self.aside(lines, &format!("recorded {}: {}", Escaped(key), beginning(text))),
                None => self.block(lines, 2, "memo", Some(Role::Aside), text),
            },
            Body::EffectAccepted { kind, target, id, .. } => self.effect(*kind, target, id, lines),
            Body::AnswerRecorded { text, .. } => self.aside(lines, &format!("the command answered, {}", span::bytes(text.len() as u64))),
            Body::UserMessage(message) => {
                if self.turn.as_ref().is_some_and(|open| open.message == message.id) {
                    let asked = self.asked(&message.source);
                    self.asked.entry(message.id.clone()).or_insert(asked);
                }
                self.message(message, lines);
            }
            Body::AssistantMessage { message, .. } => self.message(message, lines),
            Body::ToolCall { name, .. } => self.block(lines, 4, "", Some(Role::Aside), &format!("{} runs", Escaped(name))),
            Body::ToolResult { message, error, .. } => {
                self.message(message, lines);
                if let Some(error) = error {
                    self.block(lines, 4, "the tool failed", Some(Role::Bad), &error.to_string());
                }
            }
            Body::MessageWithdrawn { message, by } => self.aside(lines, &format!("message {} withdrawn by {}", short(message.as_str()), Escaped(by))),
            Body::ControlAnswered { op, outcome, .. } => self.aside(lines, &format!("request {}: {}", Escaped(op), Escaped(outcome))),
            Body::CompactSummary { shadowed_seqs, model, .. } => {
                let by = model.as_ref().map_or_else(String::new, |model| format!(" by {}", Escaped(model)));
                self.aside(lines, &format!("{} compacted{by}", span::count(shadowed_seqs.len() as u64, "message")));
            }
            Body::CompactEnd { error: Some(error), .. } => self.aside(lines, &format!("compaction failed: {}", Escaped(error))),
            Body::Opaque(opaque) => self.aside(lines, &format!("({}) {}", Escaped(&opaque.name), Escaped(&opaque.data.to_string()))),
            Body::CompactStart { .. }
            | Body::CompactEnd { error: None, .. }
            | Body::EndSeed {}
            | Body::StepStart { .. }
            | Body::StepEnd { .. }
            | Body::NoteJoined { .. }
            | Body::TurnStart { .. }
            | Body::TurnEnd { .. } => {}
        }
        if let Some(SurfaceOp::Replace { start, end }) = event.surface_op {
            self.aside(lines, &format!("(in place of events {start} to {end})"));
        }
    }

    fn root(&self, root: &RootOpened, lines: &mut Vec<String>) {
        self.title(lines, &root.label, &root.agent);
        for (name, value) in &root.vars {
            self.aside(lines, &format!("{} = {}", Escaped(name), Escaped(value)));
        }
        if let Some(params) = &root.params {
            self.aside(lines, &format!("params {}", Escaped(&params.to_string())));
        }
        self.route(root.model.as_ref(), lines);
        if let Some(seed) = root.seed {
            self.aside(lines, &format!("seed {seed}"));
        }
    }

    fn descriptor(&self, data: &serde_json::Value, lines: &mut Vec<String>) {
        match Descriptor::parse(data) {
            Ok(descriptor) => {
                self.title(lines, descriptor.label.as_deref().unwrap_or("(no label)"), &descriptor.agent);
                if let Some(params) = &descriptor.params {
                    self.aside(lines, &format!("params {}", Escaped(&params.to_string())));
                }
                self.route(descriptor.model.as_ref(), lines);
                if let Some(persona) = &descriptor.persona {
                    self.aside(lines, &format!("persona {}", Escaped(persona)));
                }
                let ToolFilter { allow, deny } = descriptor.tool_filter.unwrap_or(ToolFilter { allow: None, deny: None });
                for (what, tools) in [("only the tools", allow), ("not the tools", deny)] {
                    if let Some(tools) = tools {
                        self.aside(lines, &format!("{what} [{}]", Escaped(&tools.join(", "))));
                    }
                }
            }
            Err(error) => self.block(lines, 0, "", Some(Role::Bad), &error.to_string()),
        }
    }

    fn route(&self, model: Option<&ModelRoute>, lines: &mut Vec<String>) {
        if let Some(ModelRoute { provider, name }) = model {
            let of = provider.as_ref().map_or_else(String::new, |provider| format!(" of {}", Escaped(provider)));
            self.aside(lines, &format!("model {}{of}", Escaped(name)));
        }
    }

    fn title(&self, lines: &mut Vec<String>, label: &str, agent: &str) {
        self.block(lines, 0, "", Some(Role::Heading), &format!("{}, played by {}", Escaped(label), Escaped(agent)));
    }

    fn effect(&mut self, kind: EffectKind, target: &str, id: &str, lines: &mut Vec<String>) {
        let mut name = |id: &str| SessionId::new(id).map_or_else(|_| short(id), |id| self.names.name(&id));
        let done = match kind {
            EffectKind::Delegate => match name(id) {
                label if label != short(id) => format!("→ delegate {label} ({}, played by {})", short(id), Escaped(target)),
                id => format!("→ delegate {id} (played by {})", Escaped(target)),
            },
            EffectKind::Send => format!("→ send to {} (message {})", name(target), short(id)),
            EffectKind::Report => format!("→ report to the parent (message {})", short(id)),
        };
        self.aside(lines, &done);
    }

    fn message(&mut self, message: &SurfaceMessage, lines: &mut Vec<String>) {
        let name = self.speaker(&message.source);
        // A notice is the runtime's word; what the child had to say it has reported.
        let role = matches!(message.source, Source::SubagentSettled { .. }).then_some(Role::Aside);
        for block in &message.content {
            match block {
                Block::Text { text } => self.block(lines, 2, &name, role, text),
                Block::Reasoning { text, .. } => self.block(lines, 2, &format!("{name} thinks"), Some(Role::Aside), text),
                Block::ToolCall { id, name: tool, arguments } => {
                    self.tools.insert(id.clone(), Escaped(tool).to_string());
                    self.block(lines, 4, &format!("calls {}", Escaped(tool)), None, arguments);
                }
                Block::ToolResult { call_id, text, is_error } => {
                    let tool = self.tools.get(call_id).cloned().unwrap_or_else(|| "the tool".to_owned());
                    self.block(lines, 4, &format!("{tool} {}", if *is_error { "fails" } else { "answers" }), is_error.then_some(Role::Bad), text);
                }
            }
        }
    }

    fn speaker(&mut self, source: &Source) -> String {
        match source {
            Source::Coordinator { .. } => "parent".to_owned(),
            Source::SubagentReport { session } => format!("report of {}", self.names.name(session)),
            Source::SubagentSettled { session, .. } => format!("notice of {}", self.names.name(session)),
            Source::Agent { name } | Source::Plugin { name } | Source::Model { name, .. } => Escaped(name).to_string(),
            other => Escaped(other.kind()).to_string(),
        }
    }

    fn asked(&mut self, source: &Source) -> String {
        let speaker = self.speaker(source);
        match source {
            Source::SubagentReport { .. } | Source::SubagentSettled { .. } => format!("woken by the {speaker}"),
            Source::Agent { .. } | Source::Plugin { .. } | Source::Model { .. } => format!("from {speaker}"),
            _ => format!("from the {speaker}"),
        }
    }

    fn rule(&self, text: &str) -> String {
        self.paint.show(Role::Aside, self.layout.rule(text)).to_string()
    }

    fn aside(&self, lines: &mut Vec<String>, text: &str) {
        self.block(lines, 2, "", Some(Role::Aside), text);
    }

    fn painted(&self, role: Option<Role>, text: &str) -> String {
        role.map_or_else(|| text.to_owned(), |role| self.paint.show(role, text).to_string())
    }

    /// Adds a text with a name before it, `indent` columns in and its further lines two more.
    fn block(&self, lines: &mut Vec<String>, indent: usize, name: &str, role: Option<Role>, text: &str) {
        let indent = " ".repeat(indent);
        let name = if name.is_empty() { String::new() } else { format!("{name}:") };
        let mut first = if name.is_empty() { indent.clone() } else { format!("{indent}{name} ") };
        let (rest, text) = (format!("{indent}  "), EscapedLines(text).to_string());
        if self.layout.is_narrow_after(&first) {
            lines.extend(self.layout.lines(&indent, &rest, &name).iter().map(|line| self.painted(Some(role.unwrap_or(Role::Heading)), line)));
            first.clone_from(&rest);
        }
        let laid_out = self.layout.lines(&first, &rest, &text);
        lines.extend(laid_out.iter().enumerate().map(|(at, line)| match line.get(indent.len()..).and_then(|line| line.strip_prefix(&name)) {
            Some(said) if at == 0 && !name.is_empty() => {
                let name = self.painted(Some(role.unwrap_or(Role::Heading)), &name);
                format!("{indent}{name}{}", if said.is_empty() { String::new() } else { self.painted(role, said) })
            }
            _ => self.painted(role, line),
        }));
    }
}

/// How a turn ended: how that looks, in a word or two, and, where there is more to say, at length.
fn ending(reason: &TurnEnd) -> (Role, String, Option<String>) {
    match reason {
        TurnEnd::Completed => (Role::Good, "completed".to_owned(), None),
        TurnEnd::MaxTokens => (Role::Odd, "cut short".to_owned(), Some("cut short: the model ran out of output tokens".to_owned())),
        TurnEnd::Aborted { cause } => (Role::Odd, "aborted".to_owned(), Some(format!("aborted: {cause}"))),
        TurnEnd::Error { code, message } => (Role::Bad, format!("failed [{}]", Escaped(code)), Some(format!("failed [{code}]: {message}"))),
        TurnEnd::Disposed => (Role::Odd, "put down".to_owned(), Some("put down by a shutdown, to be served again".to_owned())),
        TurnEnd::Interrupted => (Role::Odd, "interrupted".to_owned(), Some("interrupted by the end of its process, to be served again".to_owned())),
    }
}

/// Returns the beginning of a text, escaped, and says what is left out.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(RECORDED_CHARS) {
        Some((at, _)) => format!("{}… ({} characters, all with --raw)", Escaped(text.get(..at).unwrap_or(text)), text.chars().count()),
        None => Escaped(text).to_string(),
    }
}

/// The name that a unit variant has on disk.
pub(crate) fn name_of(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use greenroom::session::{
        event::Role as Speaker,
        id::SessionId,
        line::{Line, read_line},
        text::is_unsafe,
    };

    use super::*;

    fn message(source: Source, text: &str) -> SurfaceMessage {
        SurfaceMessage { id: MessageId::new("m0").unwrap(), role: Speaker::User, content: vec![Block::text(text)], source }
    }

    fn at(bodies: Vec<Body>) -> Vec<Event> {
        bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_764_512_345_678 + seq * 500)).collect()
    }

    fn shown(events: &[Event], columns: Option<usize>) -> String {
        let mut transcript = Transcript::new(Paint::plain(), Layout::new(columns), Names::default(), 0);
        let mut lines: Vec<String> = events.iter().flat_map(|event| transcript.lines(event)).collect();
        lines.extend(transcript.finish());
        lines.join("\n")
    }

    /// The events of the fixture that has a record of every kind.
    fn every_kind() -> Vec<Event> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1/every-kind.jsonl");
        let (id, mut events) = (SessionId::new("root").unwrap(), Vec::new());
        for line in std::fs::read_to_string(path).unwrap().lines() {
            if let Line::Event(event) = read_line(&id, events.len() as u64, line.as_bytes()).unwrap() {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn a_transcript_reads_like_a_conversation() {
        insta::assert_snapshot!(shown(&every_kind(), None), @r#"
        launch story, played by editor
          city = Lyon
          params {"tone":"dry"}
          seed 7
        ── epoch 1 · 2025-11-30 14:19:05Z ──

        turn 1 · from the user · interrupted · 12 ms · 2025-11-30 14:19:05Z · message m0
          user: Cover the launch in Lyon.
          recorded files: ["a","b"]
          memo: two files
          → delegate child (played by reporter)
          report of child: three facts
          notice of child: settled
          step 2 was cut off
          interrupted by the end of its process, to be served again
        ── epoch 1 ended: lost ──
        ── epoch 2 · 2025-11-30 14:19:05Z ──

        turn 2 · from the user · attempt 2 · completed · 3 ms · 2025-11-30 14:19:05Z · message m0
          the command answered, 14 bytes
          editor: done

        turn 3 · from the host · failed [NOT_FOUND] · 7 ms · 2025-11-30 14:19:05Z · message m1
          host: And now?
          gpt thinks: hm
            calls look: {"at":1}
            look runs
            look fails: nothing
            the tool failed: {"code":"NOT_FOUND","name":"NotFound"}
          failed [NOT_FOUND]: nothing there
          compaction: so far: nothing
          (in place of events 25 to 27)
          message m2 withdrawn by user
          request interrupt: done
        ── epoch 2 ended: settled ──
          (weather/changed) {"wind":"north"}
        "#);
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_lines() {
        let text = shown(&every_kind(), Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        insta::assert_snapshot!(text.lines().skip(6).take(22).collect::<Vec<_>>().join("\n"), @r#"
        turn 1 · from the user · interrupted
          12 ms · 2025-11-30 14:19:05Z
          message m0
          user: Cover the launch in Lyon.
          recorded files: ["a","b"]
          memo: two files
          → delegate child (played by reporter)
          report of child: three facts
          notice of child: settled
          step 2 was cut off
          interrupted by the end of its process,
            to be served again
        ── epoch 1 ended: lost ─────────────────
        ── epoch 2 · 2025-11-30 14:19:05Z ──────

        turn 2 · from the user · attempt 2
          completed · 3 ms
          2025-11-30 14:19:05Z · message m0
          the command answered, 14 bytes
          editor: done

        turn 3 · from the host
        "#);
    }

    #[test]
    fn a_turn_that_somebody_waits_for_is_shown_as_it_goes() {
        let events = at(vec![
            Body::TurnStart { turn: 1, message: MessageId::new("m0").unwrap(), attempt: 1 },
            Body::UserMessage(message(Source::User, "Begin.")),
            Body::Memo { turn: 1, message: MessageId::new("m0").unwrap(), key: None, text: "one".into() },
            Body::TurnEnd { turn: 1, reason: TurnEnd::Completed },
        ]);
        let mut transcript = Transcript::new(Paint::plain(), Layout::new(None), Names::default(), 0);
        assert!(transcript.lines(&events[0]).is_empty() && transcript.lines(&events[1]).is_empty(), "its heading says how it ended");
        assert_eq!(transcript.pause(), ["", "turn 1 · from the user · 2025-11-30 14:19:05Z · message m0", "  user: Begin."]);
        assert!(transcript.pause().is_empty());
        assert_eq!(transcript.lines(&events[2]), ["  memo: one"]);
        assert_eq!(transcript.lines(&events[3]), ["  completed"]);
        assert!(transcript.finish().is_empty());
        assert!(shown(&events[..3], None).ends_with("  memo: one\n  (not ended yet)"));
    }

    #[test]
    fn a_log_that_is_shown_from_its_middle_says_how_the_turn_ended() {
        let events = every_kind();
        let text = shown(&events[20..22], None);
        assert_eq!(text, "  editor: done\n  completed");
    }

    fn opened(bad: &str) -> RootOpened {
        RootOpened {
            label: bad.into(),
            agent: bad.into(),
            program_sha256: Some(bad.into()),
            vars: [(bad.to_owned(), bad.to_owned())].into(),
            seed: None,
            params: Some(serde_json::json!(bad)),
            model: Some(bad.into()),
        }
    }

    #[test]
    fn nothing_that_a_log_says_reaches_the_terminal_as_a_command() {
        let bad = "a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}";
        let m = MessageId::new(bad).unwrap();
        let call = Block::ToolCall { id: bad.into(), name: bad.into(), arguments: bad.into() };
        let result = Block::ToolResult { call_id: bad.into(), text: bad.into(), is_error: true };
        let long = format!("{}{bad}", "long ".repeat(60));
        let with = |content: Vec<Block>, source: Source| SurfaceMessage { id: m.clone(), role: Speaker::User, content, source };
        let child = SessionId::new(bad).unwrap();
        let opaque = greenroom::session::event::Opaque { name: bad.into(), data: serde_json::json!({ bad: bad }) };
        let events = at(vec![
            Body::RootOpened(opened(bad)),
            Body::Descriptor(serde_json::json!({"version": 1, "mode": "one-shot", "provider": "p", "agent": bad, "label": bad, "params": bad,
                "model": {"provider": bad, "name": bad}, "persona": bad, "tool_filter": {"allow": [bad, bad], "deny": []}})),
            Body::Descriptor(serde_json::json!({"version": 1, "mode": bad})),
            Body::TurnStart { turn: 1, message: m.clone(), attempt: 1 },
            Body::UserMessage(with(vec![Block::text(long), Block::reasoning(bad), call], Source::Agent { name: bad.into() })),
            Body::UserMessage(with(vec![Block::text(bad)], Source::SubagentReport { session: child.clone() })),
            Body::UserMessage(with(vec![Block::text(bad)], Source::SubagentSettled { session: child, epoch: 1, outcome: bad.into(), code: Some(bad.into()) })),
            Body::Memo { turn: 1, message: m.clone(), key: Some(bad.into()), text: bad.into() },
            Body::Memo { turn: 1, message: m.clone(), key: None, text: bad.into() },
            Body::EffectAccepted { turn: 1, message: m.clone(), key: bad.into(), kind: EffectKind::Send, target: bad.into(), id: bad.into() },
            Body::EffectAccepted { turn: 1, message: m.clone(), key: bad.into(), kind: EffectKind::Delegate, target: bad.into(), id: bad.into() },
            Body::ToolCall { turn: 1, step: 1, call_id: bad.into(), name: bad.into(), arguments: bad.into() },
            Body::ToolResult { turn: 1, step: 1, message: with(vec![result], Source::Tool { call_id: bad.into() }), error: Some(serde_json::json!(bad)) },
            Body::TurnEnd { turn: 1, reason: TurnEnd::error(bad, bad) },
            Body::TurnStart { turn: 2, message: m.clone(), attempt: 2 },
            Body::TurnEnd { turn: 2, reason: TurnEnd::Aborted { cause: bad.into() } },
            Body::MessageWithdrawn { message: m.clone(), by: bad.into() },
            Body::ControlAnswered { control: m, op: bad.into(), outcome: bad.into() },
            Body::Opaque(opaque),
        ]);
        for columns in [None, Some(40), Some(100)] {
            let text = shown(&events, columns);
            assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text:?}");
        }
        insta::assert_snapshot!(shown(&events, Some(60)), @r#"
        a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}, played by
          a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7} =
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          params "a\u001b[2Jb\r\u{9b}c\u{202e}d\u0007"
          model a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
        a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}, played by
          a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          params "a\u001b[2Jb\r\u{9b}c\u{202e}d\u0007"
          model a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7} of
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          persona a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          only the tools [a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7},
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}]
          not the tools []
        malformed descriptor: unknown variant
          `a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}`, expected
          `continuable` or `one-shot`

        turn 1 · from a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          failed [a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}] · 5.0 s
          2025-11-30 14:19:07Z – 14:19:12Z
          message a\u{1b}[2Jb\r\u{9b}
          a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}:
            long long long long long long long long long long long
            long long long long long long long long long long long
            long long long long long long long long long long long
            long long long long long long long long long long long
            long long long long long long long long long long long
            long long long long long
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7} thinks:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
            calls a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}:
              a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          report of a\u{1b}[2Jb\r\u{9b}:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          notice of a\u{1b}[2Jb\r\u{9b}:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          recorded a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          memo: a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          → send to a\u{1b}[2Jb\r\u{9b} (message
            a\u{1b}[2Jb\r\u{9b})
          → delegate a\u{1b}[2Jb\r\u{9b} (played by
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7})
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7} runs
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7} fails:
              a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
            the tool failed: "a\u001b[2Jb\r\u{9b}c\u{202e}d\u0007"
          failed [a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}]:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}

        turn 2 · attempt 2 · aborted · 500 ms
          2025-11-30 14:19:12Z – 14:19:13Z
          message a\u{1b}[2Jb\r\u{9b}
          aborted: a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          message a\u{1b}[2Jb\r\u{9b} withdrawn by
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          request a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}:
            a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7}
          (a\u{1b}[2Jb\r\u{9b}c\u{202e}d\u{7})
            {"a\u001b[2Jb\r\u{9b}c\u{202e}d\u0007":"a\u001b[2Jb\r\u{
            9b}c\u{202e}d\u0007"}
        "#);
    }

    #[test]
    fn a_compaction_says_how_much_and_by_whom_and_obeys_no_text() {
        let bad = "a\u{1b}[2Jb";
        let summary =
            Body::CompactSummary { start: 4, end: 6, shadowed_seqs: vec![4, 5, 6], text: None, provider: None, model: Some(bad.into()), tokens: None };
        let failed = Body::CompactEnd { turn: None, error: Some(bad.into()) };
        let text = shown(&at(vec![Body::CompactStart { turn: None }, summary, Body::CompactEnd { turn: None, error: None }, failed]), None);
        assert!(text.contains("3 messages compacted by a\\u{1b}[2Jb\n"), "{text}");
        assert!(text.contains("compaction failed: a\\u{1b}[2Jb"), "{text}");
        assert_eq!(text.matches("compact").count(), 2, "nothing more: {text}");
    }
}
