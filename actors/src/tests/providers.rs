//! Providers over the end of a generation, and one that never answers.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, pending};
use greenroom_session::store::Store as _;

use super::support::{Witness, id, on_paused_time, simple};
use crate::{
    Config, Delegate,
    host::NewRoot,
    provider::{Capabilities, Prepare, PrepareError, Prepared, Provider},
};

/// Gives nothing along, or no answer.
struct Plain {
    answers: bool,
}

impl Provider for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async { if self.answers { Ok(Prepared::default()) } else { pending().await } })
    }
}

#[test]
fn providers_outlast_a_generation_and_are_removed_in_the_next() {
    let store = Witness::new();
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let registration = host.register_provider("plain", Plain { answers: true }).unwrap();
        let root = host.root(NewRoot { id: Some(id("root")), ..NewRoot::new("worker", "root") }).await.unwrap();
        let first = host.services();
        first.registry.get_cell().kill();
        while Arc::ptr_eq(&host.services(), &first) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        root.quiescent().await.unwrap();
        assert_eq!(host.providers(), ["spawn", "fork", "plain"]);
        assert_eq!(host.register_provider("plain", Plain { answers: true }).unwrap_err().code(), "DUPLICATE_PROVIDER");
        root.agent().start_continuable(Delegate::new("worker", "a child", "work").provider("plain")).await.unwrap();
        registration.remove();
        assert_eq!(host.providers(), ["spawn", "fork"]);
        system.shutdown().await;
    });
}

#[test]
fn a_provider_that_gives_no_answer_fails_its_start_in_time() {
    let store = Witness::new();
    on_paused_time(async {
        let config = Config { start_deadline: Duration::from_secs(7), ..simple("worker") };
        let system = store.system(config).await;
        let host = system.host();
        let _registration = host.register_provider("mute", Plain { answers: false }).unwrap();
        let root = host.root(NewRoot { id: Some(id("root")), ..NewRoot::new("worker", "root") }).await.unwrap();
        let begun = tokio::time::Instant::now();
        let error = root.agent().start_continuable(Delegate::new("worker", "a child", "work").provider("mute").child(id("child"))).await.unwrap_err();
        assert_eq!((error.code(), begun.elapsed()), ("START_DEADLINE", Duration::from_secs(7)));
        assert!(error.to_string().contains("\"mute\""), "{error}");
        assert!(store.store.reader().unwrap().header(&id("child")).unwrap().is_none());
        system.shutdown().await;
    });
}
