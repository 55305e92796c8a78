//! Ending turns and taking messages back: here, by a request of another process, and in a session that nobody holds.

use greenroom_session::{
    event::{Body, EpochEnd},
    id::{MessageId, SessionId},
    message::{Control, Message},
    store::{Accept, MessageState, Op, Store},
};

use super::audit::audit;
use super::support::{Barrier, Ledger, PATIENCE, Witness, cut_off, ends, epochs, heard, id, on_paused_time, play, quiet, simple, until};
use crate::{Config, Delegate, Host, Occurrence, Turn, TurnEnd, TurnError, error::ControlError, race::plan, registry::RegistryMessage};

/// Registers `slow`, whose every turn waits at the gate until it is cancelled.
fn slow(gate: &Barrier) -> Config {
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "slow", move |turn: Turn| {
        let at = at.clone();
        async move {
            let cancelled = turn.cancelled();
            tokio::select! {
                () = cancelled.cancelled() => Err(TurnError::new("CANCELLED", "as asked")),
                () = at.pass() => Ok(TurnEnd::Completed),
            }
        }
    });
    config
}

fn how(store: &Witness, session: &SessionId) -> Vec<(String, String)> {
    ends(store, session).into_iter().map(|(text, _, how)| (text, how)).collect()
}

fn pair(text: &str, how: &str) -> (String, String) {
    (text.to_owned(), how.to_owned())
}

fn code<T>(result: Result<T, ControlError>) -> &'static str {
    result.map_or_else(|error| error.code(), |_| "done")
}

/// Leaves a request in an inbox, as a process does that is gone before it is answered.
fn leave(store: &Witness, session: &SessionId, control: Control) -> MessageId {
    let id = control.id();
    let accept = Accept::new(session.clone(), Message::control(id.clone(), control, 0));
    store.peer().commit(&[Op::Accept(accept)]).unwrap().remove(0).unwrap();
    id
}

/// Says what the poll of a store would say.
fn poll(host: &Host, session: &SessionId) {
    drop(host.services().registry.send_message(RegistryMessage::Foreign { sessions: vec![session.clone()] }));
}

/// Returns what answered a session's requests, in order.
fn answers(store: &Witness, session: &SessionId) -> Vec<(String, String)> {
    let events = store.events(session).into_iter();
    events.filter_map(|event| if let Body::ControlAnswered { op, outcome, .. } = event.body { Some((op, outcome)) } else { None }).collect()
}

fn types(store: &Witness, session: &SessionId, from: usize) -> Vec<String> {
    store.events(session).iter().skip(from).map(|event| event.body.type_name().to_owned()).collect()
}

fn clean(store: &Witness) {
    assert_eq!(audit(store, &Ledger::default(), true), Vec::<String>::new());
}

#[test]
fn a_queued_message_is_taken_back_and_one_that_has_begun_is_not() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        let mut sent = Vec::new();
        for text in ["one", "two", "three"] {
            sent.push(host.send(&child, text, None).await.unwrap());
        }
        gate.reached().await;
        let withdraw = |message: &MessageId| {
            let (host, child, message) = (host.clone(), child.clone(), message.clone());
            async move { code(host.withdraw(&child, &message, PATIENCE).await) }
        };
        assert_eq!(withdraw(&sent[0]).await, "ALREADY_STARTED", "its turn runs");
        assert_eq!(withdraw(&sent[1]).await, "done");
        assert_eq!(withdraw(&sent[1]).await, "done", "what is taken back stays so");
        assert_eq!(withdraw(&MessageId::new("nobody's").unwrap()).await, "NOT_PENDING");
        gate.open(2);
        quiet(&host).await;
        assert_eq!(withdraw(&sent[0]).await, "ALREADY_STARTED", "whatever became of it");
        assert_eq!(withdraw(&sent[1]).await, "done");
        assert_eq!(code(host.interrupt(&child, PATIENCE).await), "NOT_RUNNING");
        assert_eq!(code(host.interrupt(&id("nobody"), PATIENCE).await), "SESSION_NOT_FOUND");
    });
    assert_eq!(how(&store, &child), [pair("one", "completed"), pair("three", "completed")]);
    assert_eq!(heard(&store, &child), ["one", "three"]);
    clean(&store);
}

