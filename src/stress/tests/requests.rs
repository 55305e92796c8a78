//! Requests of senders: what became of a withdrawal or an interrupt is what its sender was told.

use std::{collections::BTreeMap, sync::Arc};

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::MessageId,
    message::{Control, InboxRecord, Message, Source},
    store::Store,
};

use super::{
    damaged::Records,
    world::{Finished, TOTAL, aborted, counts, cut_turn, end_as, turns_of, withdrawal},
};
use crate::stress::{
    Fault, Finding,
    audit::Audit,
    plan::{Deed, Name, Post, Request},
    records::{Answer, Heard},
};

#[tokio::test]
async fn a_withdrawal_is_what_its_sender_was_told() {
    let run = Finished::run().await;
    let mut seen = 0;
    for post in run.posts().filter(|post| post.next == Some(Request::Withdraw)) {
        let (id, messages) = (post.name.id(), run.plan.messages);
        // Whatever came of it in the run: either is planted, and held against every answer.
        let withdrawn = |(events, _): Records<'_>| {
            drop(cut_turn(events, &id));
            events.retain(|event| !matches!(&event.body, Body::MessageWithdrawn { message, .. } if message.as_str() == id));
            events.push(withdrawal(&id));
        };
        let served = |(events, inbox): Records<'_>| {
            withdrawn((events, inbox));
            events.pop();
            let message = MessageId::new(&id).unwrap();
            let end = if post.deed == Deed::Fail { TurnEnd::error("PLANNED", "") } else { TurnEnd::Completed };
            let shown = Body::user_message(&Message::turn(&id, "", Source::User, 0).unwrap());
            let turn = [Body::TurnStart { turn: 1_000_000, message, attempt: 1 }, shown, Body::TurnEnd { turn: 1_000_000, reason: end }];
            // Behind all others of its agent it is behind the ones after it, too: told of first, so that no order is broken.
            let at = events.iter().position(|event| followers(&run, &post, event)).unwrap_or(events.len());
            events.splice(at..at, turn.map(|body| body.at(0, 0)));
        };
        let (yes, no) = ((0, 0, 0, 0), vec![run.finding(Fault::Contradicted, &post)]);
        for (answer, may_be_withdrawn, may_be_served) in
            [(None, true, true), (Some(Answer::Withdrawn), true, false), (Some(Answer::AlreadyStarted), false, true), (Some(Answer::NotPending), false, false)]
        {
            let mut heard = run.heard_of(messages);
            heard.answers.remove(&post.name);
            heard.answers.extend(answer.map(|answer| (post.name, answer)));
            let of = &run.agents[&post.to];
            let expected = |may| if may { vec![] } else { no.clone() };
            let audit = run.audit_as(&heard, |session, records| {
                if session == of {
                    withdrawn(records);
                }
            });
            assert_eq!((counts(&audit), audit.findings), (yes, expected(may_be_withdrawn)), "{id} is withdrawn, and its sender was told {answer:?}");
            let audit = run.audit_as(&heard, |session, records| {
                if session == of {
                    served(records);
                }
            });
            assert_eq!((counts(&audit), audit.findings), (yes, expected(may_be_served)), "{id} is served, and its sender was told {answer:?}");
        }
        let twice = run.audit_one(&post, |(events, inbox)| {
            withdrawn((events, inbox));
            events.push(withdrawal(&id));
        });
        assert_eq!(twice.duplicated, 1, "taken back twice: {id}");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
    // Nobody takes back what agents send to each other.
    let mut reader = run.store.reader().unwrap();
    let from_agent = run.agents.values().find_map(|session| {
        let events = reader.events(session, 0, usize::MAX).unwrap();
        events.into_iter().find_map(|event| match event.body {
            Body::UserMessage(message) if matches!(message.source, Source::Coordinator { .. }) && message.id.as_str().len() > 9 => Some((session, message.id)),
            _ => None,
        })
    });
    let (of, id) = from_agent.unwrap();
    let audit = run.audit_with(run.plan.messages, |session, (events, _)| {
        if session == of {
            drop(cut_turn(events, id.as_str()));
            events.push(withdrawal(id.as_str()));
        }
    });
    let stranger = Finding { fault: Fault::Stranger, session: of.clone(), message: Some(id.to_string()) };
    assert!(audit.findings.contains(&stranger), "{:?}", audit.findings);
}

/// Tells whether an event begins the turn of a later message of the same sender.
fn followers(run: &Finished, post: &Post, event: &Event) -> bool {
    let Body::TurnStart { message, .. } = &event.body else { return false };
    Name::read(message.as_str()).is_some_and(|name| run.plan.has(name) && name.sender == post.name.sender && name.number > post.name.number)
}

