//! The store of JSON Lines: acceptance by many sessions at once, and listing.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use greenroom::actors::{catalog, query::Page};
use greenroom_session::{
    id::{MessageId, SessionId},
    line::{Line, write_line},
    message::{InboxRecord, Message, Source},
    store::{
        Reader, Store,
        jsonl::{JsonlStore, open_reader},
    },
};

use crate::{
    accept::{TEXT, closed_loop, held_children},
    listing::{Corpus, FAMILY},
    measure::{Outcome, median, quantile, to_f64, two_workers},
    table::{Row, Target},
};

const SESSIONS: usize = 16;
const ROUNDS: usize = 7;

/// What accepting and listing cost.
pub(crate) fn jsonl(scale: f64) -> Outcome<Vec<Row>> {
    let mut rows = acceptance(scale)?;
    rows.extend(listing(scale)?);
    Ok(rows)
}

/// Acceptance from sixteen senders to a session each, beside a loop that appends a line to one of as many files after the other and syncs it, and beside as many
/// threads that each do so with a file of their own.
fn acceptance(scale: f64) -> Outcome<Vec<Row>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let time = Duration::from_secs_f64(1.0 * scale);
    let workers = two_workers()?;
    let store = Arc::new(JsonlStore::open(folder.path().join("ours"))?);
    let (runtime, root, children) = workers.block_on(held_children(store, SESSIONS))?;
    let mut rates = Vec::new();
    let mut latencies = Vec::new();
    for round in 0..=ROUNDS {
        let (spent, took) = workers.block_on(closed_loop(&root, &children, time))?;
        let ours = to_f64(took.len()) / spent.wall.as_secs_f64();
        let (floor, threads) = (bare_appends(folder.path(), 1, time)?, bare_appends(folder.path(), SESSIONS, time)?);
        // The first round warms up.
        if round > 0 {
            rates.push((ours, floor, threads));
            latencies.extend(took);
        }
    }
    workers.block_on(async {
        drop(root);
        runtime.shutdown().await;
    });
    let ours = median(rates.iter().map(|(ours, ..)| *ours));
    let row =
        |what: String, floor: f64, ratio: f64, target, note| Row { what, ours: format!("{ours:.0}/s"), floor: format!("{floor:.0}/s"), ratio, target, note };
    Ok(vec![
        row(
            format!("JSON Lines, {SESSIONS} senders to a session each: accepted"),
            median(rates.iter().map(|(_, floor, _)| *floor)),
            median(rates.iter().map(|(ours, floor, _)| ours / floor)),
            Target::AtLeast(0.7),
            format!(
                "floor: a loop that appends and syncs, file after file; p50 {:.1} ms, p99 {:.1} ms",
                median(latencies.clone()) / 1e3,
                quantile(latencies, 0.99) / 1e3
            ),
        ),
        row(
            "the same, beside as many threads".into(),
            median(rates.iter().map(|(.., threads)| *threads)),
            median(rates.iter().map(|(ours, _, threads)| ours / threads)),
            Target::Other("no hop between threads", true),
            format!("floor: {SESSIONS} threads with a file each"),
        ),
    ])
}

/// Appends lines of a message's length to sixteen files, shared out to some threads, each line synced before the thread's next, for a while. Returns how many came
/// to the disk in a second.
fn bare_appends(folder: &Path, threads: usize, time: Duration) -> Outcome<f64> {
    let id = SessionId::from_uuid(uuid::Uuid::new_v4());
    let message = Message::turn(MessageId::from_uuid(uuid::Uuid::new_v4()), TEXT, Source::Coordinator { session: id.clone() }, 1_764_512_345_678)?;
    let mut line = write_line(&id, &Line::Message(InboxRecord { order: 1_000, held: false, message: Arc::new(message) }))?;
    line.push(b'\n');
    let begun = Instant::now();
    let threads: Vec<_> = (0..threads)
        .map(|first| {
            let (folder, line) = (folder.to_owned(), line.clone());
            thread::spawn(move || {
                let open = |number| OpenOptions::new().append(true).create(true).open(folder.join(format!("bare-{number}")));
                let mut files: Vec<File> = (first..SESSIONS).step_by(threads).map(open).collect::<Result<_, _>>()?;
                let mut count = 0_usize;
                while begun.elapsed() < time {
                    for file in &mut files {
                        file.write_all(&line)?;
                        file.sync_data()?;
                        count += 1;
                    }
                }
                Outcome::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for thread in threads {
        count += thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(to_f64(count) / begun.elapsed().as_secs_f64())
}

/// Listing by the process that writes, which has the family in its memory, and by another one that sees the folder for the first time.
fn listing(scale: f64) -> Outcome<Vec<Row>> {
    const CALLS: usize = 200;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let sessions = (1_200.0 * scale).max(200.0) as usize;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = folder.path().join("store");
    let store = JsonlStore::open(&path)?;
    let parent = Corpus { sessions, events: 100 }.build(&store)?;
    let files = path.join(greenroom_session::place::folder_of(Some(&parent)));
    let mut reader = store.reader()?;
    let (mut warm, mut cold, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CALLS {
        warm.push(timed(|| list(&mut *reader, &parent))?);
        floor.push(timed(|| look(&files))?);
    }
    for _ in 0..10 {
        cold.push(timed(|| list(&mut open_reader(&path)?, &parent))?);
    }
    let (warm, cold, floor) = (median(warm), median(cold), median(floor));
    Ok(vec![
        Row {
            what: format!("JSON Lines, list {FAMILY} children again among {sessions} sessions of 100 events"),
            ours: format!("{warm:.0} us"),
            floor: format!("{floor:.0} us"),
            ratio: warm / floor,
            target: Target::AtMost(5.0),
            note: "floor: the folder's names, and a look at each file".into(),
        },
        Row {
            what: "the same, another process for the first time".into(),
            ours: format!("{:.1} ms", cold / 1e3),
            floor: format!("{floor:.0} us"),
            ratio: cold / floor,
            target: Target::Other("every file is read", true),
            note: String::new(),
        },
    ])
}

fn timed(what: impl FnOnce() -> Outcome<usize>) -> Outcome<f64> {
    let begun = Instant::now();
    let found = what()?;
    let took = begun.elapsed().as_secs_f64() * 1e6;
    if found == FAMILY { Ok(took) } else { Err(format!("{found} children where {FAMILY} are expected").into()) }
}

fn list(reader: &mut dyn Reader, parent: &SessionId) -> Outcome<usize> {
    let listing = catalog::read_children(reader, Some(parent), &Page::default(), false)?;
    Ok(listing.entries.iter().filter(|entry| entry.listed().is_some()).count())
}

fn look(folder: &Path) -> Outcome<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        count += usize::from(std::fs::metadata(entry?.path())?.is_file());
    }
    Ok(count)
}
