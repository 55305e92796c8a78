//! The one fold: everything that is derived from a session's records is derived here.
//!
//! Live append, cold load, the index and the checker all use it. It contains the [`Head`] and adds what a live session
//! needs: the surface with its bodies, the pending inbox, and what earlier attempts at the current message left behind.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    compact::COMPACT_SOURCE,
    descriptor::{Descriptor, DescriptorError, ModelRoute},
    event::{Body, EpochEnd, Event, RootOpened, SurfaceMessage, SurfaceOp, TurnEnd},
    head::{FoldError, Head},
    header::Header,
    id::{MessageId, Order, Seq},
    message::{Block, InboxRecord, MessageKind, Source, Tombstone},
    surface::{Change, Node, Surface},
};

/// One record of a session.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::Body, fold::{Fold, Record}, header::NewSession, id::SessionId, message::{InboxRecord, Message, Source}};
/// let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// let message = Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?);
/// fold.apply(&Record::Event(Arc::new(Body::EndSeed {}.at(0, 1_000))))?;
/// fold.apply(&Record::Message(InboxRecord { order: 0, held: false, message }))?;
/// assert_eq!((fold.head().next_seq, fold.head().next_order), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// An event of the log.
    Event(Arc<Event>),
    /// A message of the inbox.
    Message(InboxRecord),
}

/// What the own suffix of a log says of a child's descriptor.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{descriptor::Descriptor, event::Body, fold::{DescriptorState, Fold}, header::NewSession, id::SessionId};
/// let child = NewSession::child(SessionId::new("child")?, SessionId::new("root")?, 0);
/// let mut fold = Fold::new(Arc::new(child.at(1_000)));
/// assert_eq!(*fold.descriptor(), DescriptorState::None);
/// let descriptor = serde_json::to_value(Descriptor::continuable("spawn", "collect facts", "reporter"))?;
/// fold.apply_event(&Body::Descriptor(descriptor).at(0, 1_000))?;
/// assert!(matches!(fold.descriptor(), DescriptorState::One { seq: 0, parsed: Ok(parsed) } if parsed.agent == "reporter"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DescriptorState {
    /// None: the session is no subagent.
    #[default]
    None,
    /// Exactly one.
    One {
        /// Where it stands.
        seq: Seq,
        /// What it says, or what is wrong with it.
        parsed: Result<Arc<Descriptor>, DescriptorError>,
    },
    /// More than one, which is damage.
    Many,
}

/// Why a model's answer ended that ran out of output tokens.
pub const MAX_TOKENS: &str = "max_tokens";

/// What the attempts at the current message have left in the log so far.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::Body, fold::Fold, header::NewSession, id::SessionId, message::{Message, Source}};
/// let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// let message = Message::turn("m0", "Begin.", Source::User, 1_000)?;
/// fold.apply_event(&Body::TurnStart { turn: 1, message: message.id.clone(), attempt: 1 }.at(0, 1_000))?;
/// fold.apply_event(&Body::user_message(&message).at(1, 1_000))?;
/// fold.apply_event(&Body::Memo { turn: 1, message: message.id, key: Some("weather".into()), text: "rain".into() }.at(2, 1_000))?;
/// assert!(fold.serving().message.is_some());
/// assert_eq!(fold.serving().recorded["weather"], "rain");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Serving {
    /// The message as the surface shows it; absent for a turn that notes opened.
    pub message: Option<Arc<SurfaceMessage>>,
    /// Notes that joined, in inbox order, over all attempts.
    pub notes: Vec<Arc<SurfaceMessage>>,
    /// Recorded inputs by key.
    pub recorded: BTreeMap<String, String>,
    /// The recorded answer.
    pub answer: Option<String>,
    /// Keys of accepted effects.
    pub effects: HashSet<String>,
    /// Why the model's newest answer ended.
    pub stop: Option<String>,
    /// Whether an answer ran out of output tokens.
    pub ran_out: bool,
}