/// Undoes every interrupt in a log: as if each turn had ended by itself.
fn undo_interrupts(run: &Finished, events: &mut [Event]) {
    let mut served = BTreeMap::new();
    for event in events {
        match &mut event.body {
            Body::TurnStart { turn, message, .. } => drop(served.insert(*turn, message.clone())),
            Body::TurnEnd { turn, reason } if *reason == aborted() => {
                let name = served.get(turn).and_then(|message| Name::read(message.as_str()));
                let fails = name.is_some_and(|name| run.plan.post(name).deed == Deed::Fail);
                *reason = if fails { TurnEnd::error("PLANNED", "") } else { TurnEnd::Completed };
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_turn_is_interrupted_if_a_sender_was_told_so_or_was_never_told() {
    let run = Finished::run().await;
    // Which turns the run has hit is a race: every interrupt is undone, and those that are looked at are planted.
    let mut nothing_hit = run.heard_of(run.plan.messages);
    for post in run.posts().filter(|post| post.next == Some(Request::Interrupt)) {
        nothing_hit.interrupting.insert(post.name);
        nothing_hit.answers.insert(post.name, Answer::NotRunning);
    }
    let all: Vec<Post> = run.served().map(|(post, _)| post).filter(|post| post.deed != Deed::Fail).collect();
    let mut seen = 0;
    for post in all.iter().filter(|post| post.next == Some(Request::Interrupt)) {
        let (id, of, name) = (post.name.id(), &run.agents[&post.to], post.name);
        let turn = turns_of(&run.store.reader().unwrap().events(of, 0, usize::MAX).unwrap(), &id)[0];
        // A turn of the same agent for which nobody asks anything.
        let Some(other) = all.iter().find(|other| other.to == post.to && other.next.is_none()) else { continue };
        let with = |answer: Option<Answer>| {
            let mut heard = nothing_hit.clone();
            heard.answers.remove(&name);
            heard.answers.extend(answer.map(|answer| (name, answer)));
            heard
        };
        let audit = |heard: &Heard, aborts: &[&Post]| {
            run.audit_as(heard, |session, (events, _)| {
                undo_interrupts(&run, events);
                for post in aborts.iter().filter(|_| session == of) {
                    end_as(events, &post.name.id(), &aborted());
                }
            })
        };
        let found = |audit: &Audit| audit.findings.clone();
        let (unplanned, contradicted) = (|post| run.finding(Fault::Unplanned, post), run.finding(Fault::Contradicted, post));
        let told = with(Some(Answer::Interrupted { turn }));
        let clean = audit(&told, &[post]);
        assert_eq!((found(&clean), counts(&clean)), (vec![], (0, 0, 0, 0)), "{id}");
        assert!(clean.interrupted == 1 && clean.served + clean.failed + clean.withdrawn == TOTAL);
        assert_eq!(found(&audit(&told, &[])), std::slice::from_ref(&contradicted), "told so, and it was not: {id}");
        assert_eq!(found(&audit(&told, &[post, other])), [unplanned(other)], "another one, too: {id}");
        assert_eq!(found(&audit(&told, &[other])), [contradicted.clone(), unplanned(other)], "another one instead: {id}");
        assert_eq!(found(&audit(&with(Some(Answer::Interrupted { turn: 2_000_000 })), &[])), [contradicted], "no such turn: {id}");
        assert_eq!(found(&audit(&with(Some(Answer::NotRunning)), &[post])), [unplanned(post)], "told that none was: {id}");
        // An answer that a kill has cut off may have been any, once.
        let untold = with(None);
        for aborts in [&[][..], &[post], &[other]] {
            assert_eq!(found(&audit(&untold, aborts)), [], "not told: {id}");
        }
        assert_eq!(audit(&untold, &[post, other]).findings.len(), 1, "not told, and two turns: {id}");
        let mut not_asked = untold.clone();
        not_asked.interrupting.remove(&name);
        assert_eq!(found(&audit(&not_asked, &[post])), [unplanned(post)], "not asked: {id}");

        // One that a crash had cut off is named by the turn that was seen, and ended by the next.
        let retried = run.audit_as(&told, |session, (events, _)| {
            undo_interrupts(&run, events);
            if session == of {
                end_as(events, &id, &TurnEnd::Disposed);
                let again = Body::TurnStart { turn: 1_000_000, message: MessageId::new(&id).unwrap(), attempt: 2 };
                events.extend([again, Body::TurnEnd { turn: 1_000_000, reason: aborted() }].map(|body| body.at(0, 0)));
            }
        });
        assert_eq!(found(&retried), [], "cut off before: {id}");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
    let root = run.audit_with(run.plan.messages, |session, (events, _)| {
        if *session == run.root {
            end_as(events, "layout", &aborted());
        }
    });
    assert_eq!(root.findings, [Finding { fault: Fault::Unplanned, session: run.root.clone(), message: Some("layout".into()) }], "nobody asks the root");
}

#[tokio::test]
async fn a_request_of_another_process_is_no_message() {
    let run = Finished::run().await;
    for control in [Control::Interrupt { turn: Some(1) }, Control::Withdraw { target: MessageId::new("s0-0").unwrap() }] {
        let audit = run.audit_with(run.plan.messages, |_, (_, inbox)| {
            let message = Message::control(control.id(), control.clone(), 0);
            inbox.push(InboxRecord { order: 0, held: false, message: Arc::new(message) });
        });
        assert_eq!((counts(&audit), audit.findings), ((0, 0, 0, 0), vec![]));
    }
}
