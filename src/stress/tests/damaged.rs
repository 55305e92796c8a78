//! A reader of a store whose logs and inboxes somebody has changed.

use std::{ops::ControlFlow, sync::Arc};

use greenroom_session::{
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Described},
    message::InboxRecord,
    store::{ExportError, Lease, LoadError, Log, MessageState, Reader, StoreError, Traced},
};

/// What stands in one log and one inbox.
pub(super) type Records<'a> = (&'a mut Vec<Event>, &'a mut Vec<InboxRecord>);

/// A reader of a store whose logs and inboxes somebody has changed.
pub(super) struct Damaged<F> {
    pub(super) reader: Box<dyn Reader>,
    pub(super) damage: F,
}

impl<F> std::fmt::Debug for Damaged<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Damaged")
    }
}

impl<F: FnMut(&SessionId, Records<'_>) + Send> Damaged<F> {
    fn records(&mut self, id: &SessionId) -> Result<(Vec<Event>, Vec<InboxRecord>), LoadError> {
        let (mut events, mut inbox) = (self.reader.events(id, 0, usize::MAX)?, self.reader.inbox(id, usize::MAX)?);
        (self.damage)(id, (&mut events, &mut inbox));
        // A log has no gaps, whatever was done to it.
        for (seq, event) in (0..).zip(&mut events) {
            event.seq = seq;
        }
        Ok((events, inbox))
    }
}

impl<F: FnMut(&SessionId, Records<'_>) + Send> Reader for Damaged<F> {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        self.reader.header(id)
    }
    fn is_removed(&mut self, _: &SessionId) -> Result<bool, StoreError> {
        unimplemented!("the audit asks no tombstone")
    }
    fn export(&mut self, _: &SessionId, _: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> Result<(), ExportError> {
        unimplemented!("the audit reads records")
    }
    fn load(&mut self, _: &SessionId) -> Result<Log, LoadError> {
        unimplemented!("the audit asks no fold")
    }
    fn fold(&mut self, _: &SessionId, _: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        unimplemented!("the audit asks no fold")
    }
    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        Ok(self.records(id)?.0.into_iter().skip(usize::try_from(from).unwrap()).take(limit).collect())
    }
    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        Ok(self.records(id)?.1.into_iter().take(limit).collect())
    }
    fn message(&mut self, _: &SessionId, _: &MessageId) -> Result<Option<MessageState>, LoadError> {
        unimplemented!("the audit asks no index")
    }
    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        self.reader.children(parent, after, limit)
    }
    fn rows(&mut self, _: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        unimplemented!("the audit asks no derived row")
    }
    fn holder(&mut self, _: &SessionId, _: &Head) -> Result<Option<OwnerId>, StoreError> {
        unimplemented!("the audit asks no lease")
    }
    fn find(&mut self, _: &str, _: usize) -> Result<Vec<SessionId>, StoreError> {
        unimplemented!("the audit asks no index")
    }
    fn alias(&mut self, _: &SessionId, _: &str) -> Result<Option<SessionId>, StoreError> {
        unimplemented!("the audit asks no index")
    }
    fn runnable(&mut self, _: Option<&SessionId>, _: usize) -> Result<Vec<SessionId>, StoreError> {
        unimplemented!("the audit asks no derived row")
    }
    fn leases(&mut self, _: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        unimplemented!("the audit asks no lease")
    }
}
