//! Reading the log of one session.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use greenroom_session::{
    event::Event,
    fold::Fold,
    header::Header,
    id::{Seq, SessionId},
    store::Log,
};

use super::corpus::Corpus;
use crate::error::QueryError;

/// Events that are read before anybody looks whether the answer is still wanted.
const CHUNK: usize = 1_000;

/// Where an event stands with regard to what a model sees.
///
/// ```
/// use greenroom_actors::query::Place;
/// assert_eq!(Place::LogOnly.as_str(), "log-only");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A model sees it.
    Current,
    /// A later event has taken its place.
    Shadowed,
    /// No model ever sees events of its type.
    LogOnly,
}

impl Place {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Shadowed => "shadowed",
            Self::LogOnly => "log-only",
        }
    }
}

/// An event as a list of a log shows it.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::{EventLine, Place}};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// root.send("hello").await?;
/// root.quiescent().await?;
/// let lines: Vec<EventLine> = host.list_events(root.id(), CancellationToken::new()).await?;
/// assert_eq!((lines[0].seq, &*lines[0].type_name, lines[0].place), (0, "root/opened", Place::LogOnly));
/// assert!(lines.iter().any(|line| line.type_name == "user/message" && line.place == Place::Current));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLine {
    /// Its place in the log.
    pub seq: Seq,
    /// Its type, as the log names it.
    pub type_name: String,
    /// When it was written, in milliseconds since the Unix epoch.
    pub time: u64,
    /// Where it stands with regard to what a model sees.
    pub place: Place,
}

/// One event and its neighbours.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::EventWindow};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let window: EventWindow = host.read_event(root.id(), 1, 50, 0, CancellationToken::new()).await?;
/// let seqs: Vec<_> = window.events.iter().map(|event| event.seq).collect();
/// assert_eq!(seqs, [0, 1]); // clamped: nothing comes before 0
/// assert_eq!(window.event().map(|event| event.seq), Some(1));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct EventWindow {
    /// The session's header.
    pub header: Arc<Header>,
    /// The seq that was asked for.
    pub seq: Seq,
    /// The window, in order, clamped at the ends of the log.
    pub events: Vec<Event>,
}

impl EventWindow {
    /// Returns the event that was asked for.
    pub fn event(&self) -> Option<&Event> {
        self.events.iter().find(|event| event.seq == self.seq)
    }
}

/// Which part of a log is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) seq: Seq,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Window {
    /// # Errors
    /// [`QueryError::InvalidWindow`] if either side is wider than `max`.
    pub(crate) fn check(&self, max: u64) -> Result<(), QueryError> {
        match [self.before, self.after].into_iter().find(|&asked| asked > max) {
            Some(asked) => Err(QueryError::InvalidWindow { asked, max }),
            None => Ok(()),
        }
    }
}

