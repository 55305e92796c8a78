//! Refusals that only an unusual world brings about, and the code of each.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom_session::{
    clock::IdSource,
    event::{Body, Opaque, RootOpened},
    header::NewSession,
    id::OwnerId,
    store::{CommitError, Create, Done, Op, Reader, Refused, Store, StoreError, memory::MemoryStore},
};
use uuid::Uuid;

use super::support::{Witness, id, lock, on_paused_time, simple};
use crate::{
    Config, Delegate, System,
    error::{ActivateError, QueryError, StartError},
    host::{NewRoot, RootError},
};

#[test]
fn an_unknown_provider_and_an_id_that_is_taken_start_no_child() {
    /// A source that has run dry.
    #[derive(Debug)]
    struct Same;
    impl IdSource for Same {
        fn uuid(&self) -> Uuid {
            Uuid::from_u128(7)
        }
    }
    let store = Witness::new();
    let config = Config { ids: Arc::new(Same), ..simple("desk") };
    on_paused_time(async {
        let system = store.system(config).await;
        let mut new = NewRoot::new("desk", "desk");
        new.id = Some(id("desk"));
        let root = system.host().root(new).await.unwrap();
        let start = |label: &str, provider: &str| {
            let (agent, delegate) = (root.agent(), Delegate::new("desk", label, "begin").provider(provider));
            async move { agent.start_continuable(delegate).await }
        };
        assert_eq!(start("one", "teleport").await.unwrap_err().code(), "NO_PROVIDER");
        start("one", "spawn").await.unwrap();
        assert_eq!(start("two", "spawn").await.unwrap_err().code(), "DUPLICATE_CHILD");
        root.quiescent().await.unwrap();
        system.shutdown().await;
    });
    let children = store.store.reader().unwrap().children(Some(&id("desk")), None, 10).unwrap();
    assert_eq!(children.len(), 1);
}

#[test]
fn a_log_that_this_program_cannot_read_on_is_not_resumed() {
    let store = Witness::new();
    let opened = RootOpened {
        label: "desk".into(),
        agent: "desk".into(),
        program_sha256: None,
        vars: std::collections::BTreeMap::new(),
        seed: None,
        params: None,
        model: None,
    };
    let strange = Body::Opaque(Opaque { name: "weather/changed".into(), data: serde_json::json!({"to": "rain"}) });
    let events = [Body::RootOpened(opened), Body::EndSeed {}, strange].into_iter().zip(0..).map(|(body, seq)| body.at(seq, 0)).collect();
    store.store.commit(&[Op::Create(Create { session: NewSession::root(id("desk")), time: 0, events, message: None })]).unwrap().remove(0).unwrap();
    let before = store.events(&id("desk"));
    on_paused_time(async {
        let system = store.system(simple("desk")).await;
        let refused = system.host().resume(&id("desk")).await.unwrap_err();
        assert_eq!(refused.code(), "EVENT_UNKNOWN");
        system.shutdown().await;
    });
    assert_eq!(store.events(&id("desk")), before, "nothing was appended to what was not understood");
}

/// A store that does something of its own where an epoch is to begin.
#[derive(Debug)]
struct Opening {
    inner: MemoryStore,
    /// Somebody else always is a step ahead.
    behind: bool,
    /// Held, it is a disk that hangs.
    key: Mutex<()>,
}

impl Opening {
    fn new(behind: bool) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), behind, key: Mutex::new(()) })
    }
}

impl Store for Opening {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        if ops.iter().any(|op| matches!(op, Op::Open(_))) {
            drop(lock(&self.key));
            if self.behind {
                return Ok(ops.iter().map(|_| Err(Refused::Moved { stored: 9 })).collect());
            }
        }
        self.inner.commit(ops)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.inner.reader()
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }
}

fn on_real_time<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

#[test]
fn a_start_that_always_comes_too_late_gives_up() {
    on_real_time(async {
        let system = System::start(simple("desk"), Opening::new(true), true).await.unwrap();
        let refused = system.host().root(NewRoot::new("desk", "desk")).await.unwrap_err();
        assert_eq!(refused.code(), "SEQ_CONFLICT");
        system.shutdown().await;
    });
}

#[test]
fn a_start_that_takes_too_long_is_given_up() {
    let store = Opening::new(false);
    let config = Config { start_deadline: Duration::from_millis(50), ..simple("desk") };
    let key = lock(&store.key);
    on_real_time(async {
        let system = System::start(config, store.clone(), true).await.unwrap();
        let refused = system.host().root(NewRoot::new("desk", "desk")).await.unwrap_err();
        assert!(matches!(&refused, RootError::Activate(ActivateError::Deadline(_))), "another refusal: {refused}");
        assert_eq!(refused.code(), "START_DEADLINE");
        drop(key);
        system.shutdown().await;
    });
}

#[test]
fn a_cancelled_query_and_a_duplicate_have_codes_of_their_own() {
    assert_eq!(QueryError::Cancelled.code(), "SESSION_QUERY_ABORTED");
    assert_eq!(StartError::Exists(id("a")).code(), "DUPLICATE_CHILD");
}
