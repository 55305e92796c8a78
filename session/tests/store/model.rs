//! Any sequence of operations leaves the stores on disk saying what the memory store says, whatever becomes of SQLite's derived rows in between.
//!
//! The operations of a case are intents; each is made concrete by the state of the memory store, so that most of them succeed and the rest
//! fail for a known reason. Batches go through one of two openings of the same SQLite file; a folder of JSON Lines has one, and a reader beside it.

use std::{collections::BTreeMap, ops::ControlFlow, path::PathBuf, sync::Arc};

use greenroom_session::{
    check::{Seen, Severity, check},
    event::{Body, EpochEnd, Event, TurnEnd},
    fold::Fold,
    head::Head,
    header::{Header, NewSession},
    id::{Epoch, OwnerId, Seq, SessionId},
    listing::{Described, Description},
    message::{Block, Control, Message},
    recover::begin_epoch,
    store::{
        Accept, Append, Claim, ClaimKind, Close, Done, Import, LoadError, Op, Open, Reader, Refused, Release, Remove, Store, Traced,
        jsonl::{self, JsonlStore},
        memory::MemoryStore,
        sqlite::{self, SqliteStore},
    },
};
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{
    support::{child, fence, fork, mid, root, sid},
    transfer::{import, lines},
};

const SESSIONS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[derive(Debug, Clone)]
enum Intent {
    Root { session: usize, message: bool, time: u64 },
    Child { session: usize, parent: usize, alias: Option<u8>, plain: bool, time: u64 },
    Accept { session: usize, message: u8, kind: u8, text: u8, limit: u64 },
    Open { session: usize, claim: bool, skew: bool },
    Claim { session: usize, notes: bool, skew: bool },
    Step { session: usize },
    End { session: usize, how: u8 },
    Withdraw { session: usize, order: u64 },
    Fenced { session: usize },
    Close { session: usize, unless_pending: bool },
    Import { session: usize, from: usize },
    Release { session: usize },
    Remove { session: usize, discard: bool },
}

#[derive(Debug, Clone)]
enum Damage {
    DeleteSummary(usize),
    FlipWork(usize),
    GarbleHead(usize),
    GarbleVerdict(usize),
    GarbleAlias(usize),
    SwapSummaries(usize, usize),
    DeleteTally,
    GarbleTally,
    DeleteOrphans,
    InventOrphan,
    Remember,
    RestoreOne(usize),
    RestoreAll,
    DropAll,
}

#[derive(Debug, Clone)]
enum Move {
    Batch { second: bool, intents: Vec<Intent> },
    Damage(Damage),
    Reopen,
    Compare,
}