/// A tool call of the open step that has no result yet.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::Body, fold::{Fold, UnansweredCall}, header::NewSession, id::{MessageId, SessionId}};
/// let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// fold.apply_event(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(0, 1_000))?;
/// fold.apply_event(&Body::StepStart { turn: 1, step: 1 }.at(1, 1_000))?;
/// let call = Body::ToolCall { turn: 1, step: 1, call_id: "c1".into(), name: "report".into(), arguments: "{}".into() };
/// fold.apply_event(&call.at(2, 1_000))?;
/// assert_eq!(fold.unanswered_calls(), [UnansweredCall { call_id: "c1".into(), name: "report".into(), started: Some(2) }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredCall {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Where its `tool/call` stands, if it was started.
    pub started: Option<Seq>,
}

/// Where a session has settled last. What is not after it the parent has been told.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::{Body, EpochEnd}, fold::{Fold, Settled}, header::NewSession, id::SessionId};
/// let child = NewSession::child(SessionId::new("child")?, SessionId::new("root")?, 0);
/// let mut fold = Fold::new(Arc::new(child.at(1_000)));
/// assert_eq!(fold.settled(), Settled::default()); // everything is yet to be told
/// fold.apply_event(&Body::ActivationStart { epoch: 1 }.at(0, 1_000))?;
/// fold.apply_event(&Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(1, 1_000))?;
/// assert_eq!(fold.settled(), Settled { since: 2, turns: 0 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// The first event after it.
    pub since: Seq,
    /// The newest turn before it.
    pub turns: u64,
}

/// What was taken back before it had a turn, since the session has settled last.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::Body, fold::Fold, header::NewSession, id::{MessageId, SessionId}};
/// let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// fold.apply_event(&Body::MessageWithdrawn { message: MessageId::new("m0")?, by: "user".into() }.at(0, 1_000))?;
/// assert_eq!((fold.taken_back().count, fold.taken_back().newest.as_ref().map(MessageId::as_str)), (1, Some("m0")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenBack {
    /// How many messages.
    pub count: u64,
    /// The newest of them, unless a turn has ended after that.
    pub newest: Option<MessageId>,
}

/// How far the compaction under way has come.
#[derive(Debug, Clone, PartialEq, Default)]
enum Compaction {
    /// Nothing is said yet of what it replaces.
    #[default]
    Begun,
    /// It is about to replace this run.
    Summarized { start: Seq, end: Seq },
    /// It has.
    Replaced,
}

/// Everything that is derived from a session's records.
///
/// ```
/// use greenroom_session::{fold::Fold, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let fold: Fold = store.reader()?.load(&root)?.fold;
/// assert_eq!(fold.agent(), Some("editor"));
/// assert_eq!(fold.pending().count(), 1);
/// assert_eq!(fold.surface().nodes().len(), 0); // no turn has shown the message to anybody yet
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Fold {
    header: Arc<Header>,
    head: Head,
    root: Option<Arc<RootOpened>>,
    descriptor: DescriptorState,
    surface: Surface,
    pending: BTreeMap<Order, InboxRecord>,
    serving_id: Option<MessageId>,
    serving: Serving,
    begun: u64,
    /// The turn that decided it, and how that ended.
    outcome: Option<(u64, TurnEnd)>,
    /// The newest turn and how it ended, if it is served again.
    cut_off: Option<(u64, TurnEnd)>,
    calls: Vec<UnansweredCall>,
    said: Option<(Seq, Arc<SurfaceMessage>)>,
    settled: Settled,
    taken_back: TakenBack,
    compaction: Compaction,
    unknown: Option<(Seq, String)>,
    last_time: u64,
}

