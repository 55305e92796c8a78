//! A store that loses what it has accepted.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use greenroom_session::{
    id::OwnerId,
    message::{MessageKind, Source},
    store::{CommitError, Done, Op, Reader, Refused, Store, StoreError, memory::MemoryStore},
};

use super::world::TOTAL;
use crate::stress::{Fault, Finding, Progress, StressOptions, run::stress_over};

/// A store that now and then says that it has accepted a message of a sender, and has not.
#[derive(Debug)]
struct Forgetful {
    store: MemoryStore,
    accepts: AtomicU64,
}

impl Forgetful {
    /// Passes an operation on, or breaks with what to answer in its place.
    fn swallow(&self, op: &Op) -> ControlFlow<Done> {
        match op {
            Op::Accept(accept)
                if accept.message.kind == MessageKind::Turn && accept.message.source == Source::User && accept.message.id.as_str() != "layout" =>
            {
                let count = self.accepts.fetch_add(1, Ordering::Relaxed);
                if count == 77 { ControlFlow::Break(Done::Accepted { order: 0, duplicate: false }) } else { ControlFlow::Continue(()) }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Store for Forgetful {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let mut done = Vec::new();
        for op in ops {
            match self.swallow(op) {
                ControlFlow::Break(answer) => done.push(Ok(answer)),
                ControlFlow::Continue(()) => done.extend(self.store.commit(std::slice::from_ref(op))?),
            }
        }
        Ok(done)
    }
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }
    fn is_inline(&self) -> bool {
        true
    }
    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }
}

#[tokio::test]
async fn a_store_that_swallows_one_acceptance_is_found_out() {
    let store = Arc::new(Forgetful { store: MemoryStore::new(), accepts: AtomicU64::new(0) });
    let mut options = StressOptions::new("memory:".parse().unwrap());
    (options.agents, options.senders, options.messages) = (12, 4, 60);
    let report = stress_over(&options, store, &|_: Progress| {}).await.unwrap();
    assert!(!report.is_clean());
    assert_eq!((report.accepted, report.lost, report.duplicated, report.order_violations, report.pending), (TOTAL, 1, 0, 0, 0));
    assert!(matches!(report.findings.as_slice(), [Finding { fault: Fault::Lost, message: Some(_), .. }]), "{:?}", report.findings);
}
