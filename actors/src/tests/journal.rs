//! The same promises over a store that is written by the journal's thread. Time is real here: a thread does not wait for a paused clock.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use greenroom_session::{
    event::{Body, Opaque},
    header::NewSession,
    id::{MessageId, OwnerId, SessionId},
    store::{CommitError, Create, Done, Op, Reader, Refused, Store, StoreError, memory::MemoryStore},
};

use super::audit::audit;
use super::support::{Fault, Ledger, PATIENCE, Witness, ends, play};
use crate::{Config, Delegate, Host, Publication, System, TurnEnd, host::NewRoot};

/// Runs a test on two workers, and fails if it does not come to its end.
fn on_threads<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(50), test).await.expect("the world hangs") });
    runtime.shutdown_background();
    done
}

fn config() -> Config {
    let mut config = Config { poll_interval: Duration::from_millis(5), interrupt_grace: Duration::from_millis(1), ..Config::default() };
    play(&mut config, "worker", |turn| async move {
        turn.step().await?;
        if turn.parent().is_some() {
            turn.report("half", true).await?;
        }
        turn.say("done")?;
        Ok(TurnEnd::Completed)
    });
    config
}

async fn send_all(host: &Host, receivers: &[greenroom_session::id::SessionId], ledger: &Ledger, count: usize) {
    join_all((0..4).map(|sender| async move {
        for number in 0..count {
            let receiver = &receivers[(sender + number) % receivers.len()];
            if let Ok(id) = host.send(receiver, format!("{sender} {number}"), None).await {
                ledger.accepted(&sender.to_string(), receiver, id);
            }
        }
    }))
    .await;
}

#[test]
fn a_journal_that_dies_answers_everybody_and_loses_nothing_that_it_acknowledged() {
    for moment in 0..8_u64 {
        let (store, ledger) = (Witness::threaded(), Ledger::default());
        let root = store.root("root", "worker");
        let receivers = [root.clone(), store.child(&root, "child", "worker")];
        on_threads(async {
            let system = store.system(config()).await;
            let host = system.host();
            let first = host.services();
            let death = async {
                for _ in 0..moment * moment {
                    tokio::task::yield_now().await;
                }
                first.journal.actor().kill();
                while Arc::ptr_eq(&host.services(), &first) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::join!(send_all(&host, &receivers, &ledger, 10), death);
            host.recover(None).await.unwrap();
            host.quiescent(&root).await.unwrap();
            let id = host.send(&root, "afterwards", None).await.unwrap();
            ledger.accepted("afterwards", &root, id);
            assert_eq!(host.quiescent(&root).await.unwrap(), []);
        });
        assert_eq!(audit(&store, &ledger, true), Vec::<String>::new(), "killed at moment {moment}");
    }
}

#[test]
fn many_senders_and_many_turns_over_a_journal_keep_every_promise() {
    let (store, ledger) = (Witness::threaded(), Ledger::default());
    let root = store.root("root", "worker");
    let receivers: Vec<_> = (0..4).map(|number| store.child(&root, &format!("child {number}"), "worker")).collect();
    on_threads(async {
        let system = store.system(config()).await;
        let host = system.host();
        send_all(&host, &receivers, &ledger, 50).await;
        assert_eq!(host.quiescent(&root).await.unwrap(), []);
        system.shutdown().await;
    });
    assert_eq!(audit(&store, &ledger, true), Vec::<String>::new());
}

#[test]
fn a_turn_that_is_dropped_in_the_middle_of_a_write_is_aborted_all_the_same() {
    let store = Witness::threaded();
    let root = store.root("root", "stepper");
    let child = store.child(&root, "child", "worker");
    let mut config = config();
    play(&mut config, "stepper", |turn| async move {
        if turn.message().is_none() {
            return Ok(TurnEnd::Completed);
        }
        loop {
            turn.step().await?;
            turn.join_notes().await?;
        }
    });
    on_threads(async {
        let system = store.system(config).await;
        let host = system.host();
        let (mut occurrences, interrupter, target) = (host.subscribe(), host.clone(), root.clone());
        let interrupts = tokio::spawn(async move {
            while let Ok(occurrence) = occurrences.recv().await {
                if matches!(&occurrence, crate::Occurrence::TurnStarted { session, .. } if *session == target) {
                    drop(interrupter.interrupt(&target, PATIENCE).await);
                }
            }
        });
        for number in 0..60 {
            // Its reports are what the steps join.
            for _ in 0..3 {
                host.send(&child, "report", None).await.unwrap();
            }
            host.send(&root, number.to_string(), None).await.unwrap();
            tokio::task::yield_now().await;
        }
        host.quiescent(&root).await.unwrap();
        interrupts.abort();
    });
    let bad: Vec<_> = ends(&store, &root).into_iter().filter(|(_, attempt, how)| *attempt != 1 || how == "interrupted").collect();
    assert_eq!(bad, [], "an interrupt is final");
    assert_eq!(audit(&store, &Ledger::default(), true), Vec::<String>::new());
}

#[test]
fn a_turn_may_speak_while_another_part_of_it_joins_notes() {
    let store = Witness::threaded();
    let root = store.root("root", "busy");
    let child = store.child(&root, "child", "worker");
    let mut config = config();
    play(&mut config, "busy", |turn| async move {
        if turn.message().is_none() {
            return Ok(TurnEnd::Completed);
        }
        let speaker = turn.clone();
        let speak = async move {
            for number in 0..200 {
                speaker.say(number.to_string())?;
                tokio::task::yield_now().await;
            }
            Ok::<_, crate::TurnError>(())
        };
        let join = async {
            for _ in 0..50 {
                turn.join_notes().await?;
                turn.step().await?;
            }
            turn.delegate(Delegate::new("worker", "w", "work")).await?;
            turn.await_children().await
        };
        let (spoken, joined) = tokio::join!(tokio::spawn(speak), join);
        spoken.unwrap()?;
        joined?;
        Ok(TurnEnd::Completed)
    });
    on_threads(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&root, "go", None).await.unwrap();
        for number in 0..20 {
            host.send(&child, number.to_string(), None).await.unwrap();
        }
        assert_eq!(host.quiescent(&root).await.unwrap(), []);
    });
    assert_eq!(audit(&store, &Ledger::default(), true), Vec::<String>::new());
    let go: Vec<_> = ends(&store, &root).into_iter().filter(|(text, ..)| text == "go").collect();
    assert_eq!(go, [("go".to_owned(), 1, "completed".to_owned())]);
}