impl Fold {
    /// Starts with a header and no record.
    pub fn new(header: Arc<Header>) -> Self {
        Self {
            header,
            head: Head::default(),
            root: None,
            descriptor: DescriptorState::None,
            surface: Surface::default(),
            pending: BTreeMap::new(),
            serving_id: None,
            serving: Serving::default(),
            begun: 0,
            outcome: None,
            cut_off: None,
            calls: Vec::new(),
            said: None,
            settled: Settled::default(),
            taken_back: TakenBack::default(),
            compaction: Compaction::default(),
            unknown: None,
            last_time: 0,
        }
    }

    /// Returns the header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Says what is wrong where the header claims more inherited events than the log has. A whole log has them all, since a session is created with them.
    pub(crate) fn missing_prefix(&self) -> Option<String> {
        let (inherited, there) = (self.header.seed_length, self.head.next_seq);
        (inherited > there).then(|| format!("the header says that {inherited} events were inherited, and the log has {there}"))
    }

    /// Returns the small half.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the birth of a root.
    pub fn root(&self) -> Option<&Arc<RootOpened>> {
        self.root.as_ref()
    }

    /// Returns what the log says of a descriptor.
    pub fn descriptor(&self) -> &DescriptorState {
        &self.descriptor
    }

    /// Returns what describes a child, if its log has exactly one descriptor and it can be used.
    pub fn described(&self) -> Option<&Arc<Descriptor>> {
        match &self.descriptor {
            DescriptorState::One { parsed: Ok(descriptor), .. } => Some(descriptor),
            _ => None,
        }
    }

    /// Returns what a model sees.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// Returns the messages that wait, in order.
    pub fn pending(&self) -> impl Iterator<Item = &InboxRecord> {
        self.pending.values()
    }

    /// Returns what the attempts at the current message have left.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Returns how many distinct `turn` messages this session has begun to serve; what it inherited does not count.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns what the agent said last, if it has said anything, compacted or not; what it inherited does not count, nor does a message without text.
    pub fn last_said(&self) -> Option<&Arc<SurfaceMessage>> {
        self.last_said_since(0)
    }

    /// Returns what the agent said last, unless that was said before the event `since`.
    pub fn last_said_since(&self, since: Seq) -> Option<&Arc<SurfaceMessage>> {
        self.said.as_ref().filter(|(seq, _)| *seq >= since).map(|(_, message)| message)
    }

    /// Returns how the work on the newest message ended. A turn that only took notes counts if it did not complete, or if there was no other: it makes no
    /// failure good.
    pub fn outcome(&self) -> Option<&TurnEnd> {
        self.outcome_after(0)
    }

    /// Returns the outcome, unless no turn after the turn `turn` has decided it.
    pub fn outcome_after(&self, turn: u64) -> Option<&TurnEnd> {
        let decided = |by: &&(u64, TurnEnd)| by.0 > turn;
        self.cut_off.as_ref().filter(decided).or(self.outcome.as_ref().filter(decided)).map(|(_, reason)| reason)
    }

    /// Returns where the session has settled last.
    pub fn settled(&self) -> Settled {
        self.settled
    }

    /// Returns what was taken back since the session has settled last.
    pub fn taken_back(&self) -> &TakenBack {
        &self.taken_back
    }

    /// Returns the tool calls of the open step that have no result, in transcript order.
    pub fn unanswered_calls(&self) -> &[UnansweredCall] {
        &self.calls
    }

    /// Returns the first event of a type that this program does not know and must not ignore.
    pub fn unknown(&self) -> Option<&(Seq, String)> {
        self.unknown.as_ref()
    }

    /// Returns the time of the last event.
    pub fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Returns the registered behaviour that plays this session, if its log names one. Nothing plays a fork, whatever its log says.
    pub fn agent(&self) -> Option<&str> {
        match &self.root {
            _ if self.header.is_fork() => None,
            Some(root) => Some(&root.agent),
            None => self.described().map(|descriptor| descriptor.agent.as_str()),
        }
    }

