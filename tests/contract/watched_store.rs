//! A store that counts what is read of each session, fails or answers otherwise where a test says so, and waits until it is let go on.

use std::{io, ops::ControlFlow, sync::Arc};

use greenroom_session::{
    check::{Checked, Finding, Rebuilt},
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Described},
    message::InboxRecord,
    store::{CommitError, Done, ExportError, Lease, LoadError, Log, Member, MessageState, Op, Reader, Refused, Store, StoreError, Traced},
};

use crate::watched::{Call, Fault, Plan, Watch};

/// A store under watch. What it does is done on threads that may block, so that a call can stand still.
#[derive(Debug)]
pub(crate) struct WatchedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watch: Watch,
}

impl Store for WatchedStore {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let together = self.watch.begin("", Call::Commit);
        let plans: Vec<Plan> = ops.iter().map(|op| self.watch.begin(op.session().as_str(), Call::Commit)).collect();
        if plans.iter().any(|plan| plan.fault.is_some()) {
            return Err(CommitError::NotCommitted(Fault::of_store()));
        }
        let done = self.store.commit(ops);
        together.end(plans.into_iter().fold(done, |done, plan| plan.end(done)))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(WatchedReader { reader: self.store.reader()?, watch: self.watch.clone() }))
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }

    fn heartbeat(&self) -> Result<(), StoreError> {
        let plan = self.watch.begin("", Call::Heartbeat);
        let answer = if plan.fault.is_some() { Err(Fault::of_store()) } else { self.store.heartbeat() };
        plan.end(answer)
    }

    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        self.store.poll()
    }

    fn rebuild_index(&self, only: Option<&SessionId>, see: &mut dyn FnMut(Rebuilt)) -> Result<(), StoreError> {
        self.store.rebuild_index(only, see)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[derive(Debug)]
struct WatchedReader {
    reader: Box<dyn Reader>,
    watch: Watch,
}

impl WatchedReader {
    fn of_session<T>(&mut self, id: &SessionId, call: Call, ask: impl FnOnce(&mut dyn Reader) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let plan = self.watch.begin(id.as_str(), call);
        let loading = (call == Call::Load).then(|| self.watch.loading());
        let answer = match plan.fault {
            Some(fault) => Err(fault.of_session(id)),
            None => ask(&mut *self.reader),
        };
        drop(loading);
        plan.end(answer)
    }

    /// Shows each child as it is found, which may be under another header.
    fn found(&self, children: &mut [Traced]) {
        for child in children {
            let mut plan = self.watch.begin(child.id.as_str(), Call::Found);
            if let Some(header) = plan.header.take() {
                child.header = Ok(header);
            }
            plan.end(());
        }
    }

    /// What is said of each child may be a fault of its own.
    fn said<'a>(&self, children: impl Iterator<Item = (&'a SessionId, &'a mut Result<Described, LoadError>)>) {
        for (id, said) in children {
            let plan = self.watch.begin(id.as_str(), Call::Rows);
            match (plan.fault, &mut *said) {
                (Some(fault), said) => *said = Err(fault.of_session(id)),
                (None, Ok(described)) if plan.no_row => (described.row, described.holder) = (None, None),
                (None, _) => {}
            }
            plan.end(());
        }
    }
}

fn key(parent: Option<&SessionId>) -> &str {
    parent.map_or("", SessionId::as_str)
}

impl Reader for WatchedReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        let plan = self.watch.begin(id.as_str(), Call::Header);
        let answer = match (&plan.header, plan.fault) {
            (Some(header), _) => Ok(Some(header.clone())),
            (None, Some(fault)) => Err(fault.of_session(id)),
            (None, None) => self.reader.header(id),
        };
        plan.end(answer)
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        self.reader.is_removed(id)
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        self.reader.export(id, line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        self.of_session(id, Call::Load, |reader| reader.load(id))
    }

    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        self.of_session(id, Call::Load, |reader| reader.fold(id, see))
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let plan = self.watch.begin(id.as_str(), Call::Events);
        let answer = match (&plan.events, plan.fault) {
            (Some(events), _) => Ok(events.clone()),
            (None, Some(fault)) => Err(fault.of_session(id)),
            (None, None) => self.reader.events(id, from, limit),
        };
        plan.end(answer)
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        self.of_session(id, Call::Inbox, |reader| reader.inbox(id, limit))
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        self.of_session(id, Call::Inbox, |reader| reader.message(id, message))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        let plan = self.watch.begin(key(parent), Call::Children);
        if plan.fault.is_some() {
            return Err(Fault::of_store());
        }
        let mut children = self.reader.children(parent, after, limit)?;
        self.found(&mut children);
        Ok(plan.end(children))
    }

    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        let mut rows = self.reader.rows(children)?;
        self.said(children.iter().map(|child| &child.id).zip(&mut rows));
        Ok(rows)
    }

    fn family_rows(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
        let plan = self.watch.begin(key(parent), Call::Children);
        if plan.fault.is_some() {
            return Err(Fault::of_store());
        }
        let (mut children, mut rows): (Vec<Traced>, Vec<_>) = self.reader.family_rows(parent, after, limit)?.into_iter().unzip();
        self.found(&mut children);
        self.said(children.iter().map(|child| &child.id).zip(&mut rows));
        Ok(plan.end(children.into_iter().zip(rows).collect()))
    }

    fn holder(&mut self, id: &SessionId, head: &Head) -> Result<Option<OwnerId>, StoreError> {
        self.reader.holder(id, head)
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.reader.find(prefix, limit)
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        self.reader.alias(parent, alias)
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.reader.runnable(root, limit)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        self.reader.leases(root)
    }

    fn sessions(&mut self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let plan = self.watch.begin("", Call::Sessions);
        let answer = if plan.fault.is_some() { Err(Fault::of_store()) } else { self.reader.sessions(after, limit) };
        plan.end(answer)
    }

    fn count(&mut self) -> Result<u64, StoreError> {
        self.reader.count()
    }

    fn check(&mut self, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
        self.reader.check(id, see)
    }

    fn check_store(&mut self, see: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.reader.check_store(see)
    }
}
