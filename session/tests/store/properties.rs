//! Properties of any history: each sender's order is kept, a log that is cut anywhere is one of an earlier moment, and an export is all there is.

use std::{fs, path::Path, sync::Arc};

use greenroom_session::{
    check::{Class, Seen, check},
    event::{Body, TurnEnd},
    message::{InboxRecord, Message, Source},
    store::{ClaimKind, Done, Fence, Reader, jsonl, jsonl::JsonlStore, sqlite, sqlite::SqliteStore},
    transfer::{export_folder, import_folder},
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::{Fixture, accept, append, child, heard, mid, sid};

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// A sender sends its next message to a session.
    Send { sender: u8, to: u8 },
    /// A session serves the message that is next.
    Serve(u8),
    /// A session says something in a turn.
    Say(u8),
    /// A message that waits is taken back.
    Withdraw(u8),
}

const SESSIONS: [&str; 3] = ["r", "c", "odd ../id"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0..3u8;
    let step = prop_oneof![
        5 => (0..4u8, session.clone()).prop_map(|(sender, to)| Step::Send { sender, to }),
        3 => session.clone().prop_map(Step::Serve),
        2 => session.clone().prop_map(Step::Say),
        1 => session.prop_map(Step::Withdraw),
    ];
    prop::collection::vec(step, 1..40)
}

/// Sessions that are played by hand.
struct Played<'a> {
    f: &'a Fixture,
    /// Who writes to each, and the turn that is open.
    fences: Vec<(Fence, Option<u64>)>,
    sent: [u32; 4],
    /// Every message that was accepted, as it waits.
    accepted: Vec<String>,
    served: Vec<Vec<String>>,
}

impl<'a> Played<'a> {
    fn new(f: &'a Fixture) -> Self {
        f.root(SESSIONS[0]);
        for id in &SESSIONS[1..] {
            f.create(child(id, SESSIONS[0], None, 1_000));
        }
        let fences = SESSIONS.iter().map(|id| (f.open(id, None).0, None)).collect();
        Self { f, fences, sent: [0; 4], accepted: Vec::new(), served: vec![Vec::new(); SESSIONS.len()] }
    }

    fn play_all(&mut self, steps: &[Step]) {
        for step in steps {
            self.play(step);
        }
    }

    fn end(&mut self, session: usize) {
        if let (fence, Some(turn)) = self.fences[session].clone() {
            self.f.end_turn(&fence, turn, TurnEnd::Completed);
            self.fences[session].1 = None;
        }
    }

    fn play(&mut self, step: &Step) {
        let f = self.f;
        match *step {
            Step::Send { sender, to } => {
                let number = &mut self.sent[usize::from(sender)];
                *number += 1;
                let (id, text) = (format!("{sender}-{number}"), format!("text {number} \u{1f600}\n\"quoted\""));
                let message = Message::turn(id.as_str(), text, Source::User, 5).unwrap();
                if let Done::Accepted { order, .. } = f.accept(SESSIONS[usize::from(to)], message.clone()).unwrap() {
                    self.accepted.push(format!("{:?}", InboxRecord { order, held: false, message: Arc::new(message) }));
                }
            }
            Step::Serve(session) => {
                let session = usize::from(session);
                self.end(session);
                let fence = self.fences[session].0.clone();
                if let Some(claimed) = f.claim(&fence, ClaimKind::Turn) {
                    self.fences[session].1 = Some(f.load(SESSIONS[session]).fold.head().turns);
                    self.served[session].extend(heard(&claimed));
                }
            }
            Step::Say(session) => {
                let session = usize::from(session);
                if let (fence, Some(turn)) = &self.fences[session] {
                    let message = f.load(SESSIONS[session]).fold.head().open.as_ref().unwrap().message.clone();
                    let memo = Body::Memo { turn: *turn, message, key: None, text: "noted".into() };
                    f.one(append(fence, vec![memo.at(f.next_seq(SESSIONS[session]), 5)], vec![])).unwrap();
                }
            }
            Step::Withdraw(session) => {
                let session = usize::from(session);
                let id = SESSIONS[session];
                if let Some(record) = f.reader().inbox(&sid(id), 10).unwrap().pop() {
                    let body = Body::MessageWithdrawn { message: record.message.id.clone(), by: "user".into() };
                    f.one(append(&self.fences[session].0, vec![body.at(f.next_seq(id), 5)], vec![record.order])).unwrap();
                }
            }
        }
    }
}