fn intent() -> impl Strategy<Value = Intent> {
    let s = 0..SESSIONS.len();
    prop_oneof![
        2 => (s.clone(), any::<bool>(), 0..50u64).prop_map(|(session, message, time)| Intent::Root { session, message, time }),
        4 => (s.clone(), s.clone(), proptest::option::of(0..2u8), prop::bool::weighted(0.2), 0..50u64)
            .prop_map(|(session, parent, alias, plain, time)| Intent::Child { session, parent, alias, plain, time }),
        8 => (s.clone(), 0..8u8, 0..8u8, 0..8u8, 1..4u64).prop_map(|(session, message, kind, text, limit)| Intent::Accept { session, message, kind, text, limit }),
        5 => (s.clone(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(session, claim, skew)| Intent::Open { session, claim, skew }),
        4 => (s.clone(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(session, notes, skew)| Intent::Claim { session, notes, skew }),
        3 => s.clone().prop_map(|session| Intent::Step { session }),
        5 => (s.clone(), 0..5u8).prop_map(|(session, how)| Intent::End { session, how }),
        2 => (s.clone(), 0..4u64).prop_map(|(session, order)| Intent::Withdraw { session, order }),
        1 => s.clone().prop_map(|session| Intent::Fenced { session }),
        3 => (s.clone(), any::<bool>()).prop_map(|(session, unless_pending)| Intent::Close { session, unless_pending }),
        3 => (s.clone(), s.clone()).prop_map(|(session, from)| Intent::Import { session, from }),
        2 => s.clone().prop_map(|session| Intent::Release { session }),
        1 => (s, any::<bool>()).prop_map(|(session, discard)| Intent::Remove { session, discard }),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let s = 0..SESSIONS.len();
    prop_oneof![
        s.clone().prop_map(Damage::DeleteSummary),
        s.clone().prop_map(Damage::FlipWork),
        s.clone().prop_map(Damage::GarbleHead),
        s.clone().prop_map(Damage::GarbleVerdict),
        s.clone().prop_map(Damage::GarbleAlias),
        (s.clone(), s.clone()).prop_map(|(a, b)| Damage::SwapSummaries(a, b)),
        Just(Damage::DeleteTally),
        Just(Damage::GarbleTally),
        Just(Damage::DeleteOrphans),
        Just(Damage::InventOrphan),
        Just(Damage::Remember),
        s.prop_map(Damage::RestoreOne),
        Just(Damage::RestoreAll),
        Just(Damage::DropAll),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        10 => (prop::bool::weighted(0.3), prop::collection::vec(intent(), 1..6)).prop_map(|(second, intents)| Move::Batch { second, intents }),
        4 => damage().prop_map(Move::Damage),
        1 => Just(Move::Reopen),
        2 => Just(Move::Compare),
    ];
    prop::collection::vec(one, 1..40)
}

/// Both stores, and what the next operation on a session must say.
struct World {
    memory: MemoryStore,
    kind: Kind,
    first: Option<Box<dyn Store>>,
    second: Option<Box<dyn Store>>,
    raw: Option<Connection>,
    folder: TempDir,
}

/// The store that is compared with the one in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Jsonl,
}

impl World {
    fn new(kind: Kind) -> Self {
        let mut world = Self { memory: MemoryStore::new(), kind, first: None, second: None, raw: None, folder: tempfile::tempdir().unwrap() };
        world.open();
        if kind == Kind::Sqlite {
            let raw = Connection::open(world.path()).unwrap();
            raw.execute_batch("PRAGMA synchronous = OFF").unwrap();
            world.raw = Some(raw);
        }
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn open(&mut self) {
        let path = self.path();
        match self.kind {
            Kind::Sqlite => {
                self.first = Some(Box::new(SqliteStore::open(&path).unwrap()));
                self.second = Some(Box::new(SqliteStore::open_existing(&path).unwrap()));
            }
            Kind::Jsonl => self.first = Some(Box::new(JsonlStore::open(&path).unwrap())),
        }
    }

    fn head(&self, session: usize) -> Head {
        self.memory.reader().unwrap().load(&sid(SESSIONS[session])).map(|log| log.fold.head().clone()).unwrap_or_default()
    }

    /// Makes the operations of a batch; within it, only the first on a session can know where the log stands.
    fn op(&self, intent: &Intent) -> Op {
        let at = |session: usize| (SESSIONS[session], self.head(session));
        let append = |session: usize, make: &dyn Fn(&Head, Seq) -> Vec<Body>, take: Vec<u64>| {
            let (id, head) = at(session);
            let events: Vec<_> = make(&head, head.next_seq).into_iter().enumerate().map(|(n, body)| body.at(head.next_seq + n as u64, 3)).collect();
            Op::Append(Append { fence: fence(id, head.epoch), events: events.into(), take })
        };
        match *intent {
            Intent::Root { session, message, time } => {
                let mut create = root(SESSIONS[session], time);
                create.message = message.then(|| Arc::new(message_of(0, 0, 0)));
                Op::Create(create)
            }
            Intent::Child { session, parent, alias, plain, time } => {
                let (id, parent) = (SESSIONS[session], SESSIONS[parent]);
                let alias = alias.map(|alias| format!("alias{alias}"));
                Op::Create(if plain { fork(id, parent, time) } else { child(id, parent, alias.as_deref(), time) })
            }
            Intent::Accept { session, message, kind, text, limit } => {
                Op::Accept(Accept { inbox_limit: limit, note_limit: limit + 1, ..Accept::new(sid(SESSIONS[session]), message_of(message, kind, text)) })
            }
            Intent::Open { session, claim, skew } => {
                let id = sid(SESSIONS[session]);
                let (epoch, events) = match self.memory.reader().unwrap().load(&id) {
                    Ok(log) => begin_epoch(&log.fold, 5, 3),
                    Err(_) => (1, vec![]),
                };
                Op::Open(Open { session: id, epoch: epoch + Epoch::from(skew), events: events.into(), claim: claim.then_some(6) })
            }
            Intent::Claim { session, notes, skew } => {
                let (id, head) = at(session);
                let kind = if notes { ClaimKind::Notes } else { ClaimKind::Turn };
                Op::Claim(Claim { fence: fence(id, head.epoch), first_seq: head.next_seq + u64::from(skew), kind, time: 7 })
            }
            Intent::Step { session } => append(
                session,
                &|head, _| match &head.open {
                    Some(open) => match open.step {
                        Some(step) => vec![Body::StepEnd { turn: open.turn, step, cut: None }],
                        None => vec![Body::StepStart { turn: open.turn, step: open.steps + 1 }],
                    },
                    None => vec![Body::StepStart { turn: 1, step: 1 }],
                },
                vec![],
            ),
            Intent::End { session, how } => append(
                session,
                &|head, _| {
                    let reason = match how {
                        0 => TurnEnd::Interrupted,
                        1 => TurnEnd::Disposed,
                        2 => TurnEnd::error("BROKEN", "it broke"),
                        _ => TurnEnd::Completed,
                    };
                    vec![Body::TurnEnd { turn: head.turns, reason }]
                },
                vec![],
            ),
            Intent::Withdraw { session, order } => {
                let records = self.memory.reader().unwrap().inbox(&sid(SESSIONS[session]), 99).unwrap_or_default();
                let order = records.get(usize::try_from(order).unwrap()).map_or(order, |record| record.order);
                let message = records.iter().find(|record| record.order == order).map_or_else(|| mid("none"), |record| record.message.id.clone());
                append(session, &|_, _| vec![Body::MessageWithdrawn { message: message.clone(), by: "user".into() }], vec![order])
            }
            Intent::Fenced { session } => {
                let (id, head) = at(session);
                Op::Append(Append { fence: fence(id, head.epoch + 1), events: Arc::new([]), take: vec![] })
            }
            Intent::Close { session, unless_pending } => {
                let (id, head) = at(session);
                let end = Body::ActivationEnd { epoch: head.epoch, reason: EpochEnd::Settled }.at(head.next_seq, 8);
                Op::Close(Close { fence: fence(id, head.epoch), events: Arc::new([end]), unless_pending })
            }
            // A session of another name, or the same again; where there is none, one that nobody has.
            Intent::Import { session, from } => {
                let mut reader = self.memory.reader().unwrap();
                match reader.header(&sid(SESSIONS[from])).unwrap() {
                    Some(header) => {
                        let found = import(&lines(&mut *reader, header.id.as_str()));
                        let header = Arc::new(Header { id: sid(SESSIONS[session]), ..(*header).clone() });
                        Op::Import(Import::new(header, found.events().clone(), found.inbox().into()).unwrap())
                    }
                    None => Op::Import(Import::new(Arc::new(NewSession::root(sid(SESSIONS[session])).at(3)), Arc::new([]), Arc::new([])).unwrap()),
                }
            }
            Intent::Release { session } => Op::Release(Release { session: sid(SESSIONS[session]) }),
            Intent::Remove { session, discard } => Op::Remove(Remove { session: sid(SESSIONS[session]), discard }),
        }
    }

    fn batch(&self, second: bool, intents: &[Intent]) {
        let ops: Vec<Op> = intents.iter().map(|intent| self.op(intent)).collect();
        // Leases are the first opening's, as the memory store has one owner only.
        let second = second && self.second.is_some() && !ops.iter().any(|op| matches!(op, Op::Open(_)));
        let store = if second { &self.second } else { &self.first }.as_ref().unwrap();
        let expected = self.memory.commit(&ops).unwrap();
        let found = store.commit(&ops).unwrap();
        // Each store has owners of its own.
        let named = |results: Vec<Result<Done, Refused>>| -> Vec<_> {
            results
                .into_iter()
                .map(|result| result.map_err(|refused| if let Refused::Held(_) = refused { Refused::Held(OwnerId::new("somebody").unwrap()) } else { refused }))
                .collect()
        };
        assert_eq!(named(found), named(expected), "{ops:#?}");
    }

    /// Ends every epoch, so that the openings may go: the memory store has one owner for ever.
    fn reopen(&mut self) {
        for lease in self.memory.reader().unwrap().leases(None).unwrap() {
            let id = lease.session.as_str();
            let session = SESSIONS.iter().position(|name| *name == id).unwrap();
            if self.head(session).open.is_some() {
                self.batch(false, &[Intent::End { session, how: 1 }]);
            }
            self.batch(false, &[Intent::Close { session, unless_pending: false }]);
        }
        (self.first, self.second) = (None, None);
        self.open();
    }

    fn damage(&self, damage: &Damage) {
        // A folder of JSON Lines has nothing that is derived.
        let Some(raw) = &self.raw else { return };
        let sql = |session: usize| format!("sid = (SELECT sid FROM session WHERE id = '{}')", SESSIONS[session]);
        let text = match damage {
            Damage::DeleteSummary(s) => format!("DELETE FROM summary WHERE {}", sql(*s)),
            Damage::FlipWork(s) => format!("UPDATE summary SET work = 1 - work WHERE {}", sql(*s)),
            Damage::GarbleHead(s) => format!("UPDATE summary SET head = replace(head, '\"pending_turns\":', '\"pending_turns\":1') WHERE {}", sql(*s)),
            Damage::GarbleVerdict(s) => format!("UPDATE summary SET verdict = replace(verdict, 'child', 'ghost') WHERE {}", sql(*s)),
            Damage::GarbleAlias(s) => format!("UPDATE summary SET alias = 'alias0', alias_of = 'a' WHERE {}", sql(*s)),
            Damage::SwapSummaries(a, b) => format!(
                "UPDATE summary SET (head, head_crc, verdict, verdict_crc) = (SELECT head, head_crc, verdict, verdict_crc FROM summary o WHERE o.{}) WHERE {}
                 AND EXISTS (SELECT 1 FROM summary o WHERE o.{})",
                sql(*a),
                sql(*b),
                sql(*a)
            ),
            Damage::DeleteTally => "DELETE FROM tally".into(),
            Damage::GarbleTally => "UPDATE tally SET work = work + 1".into(),
            Damage::DeleteOrphans => "DELETE FROM orphan".into(),
            Damage::InventOrphan => "INSERT OR IGNORE INTO orphan VALUES('a')".into(),
            Damage::Remember => "DROP TABLE IF EXISTS temp.old; CREATE TEMP TABLE old AS SELECT * FROM summary;
                 DROP TABLE IF EXISTS temp.old_tally; CREATE TEMP TABLE old_tally AS SELECT * FROM tally"
                .into(),
            Damage::RestoreOne(s) => {
                format!("CREATE TEMP TABLE IF NOT EXISTS old AS SELECT * FROM summary; INSERT OR REPLACE INTO summary SELECT * FROM temp.old WHERE {}", sql(*s))
            }
            Damage::RestoreAll => "CREATE TEMP TABLE IF NOT EXISTS old AS SELECT * FROM summary; INSERT OR REPLACE INTO summary SELECT * FROM temp.old;
                 CREATE TEMP TABLE IF NOT EXISTS old_tally AS SELECT * FROM tally; INSERT OR REPLACE INTO tally SELECT * FROM temp.old_tally"
                .into(),
            Damage::DropAll => "DELETE FROM summary; DELETE FROM tally; DELETE FROM orphan".into(),
        };
        raw.execute_batch(&text).unwrap();
    }

    /// Derives the index again, after which a check finds nothing in it.
    fn rebuild(&self) {
        let store = self.first.as_ref().unwrap();
        store.rebuild_index(None, &mut |_| {}).unwrap();
        check(&mut *store.reader().unwrap(), None, &mut |seen| match seen {
            Seen::Finding(finding) => assert_ne!(finding.class.severity(), Severity::Index, "{finding}"),
            Seen::Sessions(_) | Seen::Session { .. } | Seen::Store => {}
        })
        .unwrap();
    }

    fn compare(&self) {
        let mut memory = self.memory.reader().unwrap();
        let expected = picture(&mut *memory);
        let mut own = self.first.as_ref().unwrap().reader().unwrap();
        assert_eq!(picture(&mut *own), expected);
        let mut beside: Box<dyn Reader> = match self.kind {
            Kind::Sqlite => Box::new(sqlite::open_reader(self.path()).unwrap()),
            Kind::Jsonl => Box::new(jsonl::open_reader(self.path()).unwrap()),
        };
        assert_eq!(picture(&mut *beside), expected);
    }
}

fn message_of(message: u8, kind: u8, text: u8) -> Message {
    let id = mid(&format!("m{message}"));
    let text = if text == 0 { "another text" } else { "the text" };
    match kind {
        0..=3 => Message { content: vec![Block::text(text)], ..crate::support::turn(id.as_str()) },
        4 | 5 => Message { content: vec![Block::text(text)], ..crate::support::note(id.as_str(), false) },
        6 => crate::support::note(id.as_str(), true),
        _ => Message::control(id, Control::Interrupt { turn: None }, 1),
    }
}

/// Everything that a reader says, as text, names of owners aside.
fn picture(reader: &mut dyn Reader) -> BTreeMap<String, String> {
    let mut picture = BTreeMap::new();
    let mut say = |name: String, value: String| picture.insert(name, value);
    for id in SESSIONS {
        let id = sid(id);
        let load = reader.load(&id).map(|log| (log.events, log.fold)).map_err(|error| error.code());
        folds_to(reader, &id, &load);
        say(format!("load {id}"), format!("{load:#?}"));
        say(format!("removed {id}"), format!("{}", reader.is_removed(&id).unwrap()));
        let mut text = String::new();
        let exported = reader.export(&id, &mut |line| {
            text.push_str(std::str::from_utf8(line).unwrap());
            text.push('\n');
            Ok(())
        });
        say(format!("export {id}"), format!("{:?}\n{text}", exported.map_err(|error| error.code())));
        say(format!("inbox {id}"), format!("{:#?}", reader.inbox(&id, 99).map_err(|error| error.code())));
        for message in 0..8 {
            say(format!("message {id} {message}"), format!("{:?}", reader.message(&id, &mid(&format!("m{message}"))).map_err(|error| error.code())));
        }
        for alias in ["alias0", "alias1"] {
            say(format!("alias {id} {alias}"), format!("{:?}", reader.alias(&id, alias).unwrap()));
        }
        say(format!("runnable {id}"), format!("{:?}", reader.runnable(Some(&id), 99).unwrap()));
        let leases: Vec<_> = reader.leases(Some(&id)).unwrap().into_iter().map(|lease| (lease.session, lease.alive)).collect();
        say(format!("leases {id}"), format!("{leases:?}"));
        family(reader, Some(id.as_str()), &mut say);
    }
    family(reader, None, &mut say);
    say("runnable".into(), format!("{:?}", reader.runnable(None, 99).unwrap()));
    say("find".into(), format!("{:?}", reader.find("", 99).unwrap()));
    picture
}

/// A session that is folded without its events being kept is the same, and gives the same events.
fn folds_to(reader: &mut dyn Reader, id: &SessionId, load: &Result<(Vec<Event>, Fold), &str>) {
    let mut seen = Vec::new();
    let folded = reader.fold(id, &mut |event| {
        seen.push(event.clone());
        ControlFlow::Continue(())
    });
    assert_eq!(folded.map(Option::unwrap).as_ref().map_err(LoadError::code), load.as_ref().map(|(_, fold)| fold).map_err(|code| *code), "the fold of {id}");
    if let Ok((events, _)) = load {
        assert_eq!(seen, *events);
        let from = seen.len() as u64 / 2;
        assert_eq!(reader.events(id, from, 2).unwrap(), events.iter().skip(seen.len() / 2).take(2).cloned().collect::<Vec<_>>());
    }
}

fn family(reader: &mut dyn Reader, parent: Option<&str>, say: &mut impl FnMut(String, String) -> Option<String>) {
    let children: Vec<Traced> = reader.children(parent.map(sid).as_ref(), None, 99).unwrap();
    say(format!("children {parent:?}"), format!("{children:#?}"));
    for verify in [false, true] {
        let described = reader.describe(&children, verify).unwrap();
        // Both ways to ask say the same.
        let members = reader.family(parent.map(sid).as_ref(), None, 99, verify).unwrap();
        let apart: Vec<_> = children.iter().cloned().zip(&described).collect();
        assert_eq!(format!("{members:?}"), format!("{apart:?}"), "the family of {parent:?}");
        // What is known without the logs is what they say.
        let rows = reader.rows(&children).unwrap();
        assert_eq!(
            format!("{:?}", reader.family_rows(parent.map(sid).as_ref(), None, 99).unwrap()),
            format!("{:?}", children.iter().zip(&rows).collect::<Vec<_>>())
        );
        for (row, described) in rows.into_iter().zip(&described) {
            match (row, described) {
                (Ok(Described { row: Some(row), has_children, holder }), Ok(described)) => {
                    assert_eq!(Description { verdict: row.verdict, head: row.head, has_children, holder }, *described);
                }
                (Ok(Described { row: None, has_children, .. }), Ok(described)) => assert_eq!(has_children, described.has_children),
                (Err(row), Err(described)) => assert_eq!(row.code(), described.code()),
                (row, described) => panic!("{row:?} where {described:?} is said"),
            }
        }
        let described: Vec<_> = described
            .into_iter()
            .map(|described| described.map(|d| (d.verdict, d.head, d.has_children, d.holder.is_some())).map_err(|error| error.code()))
            .collect();
        say(format!("described {parent:?} {verify}"), format!("{described:#?}"));
    }
}

/// Few cases, as each waits for the disk; the environment may ask for more.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 64 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn play(kind: Kind, moves: &[Move]) {
    let mut world = World::new(kind);
    for step in moves {
        match step {
            Move::Batch { second, intents } => world.batch(*second, intents),
            Move::Damage(damage) => world.damage(damage),
            Move::Reopen => world.reopen(),
            Move::Compare => world.compare(),
        }
    }
    world.compare();
    world.rebuild();
    world.compare();
}

/// A release adds no record, so only what is held tells that a derived row is older.
#[test]
fn a_row_from_before_a_release_is_known_as_old() {
    let batch = |intent| Move::Batch { second: false, intents: vec![intent] };
    for restored in [Damage::RestoreOne(2), Damage::RestoreAll] {
        play(
            Kind::Sqlite,
            &[
                batch(Intent::Root { session: 5, message: true, time: 0 }),
                batch(Intent::Import { session: 2, from: 5 }),
                Move::Damage(Damage::Remember),
                batch(Intent::Release { session: 2 }),
                Move::Damage(restored),
            ],
        );
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_sqlite_store_says_what_the_memory_store_says(moves in moves()) {
        play(Kind::Sqlite, &moves);
    }

    #[test]
    fn the_jsonl_store_says_what_the_memory_store_says(moves in moves()) {
        play(Kind::Jsonl, &moves);
    }
}