#[test]
fn a_message_that_is_taken_back_stays_so_when_it_is_sent_again() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        host.send(&child, "one", None).await.unwrap();
        gate.reached().await;
        let two = host.send(&child, "two", Some(MessageId::new("two").unwrap())).await.unwrap();
        host.withdraw(&child, &two, PATIENCE).await.unwrap();
        host.send(&child, "two", Some(two.clone())).await.unwrap();
        gate.open(9);
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "completed")]);
}

#[test]
fn a_request_of_another_process_ends_the_turn_that_runs_and_is_answered_with_its_end() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        let outside = store.peer().system(Config::default()).await.host();
        for text in ["one", "two"] {
            host.send(&child, text, None).await.unwrap();
        }
        gate.reached().await;
        let polls = async {
            tokio::time::sleep(host.services().config.poll_interval * 2).await;
            poll(&host, &child);
        };
        let (turn, ()) = tokio::join!(outside.interrupt(&child, PATIENCE), polls);
        assert_eq!(turn.unwrap(), 1);
        gate.reached().await;
        // The next turn is not the one that was meant: the same request again is answered.
        leave(&store, &child, Control::Interrupt { turn: Some(1) });
        poll(&host, &child);
        gate.open(1);
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "aborted"), pair("two", "completed")]);
    assert_eq!(answers(&store, &child), [pair("interrupt", "done")]);
    let events = types(&store, &child, 0);
    let end = events.iter().position(|name| name == "turn/end").unwrap();
    assert_eq!(events[end..end + 3], ["turn/end", "control/answered", "turn/start"], "one batch");
    clean(&store);
}

#[test]
fn an_interrupt_never_hits_a_later_turn_than_it_names() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        for text in ["one", "two"] {
            host.send(&child, text, None).await.unwrap();
        }
        gate.reached().await;
        gate.open(1);
        gate.reached().await;
        leave(&store, &child, Control::Interrupt { turn: Some(1) });
        poll(&host, &child);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gate.open(1);
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "completed"), pair("two", "completed")]);
    assert_eq!(answers(&store, &child), [pair("interrupt", "NOT_RUNNING")]);
}

/// Leaves a session whose turn 1 was cut off by a crash, with one message more in its queue.
fn crashed(store: &mut Witness, child: &SessionId) {
    let gate = Barrier::new();
    let to = child.clone();
    let at = gate.clone();
    cut_off(store, slow(&gate), |host| async move {
        for text in ["one", "two"] {
            host.send(&to, text, Some(MessageId::new(text).unwrap())).await.unwrap();
        }
        at.reached().await;
    });
}

#[test]
fn a_request_that_a_crash_left_is_answered_before_the_first_turn_of_the_next_epoch() {
    for answer in ["interrupt", "withdraw"] {
        let mut store = Witness::new();
        let child = store.child(&store.root("root", "root"), "child", "slow");
        crashed(&mut store, &child);
        let control = match answer {
            "interrupt" => Control::Interrupt { turn: Some(1) },
            _ => Control::Withdraw { target: MessageId::new("two").unwrap() },
        };
        let request = leave(&store, &child, control);
        let gate = Barrier::new();
        gate.open(9);
        on_paused_time(async {
            let system = store.system(slow(&gate)).await;
            let host = system.host();
            host.recover(None).await.unwrap();
            quiet(&host).await;
        });
        let served = ends(&store, &child);
        let served: Vec<_> = served.iter().map(|(text, attempt, how)| (text.as_str(), *attempt, how.as_str())).collect();
        match answer {
            "interrupt" => assert_eq!(served, [("one", 1, "interrupted"), ("one", 2, "aborted"), ("two", 1, "completed")]),
            _ => assert_eq!(served, [("one", 1, "interrupted"), ("one", 2, "completed")]),
        }
        assert_eq!(answers(&store, &child), [pair(answer, "done")]);
        assert_eq!(store.reader().unwrap().message(&child, &request).unwrap(), Some(MessageState::Taken(2)));
        clean(&store);
    }
}

