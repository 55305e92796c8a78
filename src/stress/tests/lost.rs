//! Messages that are lost, served twice, left over, ended otherwise or overtaken.

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::MessageId,
    store::Store,
};

use super::world::{Finished, TOTAL, aborted, counts, cut_turn, end_as, is_of, record, turns_of, withdrawal};
use crate::stress::{
    Fault, Finding,
    plan::{Deed, Post},
};

#[tokio::test]
async fn every_planted_fault_is_counted_and_named() {
    let run = Finished::run().await;
    let clean = run.audit_with(run.plan.messages, |_, _| {});
    assert_eq!((clean.accepted, clean.served + clean.failed + clean.withdrawn, counts(&clean)), (TOTAL, TOTAL, (0, 0, 0, 0)));
    assert_eq!(clean.findings, []);
    let ended = |holds: &dyn Fn(&Post, &TurnEnd) -> bool| run.served().filter(|(post, end)| holds(post, end)).count() as u64;
    let interrupted = ended(&|_, end| *end == aborted());
    let to_fail = ended(&|post, end| *end != aborted() && post.deed == Deed::Fail);
    assert_eq!((clean.failed, clean.interrupted), (to_fail + interrupted, interrupted));

    // Every ninth message, so that faults are planted at the beginning, in the middle and at the end of logs, in turns of every kind.
    for (post, end) in run.served().filter(|(post, end)| post.next.is_none() && *end != aborted()).step_by(9) {
        let id = post.name.id();
        let id = id.as_str();

        let lost = run.audit_one(&post, |(events, _)| drop(cut_turn(events, id)));
        assert_eq!(counts(&lost), (1, 0, 0, 0), "a turn is not there: {id}");
        assert_eq!(lost.findings, [run.finding(Fault::Lost, &post)]);
        assert_eq!(lost.served + lost.failed + lost.withdrawn + lost.lost, TOTAL);

        let unseen = run.audit_one(&post, |(events, _)| events.retain(|event| !matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id)));
        assert_eq!(counts(&unseen), (1, 0, 0, 0), "a turn without its message: {id}");

        let twice = run.audit_one(&post, |(events, _)| {
            let mut again = cut_turn(&mut events.clone(), id);
            for event in &mut again {
                if let Body::TurnStart { turn, .. } | Body::TurnEnd { turn, .. } = &mut event.body {
                    *turn += 1_000_000;
                }
            }
            events.extend(again);
        });
        assert_eq!(counts(&twice), (0, 1, 0, 0), "a turn is there twice: {id}");
        assert_eq!(twice.findings, [run.finding(Fault::Duplicated, &post)]);

        let shown_twice = run.audit_one(&post, |(events, _)| {
            let shown = events.iter().find(|event| matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id)).cloned();
            events.extend(shown);
        });
        assert_eq!(counts(&shown_twice), (0, 1, 0, 0), "a message is shown twice: {id}");

        let ended_twice = run.audit_one(&post, |(events, _)| {
            let again = Body::TurnStart { turn: 1_000_000, message: MessageId::new(id).unwrap(), attempt: 2 };
            events.extend([again.at(0, 0), Body::TurnEnd { turn: 1_000_000, reason: TurnEnd::Completed }.at(0, 0)]);
        });
        assert_eq!(ended_twice.duplicated, 1, "a second attempt after a final end: {id}");

        let withdrawn = run.audit_one(&post, |(events, _)| {
            drop(cut_turn(events, id));
            events.push(withdrawal(id));
        });
        assert_eq!((withdrawn.withdrawn, counts(&withdrawn)), (clean.withdrawn + 1, (0, 0, 0, 0)));
        assert!(withdrawn.findings.contains(&run.finding(Fault::Unplanned, &post)), "taken back, and nobody had asked for that: {id}");
        let served_too = run.audit_one(&post, |(events, _)| events.push(withdrawal(id)));
        assert_eq!(counts(&served_too), (0, 1, 0, 0), "served and taken back: {id}");

        let waits_too = run.audit_one(&post, |(_, inbox)| inbox.push(record(id)));
        assert_eq!(counts(&waits_too), (0, 1, 0, 0), "served, and waits to be served again: {id}");

        let pending = run.audit_one(&post, |(events, inbox)| {
            drop(cut_turn(events, id));
            inbox.push(record(id));
        });
        assert_eq!((pending.lost, pending.duplicated, pending.pending), (0, 0, 1), "it waits: {id}");
        assert!(pending.findings.contains(&run.finding(Fault::LeftOver, &post)));

        let endless = run.audit_one(&post, |(events, _)| {
            let turns = turns_of(events, id);
            events.retain(|event| !matches!(&event.body, Body::TurnEnd { turn, .. } if turns.contains(turn)));
        });
        assert_eq!(counts(&endless), (0, 0, 0, 1), "a turn without an end: {id}");

        for other in [TurnEnd::error("X", "x"), TurnEnd::Completed, aborted(), TurnEnd::MaxTokens] {
            if matches!((&end, &other), (TurnEnd::Completed, TurnEnd::Completed) | (TurnEnd::Error { .. }, TurnEnd::Error { .. } | TurnEnd::MaxTokens)) {
                continue;
            }
            let otherwise = run.audit_one(&post, |(events, _)| end_as(events, id, &other));
            assert_eq!((counts(&otherwise), otherwise.findings), ((0, 0, 0, 0), vec![run.finding(Fault::Unplanned, &post)]), "{id} ends {other:?}");
        }

        let retried = run.audit_one(&post, |(events, _)| {
            let at = events.iter().position(|event| matches!(&event.body, Body::TurnStart { message, .. } if message.as_str() == id)).unwrap();
            let first = Body::TurnStart { turn: 1_000_000, message: MessageId::new(id).unwrap(), attempt: 1 };
            let cut = Body::TurnEnd { turn: 1_000_000, reason: TurnEnd::Interrupted };
            events.splice(at..at, [first.at(0, 0), cut.at(0, 0)]);
        });
        assert_eq!(retried.findings, [], "a retry is no duplicate: {id}");
    }
}

