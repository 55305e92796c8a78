//! Verifying a store, on SQLite.

use std::{path::Path, sync::Arc, time::Instant};

use greenroom_session::{
    check::{self, Seen},
    descriptor::Descriptor,
    event::{Body, EpochEnd, Event, Role, SurfaceMessage, TurnEnd},
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Block, Message, Source},
    store::{Append, Close, Create, Fence, Op, Open, Store, sqlite::SqliteStore, sqlite::open_reader},
};
use rusqlite::{Connection, OpenFlags};

use crate::{
    measure::{Outcome, median},
    table::{Row, Target},
};

const SESSIONS: usize = 100;
const ROUNDS: usize = 5;

/// What a check of 100 sessions of 1,000 events costs, beside reading and parsing their rows.
pub(crate) fn check(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let events = (1_000.0 * scale).max(20.0) as u64;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = folder.path().join("store.db");
    build(&path, events)?;
    let (mut times, mut rows) = (Vec::new(), 0);
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        let checked = ours(&path)?;
        let ours = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let parsed = floor(&path)?;
        let floor = begun.elapsed().as_secs_f64();
        if checked != parsed {
            return Err(format!("{checked} rows were checked and {parsed} parsed").into());
        }
        rows = checked;
        // The first round warms both up.
        if round > 0 {
            times.push((ours, floor));
        }
    }
    Ok(vec![Row {
        what: format!("SQLite, check {SESSIONS} sessions of {events} events"),
        ours: format!("{:.0} ms", median(times.iter().map(|(ours, _)| ours * 1e3))),
        floor: format!("{:.0} ms", median(times.iter().map(|(_, floor)| floor * 1e3))),
        ratio: median(times.iter().map(|(ours, floor)| floor / ours)),
        target: Target::AtLeast(0.5),
        note: format!("{rows} rows; the floor reads and parses them"),
    }])
}

/// Checks the store and returns how many rows were looked at.
fn ours(path: &Path) -> Outcome<u64> {
    let (mut rows, mut fault) = (0, None);
    check::check(&mut open_reader(path)?, None, &mut |seen| match seen {
        Seen::Session { events, messages } => rows += events + messages,
        Seen::Finding(finding) => fault = Some(finding),
        Seen::Sessions(_) | Seen::Store => {}
    })?;
    fault.map_or(Ok(rows), |finding| Err(format!("a healthy store: {finding}").into()))
}

/// Reads every event and every message of an inbox, and parses each that has a text.
fn floor(path: &Path) -> Outcome<u64> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut number = 0;
    for sql in ["SELECT sid, seq, body, crc FROM event ORDER BY sid, seq", "SELECT sid, ord, body, crc FROM inbox ORDER BY sid, state, ord"] {
        let mut query = conn.prepare(sql)?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            number += 1;
            if let Some(body) = row.get_ref(2)?.as_str_or_null()? {
                std::hint::black_box(serde_json::from_slice::<serde_json::Value>(body.as_bytes())?);
            }
        }
    }
    Ok(number)
}

/// Writes the store through its own operations: turns of steps with memos and messages of about 500 bytes.
fn build(path: &Path, events: u64) -> Outcome<()> {
    let store = SqliteStore::open(path)?;
    let root = SessionId::from_uuid(uuid::Uuid::new_v4());
    store.commit(&[Op::Create(Create::root(NewSession::root(root.clone()), "agent", "a root"))])?.remove(0)?;
    for number in 0..SESSIONS {
        for done in store.commit(&session(&root, number, events)?)? {
            done?;
        }
    }
    store.close()?;
    Ok(())
}

fn session(root: &SessionId, number: usize, length: u64) -> Outcome<Vec<Op>> {
    let id = SessionId::from_uuid(uuid::Uuid::new_v4());
    let message = MessageId::from_uuid(uuid::Uuid::new_v4());
    let first = Message::turn(&message, "Read the chapter.", Source::Coordinator { session: root.clone() }, 1_000)?;
    let descriptor = Descriptor::continuable("spawn", format!("reads chapter {number} and reports"), "agent");
    let create = Create::child(NewSession::child(id.clone(), root.clone(), 0), Vec::new(), &descriptor, Some(Arc::new(first)), 1_000)?;
    let text = "A line of some four hundred bytes, as a measured step of a working agent might leave it in its log; \"quoted\" now and then. ".repeat(3);
    let fence = Fence { session: id.clone(), epoch: 1 };
    // Behind the descriptor, the end of the seed, the epoch, the turn and its message.
    let mut bodies: Vec<Body> = Vec::new();
    let mut step = 0;
    while 5 + bodies.len() as u64 + 20 <= length {
        step += 1;
        bodies.push(Body::StepStart { turn: 1, step });
        for _ in 0..8 {
            let spoken = SurfaceMessage {
                id: MessageId::from_uuid(uuid::Uuid::new_v4()),
                role: Role::Assistant,
                content: vec![Block::text(text.clone())],
                source: Source::Agent { name: "agent".into() },
            };
            bodies.push(Body::Memo { turn: 1, message: message.clone(), key: None, text: text.clone() });
            bodies.push(Body::AssistantMessage { turn: 1, step, message: spoken, usage: None, stop: None });
        }
        bodies.push(Body::StepEnd { turn: 1, step, cut: None });
    }
    let end = 5 + bodies.len() as u64;
    bodies.push(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed });
    let events: Vec<Event> = bodies.into_iter().zip(5..).map(|(body, seq)| body.at(seq, 1_000)).collect();
    let settled = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(end + 1, 1_000);
    Ok(vec![
        Op::Create(create),
        Op::Open(Open { session: id, epoch: 1, events: [Body::ActivationStart { epoch: 1 }.at(2, 1_000)].into(), claim: Some(1_000) }),
        Op::Append(Append { fence: fence.clone(), events: events.into(), take: Vec::new() }),
        Op::Close(Close { fence, events: [settled].into(), unless_pending: true }),
    ])
}
