//! Sessions out of a SQLite store into files, and back into another one.
//!
//! The floor is a copy of the same files by a program that understands JSON and nothing else: each line is parsed into a value and written out again, and each file is
//! synced.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use greenroom_session::{
    event::{Body, EpochEnd, Event, Role, RootOpened, SurfaceMessage, TurnEnd},
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Block, InboxRecord, Message, Source, Tombstone},
    store::{Import, InboxLine, Op, Store, sqlite::SqliteStore},
    transfer::{everything, export_folder, import_folder},
};

use crate::{
    measure::{Outcome, Spent, Stopwatch, to_f64},
    table::{Row, Target},
};

const RUNS: usize = 3;
/// Text of an event, so that its record has about 500 bytes.
const TEXT: usize = 310;

/// What export and import cost: many sessions of ordinary length, and one that is long.
pub(crate) fn transfer(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let events = (100_000.0 * scale) as usize;
    let mut rows = measured(100, events / 100)?;
    rows.extend(measured(1, events)?);
    Ok(rows)
}

fn measured(sessions: usize, events: usize) -> Outcome<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let store = SqliteStore::open(at("from.db"))?;
    for session in 0..sessions {
        let import = Op::Import(session_of(session, events)?);
        store.commit(&[import])?.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    let mut reader = store.reader()?;
    let ids = everything(&mut *reader)?;
    let (mut copies, mut exports, mut imports) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for run in 0..RUNS {
        let out = at(&format!("out-{run}"));
        let watch = Stopwatch::start();
        let report = export_folder(&mut *reader, &ids, &out, &mut |progress| bytes = progress.bytes)?;
        exports.push(watch.stop());
        assert_eq!(report.written, sessions as u64, "{report:?}");

        let watch = Stopwatch::start();
        copy(&out.join("_root"), &at(&format!("copy-{run}")))?;
        copies.push(watch.stop());

        let other = SqliteStore::open(at(&format!("to-{run}.db")))?;
        let watch = Stopwatch::start();
        let report = import_folder(&other, &out, false, &mut |_| ())?;
        imports.push(watch.stop());
        assert_eq!(report.imported, sessions as u64, "{report:?}");
    }
    let floor = Spent::middle(&copies);
    let row = |what: &str, ours: Spent| Row {
        what: format!("SQLite, {what} {sessions} x {events} events"),
        ours: rate(events * sessions, ours),
        floor: rate(events * sessions, floor),
        ratio: floor.wall.as_secs_f64() / ours.wall.as_secs_f64(),
        target: Target::AtLeast(0.3),
        note: format!("floor: lines parsed, written, synced; {} MB; on a processor {:.2}", bytes / 1_000_000, floor.cpu.as_secs_f64() / ours.cpu.as_secs_f64()),
    };
    Ok(vec![row("export", Spent::middle(&exports)), row("import", Spent::middle(&imports))])
}

fn rate(events: usize, spent: Spent) -> String {
    format!("{:.0} k events/s", to_f64(events) / spent.wall.as_secs_f64() / 1e3)
}

/// Copies files as the floor does.
fn copy(from: &Path, to: &Path) -> Outcome {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let file = File::create(to.join(entry.file_name()))?;
        let mut out = BufWriter::with_capacity(1 << 18, &file);
        for line in BufReader::with_capacity(1 << 16, File::open(entry.path())?).lines() {
            let value: serde_json::Value = serde_json::from_str(&line?)?;
            serde_json::to_writer(&mut out, &value)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
    }
    File::open(to)?.sync_all()?;
    Ok(())
}

/// A root that has said much in one turn.
fn session_of(number: usize, events: usize) -> Outcome<Import> {
    let id = SessionId::new(format!("session-{number}"))?;
    let message = Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?);
    let opened = RootOpened { label: "long".into(), agent: "editor".into(), program_sha256: None, vars: [].into(), seed: None, params: None, model: None };
    let mut bodies = vec![
        Body::RootOpened(opened),
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 1, message: message.id.clone(), attempt: 1 },
        Body::user_message(&message),
    ];
    while bodies.len() + 2 < events {
        let said = SurfaceMessage {
            id: MessageId::new(format!("a{}", bodies.len()))?,
            role: Role::Assistant,
            content: vec![Block::text("what an agent says. ".repeat(TEXT / 20))],
            source: Source::Agent { name: "editor".into() },
        };
        bodies.push(Body::AssistantMessage { turn: 1, step: 0, message: said, usage: None, stop: None });
    }
    bodies.push(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed });
    bodies.push(Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled });
    let events: Vec<Event> = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_764_512_345_678)).collect();
    let taken = InboxLine::Taken(Tombstone::of(&InboxRecord { order: 0, held: false, message }));
    Ok(Import::new(Arc::new(NewSession::root(id).at(1_764_512_345_678)), events.into(), [taken].into())?)
}
