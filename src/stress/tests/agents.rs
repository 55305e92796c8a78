//! What agents do to each other, and agents that are not there.

use std::sync::Arc;

use greenroom_session::{
    event::Body,
    id::{MessageId, SessionId},
    message::{InboxRecord, Message, Source},
    store::Store,
};

use super::{
    damaged::{Damaged, Records},
    world::{Finished, TOTAL, cut_turn},
};
use crate::stress::{Fault, Finding, StressReport, audit::audit, records::Heard};

#[tokio::test]
async fn what_agents_did_to_each_other_is_audited_too() {
    let run = Finished::run().await;
    let (mut planted, mut seen) = (0, 0);
    let mut reader = run.store.reader().unwrap();
    for session in run.agents.values().chain([&run.root]) {
        for event in reader.events(session, 0, usize::MAX).unwrap() {
            let Body::EffectAccepted { target, id, kind, .. } = &event.body else { continue };
            let kind = kind.as_str();
            seen += 1;
            if kind == "report" && seen % 3 > 0 {
                continue;
            }
            let audit = run.audit_with(run.plan.messages, |session, (events, inbox)| {
                if session.as_str() == target && kind != "delegate" {
                    drop(cut_turn(events, id));
                    events.retain(|event| !matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id));
                    inbox.retain(|record| record.message.id.as_str() != id);
                } else if session.as_str() == id {
                    // A child whose first message is gone.
                    events.retain(|event| !matches!(event.body, Body::UserMessage(_)));
                    inbox.clear();
                }
            });
            assert!(audit.lost >= 1 && !audit.findings.is_empty(), "{kind} {id} to {target}");
            planted += 1;
        }
    }
    assert!(planted > 20, "{planted}");
}

#[tokio::test]
async fn an_agent_that_is_not_there_loses_its_messages_and_a_note_that_nobody_took_is_left_over() {
    let run = Finished::run().await;
    for (agent, session) in &run.agents {
        let audit = run.audit_with(run.plan.messages, |of, (events, _)| {
            if of == session {
                events.retain(|event| !matches!(event.body, Body::Descriptor(_)));
            }
        });
        let to_it = run.posts().filter(|post| post.to == *agent).count() as u64;
        assert_eq!((audit.accepted, audit.lost, audit.served + audit.failed + audit.withdrawn), (TOTAL, to_it, TOTAL - to_it), "agent {agent}");
        assert!(to_it == 0 || audit.findings.iter().any(|finding| finding.fault == Fault::Stranger), "what is there belongs to nobody");
        let miscast = Finding { fault: Fault::Miscast, session: run.root.clone(), message: None };
        assert!(audit.findings.len() == StressReport::MAX_FINDINGS || audit.findings.contains(&miscast), "agent {agent}");
    }
    for quiet in [false, true] {
        let id = MessageId::new("note").unwrap();
        let note = Message::note(id, "news", Source::SubagentReport { session: run.root.clone() }, 0, quiet).unwrap();
        let audit = run.audit_with(run.plan.messages, |session, (_, inbox)| {
            if *session == run.root {
                inbox.push(InboxRecord { order: 0, held: false, message: Arc::new(note.clone()) });
            }
        });
        let left_over = Finding { fault: Fault::LeftOver, session: run.root.clone(), message: Some("note".into()) };
        assert_eq!(audit.findings, if quiet { vec![] } else { vec![left_over] });
    }
    // Of a run that was cut off, neither is a fault.
    let mut reader = Damaged { reader: run.store.reader().unwrap(), damage: |_: &SessionId, (events, _): Records<'_>| events.clear() };
    let audit = audit(&mut reader, &run.root, &run.plan, &Heard::new(&run.plan), true).unwrap();
    assert_eq!((audit.accepted, audit.findings), (0, vec![]));
}