/// A store whose commits wait for a key, as they would for a disk that hangs.
#[derive(Debug)]
struct Hanging {
    inner: MemoryStore,
    hang: AtomicBool,
    key: Mutex<()>,
}

impl Store for Hanging {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let waits = self.hang.load(Ordering::Acquire).then(|| super::support::lock(&self.key));
        let done = self.inner.commit(ops);
        drop(waits);
        done
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

#[test]
fn an_ask_that_is_not_answered_in_time_is_indeterminate_and_safe_to_repeat() {
    let store = Arc::new(Hanging { inner: MemoryStore::new(), hang: AtomicBool::new(false), key: Mutex::new(()) });
    let config = Config { ask_deadline: Duration::from_millis(300), ..config() };
    on_threads(async {
        let system = System::start(config, store.clone(), true).await.unwrap();
        let host = system.host();
        let root = host.root(NewRoot::new("worker", "root")).await.unwrap();
        root.quiescent().await.unwrap();
        let id = MessageId::new("m").unwrap();
        {
            let _key = super::support::lock(&store.key);
            store.hang.store(true, Ordering::Release);
            let error = futures::executor::block_on(tokio::runtime::Handle::current().spawn({
                let (host, root, id) = (host.clone(), root.id().clone(), id.clone());
                async move { host.send(&root, "slow", Some(id)).await }
            }));
            assert_eq!(error.unwrap().unwrap_err().code(), "INDETERMINATE");
        }
        store.hang.store(false, Ordering::Release);
        // The same id again is the same acceptance, whether the first came through or not.
        assert_eq!(host.send(root.id(), "slow", Some(id.clone())).await.unwrap(), id);
        root.quiescent().await.unwrap();
        let log = host.load(root.id()).await.unwrap();
        assert_eq!(log.fold.begun(), 1, "one message, one turn");
    });
}

#[test]
fn what_is_written_after_whoever_asked_was_told_that_nothing_is_known_is_served() {
    let store = Arc::new(Hanging { inner: MemoryStore::new(), hang: AtomicBool::new(false), key: Mutex::new(()) });
    let session = SessionId::new("root").unwrap();
    let create = Op::Create(Create::root(NewSession::root(session.clone()), "worker", "root"));
    store.inner.commit(&[create]).unwrap().remove(0).unwrap();
    let config = Config { ask_deadline: Duration::from_millis(50), ..config() };
    on_threads(async {
        let system = System::start(config, store.clone(), true).await.unwrap();
        let host = system.host();
        let mut occurrences = host.subscribe();
        {
            let _key = super::support::lock(&store.key);
            store.hang.store(true, Ordering::Release);
            let codes = futures::executor::block_on(tokio::runtime::Handle::current().spawn({
                let (host, session) = (host.clone(), session.clone());
                async move {
                    let sent = host.send(&session, "slow", None).await.unwrap_err().code();
                    // Whoever was woken too early has looked by now.
                    host.quiescent(&session).await.unwrap();
                    sent
                }
            }));
            assert_eq!(codes.unwrap(), "INDETERMINATE");
        }
        store.hang.store(false, Ordering::Release);
        // Nobody keeps it, and nobody says anything more: the write alone has it served.
        super::support::until(&mut occurrences, |told| matches!(told, crate::Occurrence::TurnEnded { .. })).await;
    });
}

#[test]
fn a_host_waits_for_no_disk_for_ever_and_what_it_put_goes_on() {
    let store = Arc::new(Hanging { inner: MemoryStore::new(), hang: AtomicBool::new(false), key: Mutex::new(()) });
    let config = Config { ask_deadline: Duration::from_millis(100), ..config() };
    let desk = SessionId::new("desk").unwrap();
    on_threads(async {
        let system = System::start(config, store.clone(), true).await.unwrap();
        let session = system.host().publish_session(Publication::root(desk.clone(), NewRoot::new("host", "desk").opened)).await.unwrap();
        let session = Arc::new(session);
        {
            let _key = super::support::lock(&store.key);
            store.hang.store(true, Ordering::Release);
            let codes = futures::executor::block_on(tokio::runtime::Handle::current().spawn({
                let session = session.clone();
                async move {
                    // Its place is certain before the disk has been asked.
                    assert_eq!(session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: serde_json::json!({}) })).unwrap().seq, 3);
                    [session.flush().await.err(), session.begin_turn("late", None).await.err(), session.end().await.err()].map(|error| error.unwrap().code())
                }
            }));
            assert_eq!(codes.unwrap(), ["INDETERMINATE"; 3]);
        }
        store.hang.store(false, Ordering::Release);
        while session.head().is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        system.shutdown().await;
    });
    let events = store.inner.reader().unwrap().events(&desk, 3, usize::MAX).unwrap();
    let types: Vec<_> = events.iter().map(|event| event.body.type_name().to_owned()).collect();
    assert_eq!(types, ["desk/tidied", "turn/start", "user/message", "turn/end", "activation/end"]);
}