#[tokio::test]
async fn an_overtaken_message_is_counted_for_its_sender_only() {
    let run = Finished::run().await;
    let mut swapped = 0;
    let served: Vec<Post> = run.served().map(|(post, _)| post).collect();
    for first in served.iter().cloned().step_by(6) {
        let same_sender =
            served.iter().find(|post| post.to == first.to && post.name.sender == first.name.sender && post.name.number > first.name.number).cloned();
        let Some(second) = same_sender else { continue };
        let between = |events: &mut Vec<Event>, earlier: &str, later: &str| {
            // The earlier one's turn is moved to just behind the later one's.
            let turn = cut_turn(events, earlier);
            let turns = turns_of(events, later);
            let at = events.iter().rposition(|event| is_of(event, later, &turns)).unwrap() + 1;
            events.splice(at..at, turn);
        };
        let (a, b) = (first.name.id(), second.name.id());
        let audit = run.audit_one(&first, |(events, _)| between(events, &a, &b));
        assert_eq!(counts(&audit), (0, 0, 1, 0), "{a} behind {b}");
        assert_eq!(audit.findings, [run.finding(Fault::Overtook, &second)]);

        // One that still waits was overtaken by all that were served and sent after it.
        let audit = run.audit_one(&first, |(events, inbox)| {
            drop(cut_turn(events, &a));
            inbox.push(record(&a));
        });
        assert!(audit.order_violations >= 1, "{a} waits, {b} does not");
        swapped += 1;
    }
    assert!(swapped > 15);
    // Among messages of different senders there is no order.
    let (a, b) = served
        .iter()
        .cloned()
        .find_map(|a| Some((a.clone(), served.iter().find(|b| b.to == a.to && b.name.sender > a.name.sender && b.name.number == a.name.number).cloned()?)))
        .unwrap();
    let audit = run.audit_one(&a, |(events, _)| {
        for event in events.iter_mut() {
            if let Body::TurnStart { message, .. } | Body::UserMessage(greenroom_session::event::SurfaceMessage { id: message, .. }) = &mut event.body {
                let swapped = if message.as_str() == a.name.id() {
                    b.name.id()
                } else if message.as_str() == b.name.id() {
                    a.name.id()
                } else {
                    continue;
                };
                *message = MessageId::new(swapped).unwrap();
            }
        }
    });
    let of_others = audit.findings.iter().filter(|finding| finding.fault == Fault::Duplicated || finding.fault == Fault::Lost).count();
    assert_eq!(of_others, 0);
}

