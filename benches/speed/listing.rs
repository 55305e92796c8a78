//! Listing the children of one parent among many sessions, on SQLite.

use std::{sync::Arc, time::Instant};

use greenroom::{Agent, Runtime, TurnEnd};
use greenroom_session::{
    descriptor::{DESCRIPTOR_VERSION, Descriptor, Mode},
    event::{Body, EpochEnd, Event, TurnEnd as TurnReason},
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Message, Source},
    store::{Append, Close, Create, Fence, Op, Open, Store, sqlite::SqliteStore},
};
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use tokio_util::sync::CancellationToken;

use crate::{
    floor::covering_query,
    measure::{Outcome, median, two_workers},
    table::{Row, Target},
};

/// Children of each parent; the one that is listed is in the middle.
pub(crate) const FAMILY: usize = 100;
const CALLS: usize = 500;
const WARM_UP: usize = 20;

/// A store of families, all settled after one turn each.
pub(crate) struct Corpus {
    pub(crate) sessions: usize,
    pub(crate) events: u64,
}

/// What listing costs, on a corpus of 12,000 sessions of 100 events, and on one whose logs are ten times longer.
pub(crate) fn listing(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let sessions = (12_000.0 * scale) as usize;
    let short = measured(&Corpus { sessions, events: 100 })?;
    let long = measured(&Corpus { sessions: sessions / 10, events: 1_000 })?;
    let (ours, floor) = short;
    Ok(vec![
        Row {
            what: format!("SQLite, list {FAMILY} children among {sessions} sessions of 100 events"),
            ours: format!("{ours:.0} us"),
            floor: format!("{floor:.0} us"),
            ratio: ours / floor,
            target: Target::Other("<= 3 x + 0.2 ms", ours <= 3.0 * floor + 200.0),
            note: "floor: the bare covering query".into(),
        },
        Row {
            what: "the same with logs ten times longer".into(),
            ours: format!("{:.0} us", long.0),
            floor: format!("{ours:.0} us"),
            ratio: long.0 / ours,
            target: Target::Other("<= 1.15", long.0 <= 1.15 * ours),
            note: format!("floor: the row above; {} sessions; covering query {:.0} us", sessions / 10, long.1),
        },
    ])
}

/// Returns the middle time of a listing and of the covering query, in microseconds, called in turn.
fn measured(corpus: &Corpus) -> Outcome<(f64, f64)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path)?;
    let parent = corpus.build(&store)?;
    store.close()?;
    drop(store);
    let workers = two_workers()?;
    let runtime = Runtime::builder().closure("agent", |_| async { Ok(TurnEnd::Completed) });
    let (runtime, root) = workers.block_on(async {
        let runtime = runtime.start(Arc::new(SqliteStore::open(&path)?)).await?;
        let root = runtime.resume(&parent).await?;
        Outcome::Ok((runtime, root))
    })?;
    let bare = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    bare.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // On a worker, as the turn of an agent would be.
    let times = workers.block_on(workers.spawn(in_turn(root.agent(), bare, parent)))??;
    workers.block_on(async {
        drop(root);
        runtime.shutdown().await;
    });
    let (ours, floor): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    Ok((median(ours), median(floor)))
}

/// Lists and asks in turn, and returns how long each took in microseconds.
async fn in_turn(agent: Agent, bare: Connection, parent: SessionId) -> Outcome<Vec<(f64, f64)>> {
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..CALLS + WARM_UP {
        let begun = Instant::now();
        let entries = agent.list_children(CancellationToken::new()).await?;
        let ours = begun.elapsed();
        let begun = Instant::now();
        let rows = covering_query(&bare, &parent)?;
        let floor = begun.elapsed();
        if entries.len() != FAMILY || rows != FAMILY {
            return Err(format!("{} entries and {rows} rows where {FAMILY} are expected", entries.len()).into());
        }
        if call >= WARM_UP {
            times.push((ours.as_secs_f64() * 1e6, floor.as_secs_f64() * 1e6));
        }
    }
    Ok(times)
}

impl Corpus {
    /// Writes the store through its own operations and returns the parent that is to be listed.
    pub(crate) fn build(&self, store: &dyn Store) -> Outcome<SessionId> {
        let families = self.sessions / (FAMILY + 1);
        let mut middle = None;
        let mut time = 1_000_000;
        for family in 0..=families {
            let parent = SessionId::from_uuid(uuid::Uuid::new_v4());
            let mut ops = vec![Op::Create(Create::root(NewSession::root(parent.clone()), "agent", format!("family {family}")))];
            for child in 0..FAMILY {
                time += 1;
                ops.extend(self.child(&parent, child, time)?);
            }
            for done in store.commit(&ops)? {
                done?;
            }
            if family == families / 2 {
                middle = Some(parent);
            }
        }
        middle.ok_or_else(|| "no family".into())
    }

    fn child(&self, parent: &SessionId, number: usize, time: u64) -> Outcome<Vec<Op>> {
        let id = SessionId::from_uuid(uuid::Uuid::new_v4());
        let message = MessageId::from_uuid(uuid::Uuid::new_v4());
        let descriptor = Descriptor {
            version: DESCRIPTOR_VERSION,
            mode: Mode::Continuable,
            provider: "spawn".into(),
            label: Some(format!("reads chapter {number} and reports")),
            agent: "agent".into(),
            alias: None,
            params: None,
            model: None,
            persona: None,
            tool_filter: None,
            notice: false,
            ext: serde_json::Map::new(),
        };
        let first = Message::turn(&message, "Read the chapter.", Source::Coordinator { session: parent.clone() }, time)?;
        let session = NewSession::child(id.clone(), parent.clone(), 0);
        let create = Create::child(session, Vec::new(), &descriptor, Some(Arc::new(first)), time)?;
        let seeded = create.events.len() as u64;
        // The claim adds `turn/start` and the message.
        let first_memo = seeded + 3;
        let last_memo = self.events - 2;
        let fence = Fence { session: id.clone(), epoch: 1 };
        let text = "a line of some two hundred bytes, as a measured step of a working agent might leave it in its log ".repeat(2);
        let mut events: Vec<Event> =
            (first_memo..last_memo).map(|seq| Body::Memo { turn: 1, message: message.clone(), key: None, text: text.clone() }.at(seq, time)).collect();
        events.push(Body::TurnEnd { turn: 1, reason: TurnReason::Completed }.at(last_memo, time));
        let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(last_memo + 1, time);
        Ok(vec![
            Op::Create(create),
            Op::Open(Open { session: id, epoch: 1, events: [Body::ActivationStart { epoch: 1 }.at(seeded, time)].into(), claim: Some(time) }),
            Op::Append(Append { fence: fence.clone(), events: events.into(), take: Vec::new() }),
            Op::Close(Close { fence, events: [end].into(), unless_pending: true }),
        ])
    }
}