impl Corpus<'_> {
    /// Folds a session and hands each of its events to `see`.
    pub(super) fn fold(&mut self, session: &SessionId, see: impl FnMut(&Event)) -> Result<Fold, QueryError> {
        self.under_header(session, |corpus, header| corpus.fold_of(header, see))
    }

    /// Folds the session that has this header.
    pub(super) fn fold_of(&mut self, header: &Arc<Header>, mut see: impl FnMut(&Event)) -> Result<Fold, QueryError> {
        self.go_on()?;
        let gives_up = self.gives_up();
        let mut seen = 0_usize;
        let folded = self.reader.fold(&header.id, &mut |event| {
            seen += 1;
            if seen.is_multiple_of(CHUNK) && gives_up() {
                return ControlFlow::Break(());
            }
            see(event);
            ControlFlow::Continue(())
        });
        let fold = folded.map_err(QueryError::from_load)?.ok_or(QueryError::Cancelled)?;
        if fold.header() == header { Ok(fold) } else { Err(QueryError::SourceConflict(header.id.clone())) }
    }

    /// Lists the events of a session and says of each where it stands.
    pub(super) fn event_lines(&mut self, session: &SessionId) -> Result<Vec<EventLine>, QueryError> {
        let mut lines = Vec::new();
        let fold = self.fold(session, |event| {
            let place = if event.body.is_surface() { Place::Shadowed } else { Place::LogOnly };
            lines.push(EventLine { seq: event.seq, type_name: event.body.type_name().to_owned(), time: event.time, place });
        })?;
        let current: HashSet<Seq> = fold.surface().nodes().iter().map(|node| node.seq).collect();
        for line in lines.iter_mut().filter(|line| current.contains(&line.seq)) {
            line.place = Place::Current;
        }
        Ok(lines)
    }

    /// Reads a whole session.
    pub(super) fn load(&mut self, session: &SessionId) -> Result<Log, QueryError> {
        let mut events = Vec::new();
        let fold = self.fold(session, |event| events.push(event.clone()))?;
        Ok(Log { events, fold })
    }

    /// Reads events from `from` on, without folding them: what does not follow from what came before is read all the same.
    pub(super) fn events(&mut self, session: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, QueryError> {
        if limit == 0 {
            return Err(QueryError::InvalidLimit);
        }
        self.under_header(session, |corpus, _| {
            let (mut found, mut next, mut chunk) = (Vec::new(), from, CHUNK);
            loop {
                corpus.go_on()?;
                let wanted = chunk.min(limit - found.len());
                let read = corpus.reader.events(session, next, wanted).map_err(QueryError::from_load)?;
                let complete = read.len() < wanted;
                found.extend(read);
                match found.last() {
                    Some(last) if !complete && found.len() < limit => next = last.seq.saturating_add(1),
                    _ => return Ok(found),
                }
                // A store of files goes through a log from its beginning each time: so the whole costs twice its length at most.
                chunk = chunk.saturating_mul(2);
            }
        })
    }

    /// Reads one event and its neighbours, without folding them.
    pub(super) fn window(&mut self, session: &SessionId, window: Window) -> Result<EventWindow, QueryError> {
        self.under_header(session, |corpus, header| corpus.window_of(header, window))
    }

    /// Reads one event, and its neighbours, of the session that has this header.
    pub(super) fn window_of(&mut self, header: &Arc<Header>, window: Window) -> Result<EventWindow, QueryError> {
        self.go_on()?;
        let Window { seq, before, after } = window;
        let first = seq.saturating_sub(before);
        let count = usize::try_from((seq - first).saturating_add(after).saturating_add(1)).unwrap_or(usize::MAX);
        let events = self.reader.events(&header.id, first, count).map_err(QueryError::from_load)?;
        let window = EventWindow { header: header.clone(), seq, events };
        if window.event().is_some() { Ok(window) } else { Err(QueryError::EventNotFound { session: header.id.clone(), seq }) }
    }
}

#[cfg(test)]
mod tests {
    use greenroom_session::{
        event::{Body, Opaque},
        header::NewSession,
        store::{Create, Op, Store as _, memory::MemoryStore},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::live::LiveTable;

    #[test]
    fn a_fold_that_nobody_waits_for_stops_before_a_thousand_events_more() {
        let id = SessionId::new("long").unwrap();
        let store = MemoryStore::new();
        let events: Vec<Event> = (0..5_000).map(|seq| Body::Opaque(Opaque { name: "x/memo".into(), data: serde_json::json!(seq) }).at(seq, 1_000)).collect();
        let create = Create { session: NewSession::root(id.clone()), time: 1_000, events: events.into(), message: None };
        store.commit(&[Op::Create(create)]).unwrap().remove(0).unwrap();
        for given_up_at in [1, 999, 1_000, 1_001, 4_999] {
            let cancel = CancellationToken::new();
            let mut reader = store.reader().unwrap();
            let mut corpus = Corpus::new(&mut *reader, LiveTable::default(), cancel.clone());
            let mut seen = 0;
            let fold = corpus.fold(&id, |_| {
                seen += 1;
                if seen == given_up_at {
                    cancel.cancel();
                }
            });
            assert!(matches!(fold, Err(QueryError::Cancelled)), "{given_up_at}");
            assert!(seen < given_up_at + 1_000, "given up at {given_up_at}, and {seen} were seen");
        }
    }
}