#[test]
fn whoever_sends_through_a_journal_is_told_of_a_failure_what_became_of_it() {
    // What is told, and whether it is there.
    for (written, indeterminate, code) in [(false, false, "NOT_DELIVERED"), (true, true, "INDETERMINATE"), (false, true, "INDETERMINATE")] {
        let store = Witness::threaded();
        let root = store.root("root", "worker");
        on_threads(async {
            let system = store.system(config()).await;
            let host = system.host();
            for n in 0..4 {
                let id = MessageId::new(format!("m{n}")).unwrap();
                store.fail(Fault { hits: |op| matches!(op, Op::Accept(_)), written, indeterminate });
                assert_eq!(host.send(&root, n.to_string(), Some(id.clone())).await.unwrap_err().code(), code);
                // Nobody else looks for it.
                assert_eq!(store.brought(&id) > 0, written, "{code}");
                host.quiescent(&root).await.unwrap();
                assert_eq!(ends(&store, &root).len(), if written { n + 1 } else { 2 * n }, "{code}");
                // The same again is safe, whatever it was.
                host.send(&root, n.to_string(), Some(id)).await.unwrap();
                if !written {
                    host.send(&root, format!("after {n}"), None).await.unwrap();
                }
                host.quiescent(&root).await.unwrap();
            }
            system.shutdown().await;
        });
        let served: Vec<_> = ends(&store, &root).into_iter().map(|(text, attempt, how)| (text, attempt, how == "completed")).collect();
        let all = (0..4).flat_map(|n| if written { vec![n.to_string()] } else { vec![n.to_string(), format!("after {n}")] });
        assert_eq!(served, all.map(|text| (text, 1, true)).collect::<Vec<_>>(), "{code}");
    }
}