    /// Returns the model route that this session was created with, if its log names one. A fork has none.
    pub fn model(&self) -> Option<&ModelRoute> {
        match &self.root {
            _ if self.header.is_fork() => None,
            Some(root) => root.model.as_ref(),
            None => self.described()?.model.as_ref(),
        }
    }

    /// Moves on by one record. Nothing changes when it is refused.
    ///
    /// # Errors
    /// [`FoldError`] if the record cannot follow what came before.
    pub fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        match record {
            Record::Event(event) => self.apply_event(event),
            Record::Message(message) => {
                self.apply_message(message.clone());
                Ok(())
            }
        }
    }

    /// Moves on by one message of the inbox.
    pub fn apply_message(&mut self, record: InboxRecord) {
        self.head.next_order = self.head.next_order.max(record.order + 1);
        self.head.pend(&record.message, record.held);
        self.pending.insert(record.order, record);
    }

    /// Moves on by what remains of a message that has left the inbox.
    pub fn apply_taken(&mut self, tombstone: &Tombstone) {
        self.head.next_order = self.head.next_order.max(tombstone.order + 1);
        if tombstone.held {
            self.head.hold();
        }
    }

    /// Tells the order that the next message gets, where messages that have left the inbox were not folded.
    pub fn set_next_order(&mut self, order: Order) {
        self.head.next_order = self.head.next_order.max(order);
    }

    /// Forgets what waits: a live session leaves that to its store.
    pub fn forget_inbox(&mut self) {
        self.take(|_| true);
    }

    /// Moves on by one event. Nothing changes when it is refused.
    ///
    /// # Errors
    /// [`FoldError`] if the event cannot follow what came before.
    pub fn apply_event(&mut self, event: &Event) -> Result<(), FoldError> {
        let seed_length = self.header.seed_length;
        let change = match self.plan(event) {
            Ok(change) => change,
            Err(error) => {
                // Where two things are wrong, the place in the log is the one to tell. Only a refusal pays for the copy.
                self.head.clone().apply(event, seed_length)?;
                return Err(error);
            }
        };
        self.head.apply(event, seed_length)?;
        let said = event.seq >= seed_length && self.is_last_said(change, event);
        self.surface.commit(change, event);
        if said {
            self.said = self.surface.node(event.seq).map(|node| (node.seq, node.message.clone()));
        }
        self.last_time = event.time;
        if let Body::Opaque(opaque) = &event.body
            && !event.ignorable
            && self.unknown.is_none()
        {
            self.unknown = Some((event.seq, opaque.name.clone()));
        }
        if event.seq < seed_length {
            return Ok(());
        }
        match &event.body {
            Body::RootOpened(root) => self.root = Some(Arc::new(root.clone())),
            Body::Descriptor(data) => {
                self.descriptor = match self.descriptor {
                    DescriptorState::None => DescriptorState::One { seq: event.seq, parsed: Descriptor::parse(data).map(Arc::new) },
                    _ => DescriptorState::Many,
                };
            }
            Body::TurnStart { message, .. } => {
                self.take_turn(message);
                if self.serving_id.as_ref() != Some(message) {
                    self.serving_id = Some(message.clone());
                    self.serving = Serving::default();
                }
                self.calls.clear();
            }
            Body::TurnEnd { turn, reason } => self.turn_ended(*turn, reason),
            Body::ActivationEnd { reason: EpochEnd::Settled, .. } => {
                self.settled = Settled { since: event.seq + 1, turns: self.head.turns };
                self.taken_back = TakenBack::default();
            }
            Body::StepEnd { .. } => self.calls.clear(),
            Body::NoteJoined { notes, .. } => self.take_notes(notes),
            Body::UserMessage(_) if event.surface_op == Some(SurfaceOp::Append) => self.heard(event.seq),
            Body::UserMessage(message) if is_summary(message) => self.compaction = Compaction::Replaced,
            Body::CompactStart { .. } => self.compaction = Compaction::Begun,
            Body::CompactSummary { start, end, .. } => self.compaction = Compaction::Summarized { start: *start, end: *end },
            Body::Memo { key: Some(key), text, .. } => {
                self.serving.recorded.insert(key.clone(), text.clone());
            }
            Body::AnswerRecorded { text, .. } => self.serving.answer = Some(text.clone()),
            Body::EffectAccepted { key, .. } => {
                self.serving.effects.insert(key.clone());
            }
            Body::AssistantMessage { message, stop, .. } if event.surface_op == Some(SurfaceOp::Append) => {
                self.called(message);
                self.serving.ran_out |= stop.as_deref() == Some(MAX_TOKENS);
                self.serving.stop.clone_from(stop);
            }
            Body::ToolCall { call_id, name, .. } => match self.calls.iter_mut().find(|call| call.call_id == *call_id) {
                Some(call) => call.started = Some(event.seq),
                None => self.calls.push(UnansweredCall { call_id: call_id.clone(), name: name.clone(), started: Some(event.seq) }),
            },
            Body::ToolResult { message, .. } if event.surface_op == Some(SurfaceOp::Append) => {
                for block in &message.content {
                    if let Block::ToolResult { call_id, .. } = block {
                        self.calls.retain(|call| call.call_id != *call_id);
                    }
                }
            }
            Body::MessageWithdrawn { message, .. } => {
                self.taken_back.count += 1;
                self.taken_back.newest = Some(message.clone());
                self.take(|record| record.message.id == *message);
            }
            Body::ControlAnswered { control, .. } => self.take(|record| record.message.id == *control),
            Body::EndSeed {}
            | Body::ActivationStart { .. }
            | Body::ActivationEnd { .. }
            | Body::StepStart { .. }
            | Body::Memo { key: None, .. }
            | Body::UserMessage(_)
            | Body::AssistantMessage { .. }
            | Body::ToolResult { .. }
            | Body::CompactEnd { .. }
            | Body::Opaque(_) => {}
        }
        Ok(())
    }

    fn turn_ended(&mut self, turn: u64, reason: &TurnEnd) {
        let end = Some((turn, reason.clone()));
        if reason.is_final() {
            self.cut_off = None;
            if self.serving.message.is_some() || *reason != TurnEnd::Completed || self.outcome.is_none() {
                self.outcome = end;
            }
            self.serving_id = None;
            self.serving = Serving::default();
        } else {
            // What comes of it is decided by the turn that serves the message again.
            self.cut_off = end;
        }
        self.calls.clear();
        self.taken_back.newest = None;
    }

    /// Checks what an event would change of the surface, and what the log before it must hold for it, beyond what the head knows.
    fn plan(&self, event: &Event) -> Result<Change, FoldError> {
        let change = self.surface.plan(event)?;
        if event.seq < self.header.seed_length {
            return Ok(change);
        }
        let refuse = |reason: &str| Err(FoldError::new(event.seq, reason));
        let open = || self.head.open.as_ref().map(|open| &open.message).or(self.head.retry.as_ref().map(|retry| &retry.message));
        // A turn that is under way, or is to be repeated, must go on seeing what it was asked.
        if let Change::Replace { .. } = change
            && let Some(message) = open()
            && self.surface.shadowed(change).iter().any(|node| node.message.id == *message)
        {
            return refuse("a replacement must leave the message of an unfinished turn");
        }
        match &event.body {
            Body::RootOpened(_) if event.seq != 0 || self.header.parent.is_some() => refuse("`root/opened` stands at seq 0 of a root"),
            Body::ToolResult { message, .. } if change == Change::Append => {
                let waits = |call_id: &String| self.calls.iter().any(|call| call.call_id == *call_id);
                let answers = matches!(message.content.as_slice(), [Block::ToolResult { call_id, .. }] if waits(call_id));
                if answers { Ok(change) } else { refuse("a result of a call that does not wait for one") }
            }
            Body::CompactSummary { start, end, shadowed_seqs, .. } => {
                if self.compaction != Compaction::Begun {
                    return refuse("a compaction has one summary");
                }
                let Some(run) = self.surface.run(*start, *end) else { return refuse("a summary must name current events, first and last") };
                if open().is_some_and(|message| run.iter().any(|node| node.message.id == *message)) {
                    return refuse("a summary must leave out the message of an unfinished turn");
                }
                let named = shadowed_seqs.is_sorted_by(|a, b| a < b) && shadowed_seqs.len() == run.len();
                let is_named = |node: &Node| shadowed_seqs.binary_search(&node.seq).is_ok();
                if named && run.iter().all(is_named) { Ok(change) } else { refuse("a summary must name the events of its run and no other") }
            }
            Body::UserMessage(message) if is_summary(message) => match (&self.head.compacting, &self.compaction, event.surface_op) {
                (Some(_), Compaction::Summarized { start, end }, Some(SurfaceOp::Replace { start: from, end: to })) if (*start, *end) == (from, to) => {
                    Ok(change)
                }
                _ => refuse("a compaction's message takes the place of what its summary names"),
            },
            Body::CompactEnd { error: None, .. } if self.compaction != Compaction::Replaced => {
                refuse("a compaction that has replaced nothing ends with an error")
            }
            _ => Ok(change),
        }
    }

    /// Tells whether an event is what the agent said last. A compaction does not unsay it.
    fn is_last_said(&self, change: Change, event: &Event) -> bool {
        let Body::AssistantMessage { message, .. } = &event.body else { return false };
        let newest = match (&self.said, change) {
            (Some((said, _)), Change::Replace { .. }) => self.surface.shadowed(change).iter().any(|node| node.seq == *said),
            _ => true,
        };
        // A message that only calls tools, or only counts tokens, says nothing.
        newest && message.content.iter().any(|block| matches!(block, Block::Text { text } if !text.is_empty()))
    }

    /// Takes note of the calls that a message asks for.
    fn called(&mut self, message: &SurfaceMessage) {
        for block in &message.content {
            if let Block::ToolCall { id, name, .. } = block
                && !self.calls.iter().any(|call| call.call_id == *id)
            {
                self.calls.push(UnansweredCall { call_id: id.clone(), name: name.clone(), started: None });
            }
        }
    }

    /// A `user/message` within a turn is the turn's message or a note that joined. What the user steers an idle session with is the message of the turn that it
    /// opens; what children say is not.
    fn heard(&mut self, seq: Seq) {
        let Some(node) = self.surface.node(seq) else { return };
        if self.head.open.as_ref().is_some_and(|open| open.message == node.message.id)
            && self.serving.message.is_none()
            && !matches!(node.message.source.kind(), "subagent-report" | "subagent-settled")
        {
            self.serving.message = Some(node.message.clone());
            self.begun += 1;
        } else if self.head.open.is_some() {
            self.serving.notes.push(node.message.clone());
        }
    }

    fn take_turn(&mut self, id: &MessageId) {
        self.take(|record| record.message.kind == MessageKind::Turn && record.message.id == *id);
    }

    fn take_notes(&mut self, notes: &[MessageId]) {
        let notes: HashSet<&MessageId> = notes.iter().collect();
        self.take(|record| record.message.kind == MessageKind::Note && notes.contains(&record.message.id));
    }

    fn take(&mut self, gone: impl Fn(&InboxRecord) -> bool) {
        let head = &mut self.head;
        self.pending.retain(|_, record| {
            let gone = gone(record);
            if gone {
                head.take(&record.message, record.held);
            }
            !gone
        });
    }
}

/// Tells whether a message is what a compaction leaves in the place of others.
fn is_summary(message: &SurfaceMessage) -> bool {
    matches!(&message.source, Source::Plugin { name } if name == COMPACT_SOURCE)
}

#[cfg(test)]
mod tests;
