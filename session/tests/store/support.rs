//! Stores under test, and short ways to make operations.

use std::{path::PathBuf, sync::Arc};

use greenroom_session::{
    descriptor::Descriptor,
    event::{Body, EpochEnd, Event, TurnEnd},
    header::{Header, NewSession},
    id::{Epoch, MessageId, Order, SessionId},
    listing::Description,
    message::{Message, Source},
    recover::begin_epoch,
    store::{
        Accept, Append, Claim, ClaimKind, Close, Create, Done, Fence, LoadError, Log, Op, Open, Reader, Refused, Store, jsonl::JsonlStore, memory::MemoryStore,
        sqlite::SqliteStore,
    },
    turns::Claimed,
};
use tempfile::TempDir;

/// A store under test, and the folder that it lies in if it lies anywhere.
pub(crate) struct Fixture {
    pub(crate) store: Box<dyn Store>,
    pub(crate) folder: Option<TempDir>,
}

impl Fixture {
    pub(crate) fn memory() -> Self {
        Self { store: Box::new(MemoryStore::new()), folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("store.db")).unwrap();
        Self { store: Box::new(store), folder: Some(folder) }
    }

    pub(crate) fn jsonl() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = JsonlStore::open(folder.path().join("store.db")).unwrap();
        Self { store: Box::new(store), folder: Some(folder) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("store.db")
    }

    pub(crate) fn reader(&self) -> Box<dyn Reader> {
        self.store.reader().unwrap()
    }

    /// Commits one operation.
    pub(crate) fn one(&self, op: Op) -> Result<Done, Refused> {
        one(&*self.store, op)
    }

    pub(crate) fn root(&self, id: &str) -> Arc<Header> {
        self.create(root(id, 1_000))
    }

    pub(crate) fn create(&self, create: Create) -> Arc<Header> {
        match self.one(Op::Create(create)).unwrap() {
            Done::Created { header, existing: false } => header,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn child(&self, id: &str, parent: &str) -> Arc<Header> {
        self.create(child(id, parent, None, 1_000))
    }

    pub(crate) fn accept(&self, session: &str, message: Message) -> Result<Done, Refused> {
        self.one(accept(session, message))
    }

    pub(crate) fn load(&self, id: &str) -> Log {
        self.reader().load(&sid(id)).unwrap()
    }

    /// Begins the next epoch, perhaps with a claim, and returns the right to append.
    pub(crate) fn open(&self, id: &str, claim: Option<u64>) -> (Fence, Option<Claimed>) {
        open(&*self.store, id, claim).unwrap()
    }

    pub(crate) fn next_seq(&self, id: &str) -> u64 {
        self.load(id).fold.head().next_seq
    }

    /// Ends the open turn.
    pub(crate) fn end_turn(&self, fence: &Fence, turn: u64, reason: TurnEnd) {
        let seq = self.next_seq(fence.session.as_str());
        self.one(append(fence, vec![Body::TurnEnd { turn, reason }.at(seq, 5)], vec![])).unwrap();
    }

    pub(crate) fn claim(&self, fence: &Fence, kind: ClaimKind) -> Option<Claimed> {
        let first_seq = self.next_seq(fence.session.as_str());
        match self.one(Op::Claim(Claim { fence: fence.clone(), first_seq, kind, time: 7 })).unwrap() {
            Done::Claimed(claimed) => claimed,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn close(&self, fence: &Fence, unless_pending: bool) -> Result<Done, Refused> {
        let seq = self.next_seq(fence.session.as_str());
        self.one(close(fence, seq, unless_pending))
    }

    pub(crate) fn describe(&self, id: &str) -> Result<Description, LoadError> {
        describe(&mut *self.reader(), id, false)
    }
}

pub(crate) fn one(store: &dyn Store, op: Op) -> Result<Done, Refused> {
    store.commit(&[op]).unwrap().pop().unwrap()
}

pub(crate) fn open(store: &dyn Store, id: &str, claim: Option<u64>) -> Result<(Fence, Option<Claimed>), Refused> {
    let log = store.reader().unwrap().load(&sid(id)).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 9, 3);
    match one(store, Op::Open(Open { session: sid(id), epoch, events: events.into(), claim }))? {
        Done::Opened { claimed } => Ok((fence(id, epoch), claimed)),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn describe(reader: &mut dyn Reader, id: &str, verify: bool) -> Result<Description, LoadError> {
    let header = reader.header(&sid(id)).unwrap().unwrap();
    let traced = greenroom_session::store::Traced { id: sid(id), created_at: header.created_at, header: Ok(header) };
    reader.describe(&[traced], verify).unwrap().pop().unwrap()
}

pub(crate) fn sid(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub(crate) fn mid(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

pub(crate) fn fence(id: &str, epoch: Epoch) -> Fence {
    Fence { session: sid(id), epoch }
}

pub(crate) fn root(id: &str, time: u64) -> Create {
    let mut create = Create::root(NewSession::root(sid(id)), "editor", format!("root {id}"));
    create.time = time;
    create
}

pub(crate) fn child(id: &str, parent: &str, alias: Option<&str>, time: u64) -> Create {
    let mut descriptor = Descriptor::continuable("spawn", format!("child {id}"), "reporter");
    descriptor.alias = alias.map(str::to_owned);
    Create::child(NewSession::child(sid(id), sid(parent), 0), vec![], &descriptor, None, time).unwrap()
}

/// A fork: listed nowhere.
pub(crate) fn fork(id: &str, parent: &str, time: u64) -> Create {
    Create { session: NewSession::fork(sid(id), sid(parent)), time, events: Arc::new([Body::EndSeed {}.at(0, time)]), message: None }
}

pub(crate) fn turn(id: &str) -> Message {
    Message::turn(id, format!("text of {id}"), Source::User, 1).unwrap()
}

pub(crate) fn note(id: &str, quiet: bool) -> Message {
    Message::note(mid(id), format!("note {id}"), Source::Host, 1, quiet).unwrap()
}

pub(crate) fn accept(session: &str, message: Message) -> Op {
    Op::Accept(Accept::new(sid(session), message))
}

pub(crate) fn append(fence: &Fence, events: Vec<Event>, take: Vec<Order>) -> Op {
    Op::Append(Append { fence: fence.clone(), events: events.into(), take })
}

pub(crate) fn close(fence: &Fence, seq: u64, unless_pending: bool) -> Op {
    let end = Body::ActivationEnd { epoch: fence.epoch, reason: EpochEnd::Settled }.at(seq, 9);
    Op::Close(Close { fence: fence.clone(), events: Arc::new([end]), unless_pending })
}

/// The messages that a claim's events name, in order: the notes that join, then the turn's own.
pub(crate) fn heard(claimed: &Claimed) -> Vec<String> {
    claimed
        .events
        .iter()
        .filter_map(|event| match &event.body {
            Body::UserMessage(message) => Some(message.id.to_string()),
            _ => None,
        })
        .collect()
}

/// Runs each function of a module against each store.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $( #[test] fn $name() { super::$name(&$crate::support::Fixture::memory()); } )*
        }
        mod sqlite {
            $( #[test] fn $name() { super::$name(&$crate::support::Fixture::sqlite()); } )*
        }
        mod jsonl {
            $( #[test] fn $name() { super::$name(&$crate::support::Fixture::jsonl()); } )*
        }
    };
}