#[test]
fn what_nobody_holds_is_answered_by_whoever_asks_and_no_turn_begins() {
    let mut store = Witness::new();
    let root = store.root("root", "root");
    let child = store.child(&root, "child", "slow");
    crashed(&mut store, &child);
    let before = store.events(&child).len();
    on_paused_time(async {
        let host = store.system(Config::default()).await.host();
        assert_eq!(host.interrupt(&child, PATIENCE).await.unwrap(), 1);
        assert_eq!(code(host.interrupt(&child, PATIENCE).await), "NOT_RUNNING");
        let mut visit: Vec<_> = ["turn/end", "activation/end", "activation/start", "turn/start", "turn/end", "activation/end"].into();
        assert_eq!(types(&store, &child, before), visit);
        // Work is left, so its parent is not told: whoever runs it next goes on with it.
        assert_eq!(epochs(&store, &child), [EpochEnd::Lost, EpochEnd::Disposed]);
        assert!(store.reader().unwrap().inbox(&root, 9).unwrap().is_empty());

        host.withdraw(&child, &MessageId::new("two").unwrap(), PATIENCE).await.unwrap();
        visit.extend(["activation/start", "message/withdrawn", "activation/end"]);
        assert_eq!(types(&store, &child, before), visit);
        assert_eq!(epochs(&store, &child), [EpochEnd::Lost, EpochEnd::Disposed, EpochEnd::Settled]);
        assert!(store.reader().unwrap().leases(None).unwrap().is_empty());
    });
    let told: Vec<_> = store.reader().unwrap().inbox(&root, 9).unwrap().iter().map(|record| record.message.text()).collect();
    assert_eq!(told, ["Subagent child (child) has settled: its last turn was stopped. One message was taken back before its turn. It left no message."]);
    assert!(heard(&store, &root).is_empty(), "the parent was not started");
}

#[test]
fn a_parent_that_waits_hears_of_a_child_whose_turn_somebody_else_ended() {
    let store = Witness::new();
    let root = store.root("root", "boss");
    let gate = Barrier::new();
    let mut config = slow(&gate);
    let at = gate.clone();
    play(&mut config, "boss", move |turn: Turn| {
        let at = at.clone();
        async move {
            if turn.message().is_none() {
                return Ok(TurnEnd::Completed);
            }
            let child = turn.delegate(Delegate::new("slow", "a child", "work")).await?.child;
            at.reached().await;
            let error = turn.agent().interrupt(&id("root"), PATIENCE).await.unwrap_err();
            assert_eq!(error.code(), "UNAUTHORIZED", "nobody is his own parent");
            assert_eq!(turn.agent().interrupt(&child, PATIENCE).await.unwrap(), 1);
            turn.await_children().await?;
            turn.say(turn.notes().iter().map(|note| greenroom_session::message::text_of(&note.content)).collect::<String>())?;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&root, "go", None).await.unwrap();
        quiet(&host).await;
        let said = host.load(&root).await.unwrap().fold.last_said().cloned().unwrap();
        assert!(greenroom_session::message::text_of(&said.content).contains("its last turn was stopped"));
    });
    clean(&store);
}

#[test]
fn a_one_shot_child_whose_turn_is_ended_leaves_its_parent_with_an_error() {
    let store = Witness::new();
    let root = store.root("root", "boss");
    let gate = Barrier::new();
    let mut config = Config { max_live: 1, ..slow(&gate) };
    play(&mut config, "boss", |turn: Turn| async move {
        match turn.delegate_and_wait(Delegate::new("slow", "a child", "work")).await {
            Ok(answer) => turn.say(answer)?,
            Err(error) => turn.say(error.code)?,
        }
        Ok(TurnEnd::Completed)
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&root, "go", None).await.unwrap();
        gate.reached().await;
        let child = store.reader().unwrap().children(Some(&root), None, 1).unwrap().remove(0).id;
        assert_eq!(host.interrupt(&child, PATIENCE).await.unwrap(), 1);
        quiet(&host).await;
        let said = host.load(&root).await.unwrap().fold.last_said().cloned().unwrap();
        assert_eq!(greenroom_session::message::text_of(&said.content), "ABORTED");
    });
}

#[test]
fn a_parent_takes_back_what_it_sent_and_nothing_else() {
    let store = Witness::new();
    let root = store.root("root", "root");
    let child = store.child(&root, "child", "slow");
    let stranger = store.root("stranger", "root");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        let (parent, stranger) = (host.resume(&root).await.unwrap(), host.resume(&stranger).await.unwrap());
        parent.agent().followup(&child, "one").await.unwrap();
        gate.reached().await;
        let own = parent.agent().followup(&child, "two").await.unwrap();
        let users = host.send(&child, "three", None).await.unwrap();
        assert_eq!(code(stranger.agent().withdraw(&child, &own, PATIENCE).await), "UNAUTHORIZED");
        assert_eq!(code(parent.agent().withdraw(&child, &users, PATIENCE).await), "UNAUTHORIZED");
        assert_eq!(code(parent.agent().withdraw(&child, &own, PATIENCE).await), "done");
        gate.open(9);
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "completed"), pair("three", "completed")]);
    let by: Vec<_> =
        store.events(&child).into_iter().filter_map(|event| if let Body::MessageWithdrawn { by, .. } = event.body { Some(by) } else { None }).collect();
    assert_eq!(by, ["parent"]);
}