/// The lines of every session, as they are exported.
fn content(reader: &mut dyn Reader) -> Vec<Vec<String>> {
    SESSIONS.iter().map(|id| crate::transfer::lines(reader, id)).collect()
}

fn each_senders_order_is_kept(f: &Fixture, steps: &[Step]) {
    let mut played = Played::new(f);
    played.play_all(steps);
    // Whatever waits is served now.
    for (session, id) in (0..).zip(SESSIONS) {
        while !f.reader().inbox(&sid(id), 1).unwrap().is_empty() {
            played.play(&Step::Serve(session));
        }
    }
    for served in &played.served {
        for sender in 0..4 {
            let numbers: Vec<u32> = served.iter().filter_map(|id| id.strip_prefix(&format!("{sender}-"))?.parse().ok()).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "sender {sender}: {numbers:?}");
        }
    }
}

/// Exports one store and imports that into another.
fn comes_back_as_it_went(f: &Fixture, other: &Fixture, steps: &[Step]) {
    let mut played = Played::new(f);
    played.play_all(steps);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out");
    export_folder(&mut *f.reader(), &SESSIONS.map(sid), &to, &mut |_| {}).unwrap();
    let report = import_folder(&*other.store, &to, true, &mut |_| {}).unwrap();
    assert_eq!((report.imported, report.troubles.len()), (3, 0), "{:?}", report.troubles);
    assert_eq!(content(&mut *other.reader()), content(&mut *f.reader()));
}

/// The records of a session as its file has them, in order: the lines of an export without who has left.
fn records(dir: &Path, id: &str) -> Vec<String> {
    let mut reader = jsonl::open_reader(dir).unwrap();
    let mut records: Vec<String> = reader.load(&sid(id)).unwrap().events.iter().map(|event| format!("{event:?}")).collect();
    // In the order of acceptance, whether they wait still or not, and what each said if it waits.
    let waiting = reader.inbox(&sid(id), 1_000).unwrap();
    records.extend(waiting.iter().map(|record| format!("{record:?}")));
    records
}

/// Tells whether what a cut file says was said by the whole one: each of its records is one of the whole file's, but for messages that have left since.
fn is_earlier(cut: &[String], whole: &[String], all: &[String]) -> bool {
    cut.iter().all(|record| whole.contains(record) || all.contains(record))
}

fn any_cut_of_a_file_is_an_earlier_moment(steps: &[Step], at: f64) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let f = Fixture { store: Box::new(JsonlStore::open(&dir).unwrap()), folder: None };
    let mut played = Played::new(&f);
    played.play_all(steps);
    for (session, id) in SESSIONS.iter().enumerate() {
        played.end(session);
        f.store.close().unwrap();
        let whole = records(&dir, id);
        let path = dir.join(greenroom_session::place::path_of((session > 0).then(|| sid("r")).as_ref(), &sid(id)));
        let bytes = fs::read(&path).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place within a file")]
        let length = (bytes.len() as f64 * at) as usize;
        fs::write(&path, &bytes[..length]).unwrap();
        match jsonl::open_reader(&dir).unwrap().load(&sid(id)) {
            Ok(cut) => {
                assert!(is_earlier(&records(&dir, id), &whole, &played.accepted), "cut at {length} of {}", bytes.len());
                // What is written now stands behind what is there, and joins nothing.
                f.one(accept(id, Message::turn("late", "text", Source::User, 5).unwrap())).unwrap();
                let now = f.load(id);
                assert!(now.events == cut.events && now.fold.head().next_order == cut.fold.head().next_order + 1);
                assert!(f.reader().message(&sid(id), &mid("late")).unwrap().is_some());
            }
            // Not even its creation is whole.
            Err(_) => assert!(bytes[..length].split(|byte| *byte == b'\n').count() <= 3, "cut at {length}"),
        }
        f.store.close().unwrap();
        fs::write(&path, &bytes).unwrap();
    }
}