#[tokio::test]
async fn what_no_sender_was_told_may_be_there_once_and_what_nobody_sent_never() {
    let run = Finished::run().await;
    // The senders were told of the first half only; the rest is there nevertheless.
    let audit = run.audit_with(run.plan.messages / 2, |_, _| {});
    assert_eq!((audit.accepted, audit.served + audit.failed + audit.withdrawn, audit.findings), (TOTAL / 2, TOTAL / 2, vec![]));
    let served: Vec<Post> = run.served().filter(|(post, end)| post.next.is_none() && *end != aborted()).map(|(post, _)| post).collect();
    let post = served.iter().rfind(|post| post.name.number >= run.plan.messages / 2).cloned().unwrap();
    let id = post.name.id();
    let of = run.agents[&post.to].clone();
    let audit = run.audit_with(run.plan.messages / 2, |session, (_, inbox)| {
        if *session == of {
            inbox.push(record(&id));
        }
    });
    assert_eq!((audit.duplicated, &audit.findings[0]), (1, &run.finding(Fault::Duplicated, &post)), "not told of, and there twice");
    let audit = run.audit_with(run.plan.messages / 2, |session, (events, _)| {
        if *session == of {
            drop(cut_turn(events, &id));
        }
    });
    assert_eq!(audit.findings, [], "not told of, and not there");

    // What was accepted unknown to its sender came after everything that the sender was told of, and in its order.
    let half = run.plan.messages / 2;
    let first = run.posts().find(|post| post.name.number + 1 == half).unwrap();
    let later = served.iter().filter(|post| post.name.sender == first.name.sender && post.name.number >= half);
    let same: Vec<&Post> =
        later.filter(|post| served.iter().any(|other| other.to == post.to && other.name.sender == post.name.sender && other.name < post.name)).collect();
    assert!(!same.is_empty());
    for overtaking in same {
        let (id, of) = (overtaking.name.id(), run.agents[&overtaking.to].clone());
        let audit = run.audit_with(half, |session, (events, _)| {
            if *session == of {
                // Its turn is moved to the beginning of all.
                let turn = cut_turn(events, &id);
                events.splice(0..0, turn);
            }
        });
        assert!(audit.order_violations >= 1 && audit.lost + audit.duplicated == 0, "{id}: {:?}", audit.findings);
    }

    for stranger in ["s4-0", "s0-60", "hello", "layout"] {
        let audit = run.audit_one(&post, |(events, _)| {
            let mut turn = cut_turn(&mut events.clone(), &id);
            for event in &mut turn {
                match &mut event.body {
                    Body::TurnStart { message, turn, .. } => (*message, *turn) = (MessageId::new(stranger).unwrap(), 1_000_000),
                    Body::UserMessage(message) => message.id = MessageId::new(stranger).unwrap(),
                    Body::TurnEnd { turn, .. } => *turn = 1_000_000,
                    _ => {}
                }
            }
            events.extend(turn);
        });
        let expected = Finding { fault: Fault::Stranger, session: of.clone(), message: Some(stranger.into()) };
        assert_eq!((counts(&audit), audit.findings), ((0, 0, 0, 0), vec![expected]));
    }
    // Delivered to another agent than it was sent to: lost here, sent by nobody there.
    let other = run.agents.iter().find(|(agent, _)| **agent != post.to).map(|(_, session)| session.clone()).unwrap();
    let moved = run.store.reader().unwrap().events(&of, 0, usize::MAX).map(|mut events| cut_turn(&mut events, &id)).unwrap();
    let audit = run.audit_with(run.plan.messages, |session, (events, _)| {
        if *session == of {
            drop(cut_turn(events, &id));
        } else if *session == other {
            events.extend(moved.iter().cloned().map(|mut event| {
                if let Body::TurnStart { turn, .. } | Body::TurnEnd { turn, .. } = &mut event.body {
                    *turn += 1_000_000;
                }
                event
            }));
        }
    });
    let mut faults: Vec<Fault> = audit.findings.iter().map(|finding| finding.fault).collect();
    faults.sort();
    assert_eq!(faults, [Fault::Lost, Fault::Stranger]);
}