#[test]
fn a_request_that_is_not_answered_in_time_stays() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        let outside = store.peer().system(Config::default()).await.host();
        host.send(&child, "one", None).await.unwrap();
        let two = host.send(&child, "two", None).await.unwrap();
        gate.reached().await;
        for _ in 0..2 {
            assert_eq!(code(outside.withdraw(&child, &two, std::time::Duration::from_secs(1)).await), "TIMED_OUT");
        }
        let request = Control::Withdraw { target: two.clone() }.id();
        let waits: Vec<_> = store.reader().unwrap().inbox(&child, 9).unwrap().iter().map(|record| record.message.id.clone()).collect();
        assert_eq!(waits, [two.clone(), request], "asked twice, it is one request");
        poll(&host, &child);
        outside.withdraw(&child, &two, PATIENCE).await.unwrap();
        gate.open(1);
        quiet(&host).await;
    });
    assert_eq!(answers(&store, &child), [pair("withdraw", "done")]);
    clean(&store);
}

#[test]
fn a_shutdown_does_not_swallow_a_request_to_end_the_turn() {
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    let (to, at) = (child.clone(), gate.clone());
    let peer = store.clone();
    on_paused_time(async {
        let system = peer.system(slow(&gate)).await;
        let host = system.host();
        host.send(&to, "one", None).await.unwrap();
        at.reached().await;
        leave(&peer, &to, Control::Interrupt { turn: Some(1) });
        system.shutdown().await;
    });
    store = store.reopen();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "disposed"), pair("one", "aborted")]);
    assert_eq!(answers(&store, &child), [pair("interrupt", "done")]);
    clean(&store);
}

#[test]
fn a_turn_that_a_shutdown_ends_answers_no_request_and_its_message_is_ended_by_the_next_process() {
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    let mut config = slow(&gate);
    let at = gate.clone();
    play(&mut config, "slow", move |turn: Turn| {
        let at = at.clone();
        async move {
            turn.cancelled().cancelled().await;
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    let (to, watched) = (child.clone(), store.clone());
    on_paused_time(async {
        let system = watched.system(config).await;
        let host = system.host();
        let mut occurrences = host.subscribe();
        host.send(&to, "one", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnStarted { .. })).await;
        let asked = async {
            gate.reached().await;
            leave(&watched, &to, Control::Interrupt { turn: Some(1) });
            poll(&host, &to);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            gate.open(1);
        };
        tokio::join!(system.shutdown(), asked);
        assert_eq!(code(host.interrupt(&to, PATIENCE).await), "DRAINING");
    });
    assert_eq!((how(&store, &child), answers(&store, &child)), (vec![pair("one", "disposed")], vec![]));
    store = store.reopen();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), [pair("one", "disposed"), pair("one", "aborted")]);
    assert_eq!(answers(&store, &child), [pair("interrupt", "done")]);
    clean(&store);
}

#[test]
fn nobody_looks_for_requests_where_no_other_process_has_written() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    plan::begin(0);
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        for text in 0..100 {
            host.send(&child, text.to_string(), None).await.unwrap();
        }
        // Not before, or it might settle in between.
        gate.open(100);
        quiet(&host).await;
        // An acceptance, an end and a claim for each turn; the opening claims the first, the last claim finds nothing. The rest is of the epochs: the parent is
        // told, and its turn takes the same three.
        assert_eq!(store.commits(), 100 * 3 + 2 + 5);
        for _ in 0..100 {
            gate.reached().await;
        }
        host.send(&child, "one more", None).await.unwrap();
        gate.reached().await;
        let commits = store.commits();
        poll(&host, &child);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.commits(), commits, "a look writes nothing");
        gate.open(1);
        quiet(&host).await;
    });
    let hits = plan::end();
    assert_eq!(hits.get("before-requests"), Some(&1), "a hundred turns and one look");
}