/// A database whose last commits are in its write-ahead log, with what was true after each.
fn logged(steps: &[Step]) -> (TempDir, Vec<Vec<Vec<String>>>) {
    let folder = tempfile::tempdir().unwrap();
    let f = Fixture { store: Box::new(SqliteStore::open(folder.path().join("store.db")).unwrap()), folder: None };
    let mut played = Played::new(&f);
    let mut moments = vec![content(&mut *f.reader())];
    for step in steps {
        // A step that ends a turn and begins the next is two commits.
        if let Step::Serve(session) = step {
            played.end(usize::from(*session));
            moments.push(content(&mut *f.reader()));
        }
        played.play(step);
        moments.push(content(&mut *f.reader()));
    }
    let copy = tempfile::tempdir().unwrap();
    for name in ["store.db", "store.db-wal"] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    (copy, moments)
}

fn is_whole(path: &Path) -> bool {
    let mut whole = true;
    check(&mut sqlite::open_reader(path).unwrap(), None, &mut |seen| {
        if let Seen::Finding(finding) = seen {
            // Nobody holds what the copy says is held.
            whole &= matches!(finding.class, Class::LeaseOfNobody) || !finding.class.severity().is_fault();
        }
    })
    .unwrap();
    whole
}

/// Cuts the write-ahead log at every so-manieth byte of its end.
fn a_cut_log_is_an_earlier_moment(steps: &[Step], stride: usize) {
    let (folder, moments) = logged(steps);
    let path = folder.path().join("store.db");
    let (db, wal) = (fs::read(&path).unwrap(), fs::read(folder.path().join("store.db-wal")).unwrap());
    let mut latest = 0;
    for length in (0..=wal.len()).step_by(stride) {
        let cut = tempfile::tempdir().unwrap();
        let path = cut.path().join("store.db");
        fs::write(&path, &db).unwrap();
        fs::write(cut.path().join("store.db-wal"), &wal[..length]).unwrap();
        // Before the sessions there is nothing to compare.
        let Ok(mut reader) = sqlite::open_reader(&path) else { continue };
        if SESSIONS.iter().any(|id| reader.header(&sid(id)).map_or(true, |header| header.is_none())) {
            continue;
        }
        let all = content(&mut reader);
        // Epochs begin one after the other, before the first moment that is kept.
        if let Some(moment) = moments.iter().rposition(|moment| *moment == all) {
            assert!(moment >= latest, "cut at {length}: moment {moment} after {latest}");
            latest = moment;
        } else {
            assert_eq!(latest, 0, "cut at {length}: no moment that ever was");
        }
        assert!(is_whole(&path), "cut at {length}");
    }
    let mut reader = sqlite::open_reader(&path).unwrap();
    assert_eq!(content(&mut reader), *moments.last().unwrap());
}

fn config(cases: u32) -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn any_interleaving_keeps_each_senders_order(steps in steps()) {
        for f in [Fixture::memory(), Fixture::sqlite(), Fixture::jsonl()] {
            each_senders_order_is_kept(&f, &steps);
        }
    }

    #[test]
    fn an_export_that_is_imported_is_all_there_was(steps in steps()) {
        for (f, other) in [(Fixture::sqlite(), Fixture::jsonl()), (Fixture::jsonl(), Fixture::memory()), (Fixture::memory(), Fixture::sqlite())] {
            comes_back_as_it_went(&f, &other, &steps);
        }
    }

    #[test]
    fn any_cut_of_a_file_loads_to_an_earlier_moment(steps in steps(), at in 0.0..=1.0f64) {
        any_cut_of_a_file_is_an_earlier_moment(&steps, at);
    }
}

proptest! {
    #![proptest_config(config(3))]

    #[test]
    fn any_cut_of_a_write_ahead_log_loads_to_an_earlier_moment(steps in steps(), odd in 0..500usize) {
        let stride = std::env::var("GREENROOM_STRIDE").map_or(1_501 + 2 * odd, |text| text.parse().unwrap());
        a_cut_log_is_an_earlier_moment(&steps, stride);
    }
}
