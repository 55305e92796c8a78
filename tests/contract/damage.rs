//! Damaged and odd logs: what is said of each, by every reader and after a write, and that its siblings are unhurt.

mod mended;
mod world;

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    thread,
};

use greenroom::{
    Entry, Runtime, Turn, TurnEnd,
    actors::{catalog::read_listing, query::Page},
    session::{
        check::{Finding, Seen, Severity, check},
        event::Event,
        id::MessageId,
        listing::Reason,
        message::{InboxRecord, Message, Source},
        store::{Accept, Done, LoadError, Op, Reader, Store, jsonl, jsonl::JsonlStore, memory::MemoryStore, sqlite, sqlite::SqliteStore},
        transfer::import_folder,
    },
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::files::{Healthy, Make, ODD, ODDS, Odd, as_another, below, body_of, crc_of, data, healthy, id, lay, lines, made, stored};

use world::World;

/// What is said of a fixture in one kind of store: keys and values, in order.
#[derive(Default)]
struct Said(Vec<(&'static str, String)>);

impl Said {
    fn put(&mut self, key: &'static str, text: impl Into<String>) {
        self.0.push((key, quoted(&text.into())));
    }

    fn put_all(&mut self, key: &'static str, texts: impl IntoIterator<Item = String>) {
        let texts: Vec<String> = texts.into_iter().map(|text| quoted(&text)).collect();
        self.0.push((key, format!("[{}]", texts.join(", "))));
    }
}

/// A string of TOML; those of JSON are.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Looks at a fixture from every side and says what is said of it. What must be so of any odd log and is not goes into `wrong`.
async fn look(odd: &Odd, world: &World, wrong: &mut Vec<String>) -> Said {
    let mut said = Said::default();
    let mut must = |so: bool, what: &dyn Debug| wrong.extend((!so).then(|| format!("{} in {}: {what:?}", odd.name, world.url.split(':').next().unwrap())));
    let before = world.bytes();

    let load = world.load();
    said.put(
        "load",
        load.as_ref().map_or_else(|error| format!("{}: {error}", error.code()), |(events, messages)| format!("{events} events, {messages} messages")),
    );
    let listed = world.listed(false);
    let verified = world.listed(true);
    must(!world.is_folder() || verified == listed, &("no row is kept in a folder", &listed, &verified));
    for sibling in ["above", "below"] {
        must(listed.contains(&format!("{sibling} complete \"the {sibling} one\"")), &("a sibling is listed", &listed));
        must(world.reader().load(&id(sibling)).is_ok_and(|log| log.events.len() == 11), &"a sibling is read");
    }
    let own = |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with("above") && !line.starts_with("below"));
    let differs = verified != listed;
    said.put_all("list", own(listed));
    if differs {
        said.put_all("verify", own(verified));
    }
    let findings = world.findings();
    said.put_all("check", findings.iter().map(ToString::to_string));
    let healthy = |finding: &Finding| {
        let own = finding.spot.as_ref().is_none_or(|spot| spot.path != Path::new(ODD));
        own && finding.session.as_ref().is_some_and(|session| ["desk", "above", "below"].contains(&session.as_str()))
    };
    must(!findings.iter().any(healthy), &("nothing is found of healthy sessions", &findings));
    said.put("log", world.logged());
    must(world.bytes() == before, &"reading writes nothing");
    if load.as_ref().is_err_and(|error| error.code() == "SESSION_CORRUPT") {
        must(findings.iter().any(|finding| finding.class.severity() == Severity::Damage), &("damage is found", &findings));
    }

    if world.is_folder() {
        let (imported, troubles) = world.imported();
        must(imported >= 3, &"the siblings are imported");
        said.put_all("import", if troubles.is_empty() { vec![format!("{imported} sessions")] } else { troubles });
        // What is read of a file is all of it, or a word is said of the rest.
        if let (Ok((events, messages)), Some(bytes)) = (&load, before.get(ODD)) {
            let records = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
            let told = findings.iter().any(|finding| finding.spot.as_ref().is_some_and(|spot| spot.path == Path::new(ODD)));
            must(*events as u64 + messages + 1 == records || told, &"nothing is silently shortened");
        }
        if let Err(error @ (LoadError::Fold { .. } | LoadError::Corrupt { .. })) = &load {
            let place = error.to_string();
            must(["(byte ", " at header:", " at file:"].iter().any(|at| place.contains(at)), &("damage has a place", place));
        }
    }
    let (odd_end, sibling_end) = world.sent().await;
    must(sibling_end == "accepted, 4 turns, 0 messages wait", &("a sibling serves its messages", sibling_end));
    if let (true, Some(now), Some(then)) = (world.is_folder(), world.bytes().get(ODD), before.get(ODD)) {
        let kept = if load.is_ok() { whole_batches(then) } else { then.len() };
        must(now.get(..kept) == then.get(..kept), &"what was committed stays as it is");
        must(load.is_ok() || now == then, &"damage is not cut");
    }
    if let (true, Ok((events, messages))) = (odd_end.starts_with("accepted"), &load) {
        let now = world.load();
        must(now.as_ref().is_ok_and(|(events_now, messages_now)| events_now >= events && *messages_now > *messages), &("nothing is lost by an append", now));
    }
    said.put("send", odd_end);
    said
}

/// How many bytes of a file the batches take that have their end.
fn whole_batches(bytes: &[u8]) -> usize {
    let ends = lines(bytes).into_iter().scan(0, |at, line| {
        *at += line.len();
        let whole = line.ends_with(b"\"}\n") && std::str::from_utf8(&line).is_ok_and(|text| text.contains(",\"crc\":\""));
        Some((*at, whole && !body_of(&line).1 && is_sealed(&line)))
    });
    ends.filter(|(_, ends)| *ends).last().map_or(0, |(at, _)| at)
}

fn is_sealed(line: &[u8]) -> bool {
    line == crate::files::sealed("odd", body_of(line).0.as_bytes(), body_of(line).1)
}

/// Whether the fixtures and what is said of them are to be written.
fn writes() -> bool {
    std::env::var_os("GREENROOM_WRITE_FIXTURES").is_some()
}

/// The healthy folder as it lies there.
fn on_disk() -> &'static Healthy {
    static HEALTHY: OnceLock<Healthy> = OnceLock::new();
    HEALTHY.get_or_init(|| {
        if writes() {
            drop(fs::remove_dir_all(data()));
            let healthy = healthy();
            lay(&data().join("healthy"), &healthy);
            for odd in ODDS {
                match odd.make {
                    Make::Folder(..) => lay(&data().join(odd.name), made(odd, &healthy)),
                    _ => lay(&data(), [(format!("{}.jsonl", odd.name), &made(odd, &healthy)[ODD])]),
                }
            }
        }
        below(&data().join("healthy"))
    })
}

#[test]
fn the_fixtures_are_what_is_said_of_them() {
    let healthy = healthy();
    assert_eq!(*on_disk(), healthy);
    let mut names: Vec<String> = fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !["healthy", "expected.toml"].contains(&name.as_str()));
    assert_eq!(names.len(), ODDS.len(), "every file is listed");
    for odd in ODDS {
        assert_eq!(stored(odd), made(odd, &healthy), "{}", odd.name);
        assert!(odd.name == "whole" || stored(odd).get(ODD) != healthy.get(ODD) || stored(odd).len() > 1, "{} is odd", odd.name);
    }
}

/// What is said of one fixture in every kind of store, as a table of TOML, and what of it must not be.
fn table_of(odd: &Odd, healthy: &Healthy) -> (String, Vec<String>) {
    let (mut table, mut wrong) = (format!("\n[{}]\nwhat = {}\n", odd.name, quoted(odd.what)), Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let worlds = [("", Some(World::jsonl(healthy, stored(odd)))), ("sqlite.", World::sqlite(odd, healthy))];
    for (prefix, world) in worlds {
        let Some(world) = world else { continue };
        let mut said = runtime.block_on(look(odd, &world, &mut wrong));
        // What the sends have left is another story.
        let world = if world.is_folder() { Some(World::jsonl(healthy, stored(odd))) } else { World::sqlite(odd, healthy) };
        if let Some(world) = world {
            runtime.block_on(mended::mended(odd, &world, &mut said, &mut wrong));
        }
        said.0.iter().for_each(|(key, value)| writeln!(table, "{prefix}{key} = {value}").unwrap());
    }
    (table, wrong)
}

#[test]
fn of_every_odd_log_everybody_says_what_the_table_says() {
    // They wait for the disk for the most part.
    const THREADS: usize = 8;
    let healthy = on_disk();
    let (mut table, mut wrong) = (String::from(HEAD), Vec::new());
    for some in ODDS.chunks(THREADS) {
        let said: Vec<_> = thread::scope(|scope| {
            let looks: Vec<_> = some.iter().map(|odd| scope.spawn(|| table_of(odd, healthy))).collect();
            looks.into_iter().map(|look| look.join().unwrap()).collect()
        });
        for (text, faults) in said {
            table.push_str(&text);
            wrong.extend(faults);
        }
    }
    let path = data().join("expected.toml");
    if writes() {
        fs::write(&path, &table).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let wrong: Vec<_> = table.lines().zip(expected.lines()).filter(|(now, then)| now != then).collect();
    assert!(wrong.is_empty() && table.lines().count() == expected.lines().count(), "{wrong:#?}");
}

/// The events and the messages that a folder's `odd` has.
fn read(dir: &Path) -> (Vec<Event>, Vec<InboxRecord>) {
    let mut reader = jsonl::open_reader(dir).unwrap();
    (reader.load(&id("odd")).unwrap().events, reader.inbox(&id("odd"), 99).unwrap())
}

#[test]
fn an_end_that_is_cut_off_anywhere_costs_what_was_cut_off_and_an_append_joins_nothing_to_it() {
    let healthy = on_disk();
    let text = lines(&healthy[ODD]);
    // The last message, at every byte, and the batch of five events that ends the turn.
    for (kept, batch, step) in [(14, 1, 1), (7, 5, 9)] {
        let (before, whole) = (text[..kept].concat(), text[..kept + batch].concat());
        let world = World::jsonl(healthy, [(ODD.to_owned(), before.clone())].into());
        let (path, file) = (world.path(), world.path().join(ODD));
        let committed = read(&path);
        for cut in (before.len()..whole.len()).step_by(step) {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(read(&path), committed, "cut at {cut}");
            let store = JsonlStore::open(&path).unwrap();
            let message = Message::turn("m9", "Go on.", Source::User, 2_000).unwrap();
            let accepted = store.commit(&[Op::Accept(Accept::new(id("odd"), message.clone()))]).unwrap();
            let order = committed.1.last().map_or(1, |record| record.order + 1);
            assert_eq!(accepted, [Ok(Done::Accepted { order, duplicate: false })], "cut at {cut}");
            drop(store);
            let (events, mut messages) = read(&path);
            assert_eq!((messages.pop().unwrap().message, &messages, &events), (Arc::new(message), &committed.1, &committed.0), "cut at {cut}");
            let now = lines(&fs::read(&file).unwrap());
            assert_eq!((now.len(), now[..kept].concat()), (kept + 1, before.clone()), "cut at {cut}");
            let aside = file.with_extension(format!("jsonl.torn-{}", before.len()));
            assert_eq!(fs::read(&aside).ok(), (cut > before.len()).then(|| whole[before.len()..cut].to_vec()), "cut at {cut}");
            drop(fs::remove_file(aside));
        }
    }
}

#[tokio::test]
async fn one_odd_child_among_fifty_is_one_diagnostic_in_its_place() {
    let healthy = on_disk();
    let siblings: Vec<_> = (0..50).map(|n| format!("sibling-{n:02}")).map(|name| (format!("desk/{name}.jsonl"), as_another(healthy, &name, "desk"))).collect();
    let mut diagnostics = 0;
    for odd in ODDS.iter().filter(|odd| !matches!(odd.make, Make::Folder(..))) {
        let mut files = stored(odd);
        files.extend(siblings.iter().cloned());
        let world = World::jsonl(healthy, files);
        let runtime = Runtime::builder().open(&world.url).await.unwrap();
        let entries = runtime.list(Some(&id("desk"))).await.unwrap().entries;
        runtime.shutdown().await;
        let (odds, others): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| *entry.id() == id("odd"));
        let names: Vec<&str> = others.iter().map(|entry| entry.id().as_str()).collect();
        let expected: Vec<String> = (0..50).map(|n| format!("sibling-{n:02}")).collect();
        assert!(others.iter().all(|entry| matches!(entry, Entry::Child(_))), "{}: {others:?}", odd.name);
        assert_eq!(names[0], "above", "{}", odd.name);
        assert_eq!(names[1..51], expected, "{}", odd.name);
        assert_eq!(names[51], "below", "{}", odd.name);
        assert!(odds.len() <= 1, "{}: {odds:?}", odd.name);
        diagnostics += usize::from(matches!(odds[..], [Entry::Diagnostic { .. }]));
    }
    assert!(diagnostics > 30, "{diagnostics}");
}

/// What one verb of the program prints.
fn printed(world: &World, words: &[&str]) -> String {
    let said = Command::new(env!("CARGO_BIN_EXE_greenroom")).args(words).args(["--store", &world.url]).output().unwrap();
    assert!(said.status.success(), "{words:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap() + &String::from_utf8(said.stderr).unwrap()
}

#[test]
fn an_old_label_that_could_mislead_is_shown_and_obeyed_by_no_terminal() {
    let healthy = on_disk();
    for odd in ODDS.iter().filter(|odd| odd.name.contains("label") && matches!(odd.make, Make::Event(..))) {
        let world = World::jsonl(healthy, stored(odd));
        if world.load().is_err() {
            continue;
        }
        for words in [&["list", "desk"][..], &["list", "--all"], &["tree", "desk"], &["show", "odd"], &["log", "odd"], &["log", "desk"], &["check"]] {
            let text = printed(&world, words);
            let misleading =
                |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            assert!(!text.contains(misleading), "{} in {words:?}: {text:?}", odd.name);
        }
    }
}

const HEAD: &str = "\
# What is said of each file of this folder when it lies in the place of `odd` in `healthy`, in a store of JSON Lines and, where such a thing can come about
# there, in SQLite: by a load, a listing of its parent, a check, `greenroom log`, an import of the folder, a message that is sent to it, and a repair.
# `GREENROOM_WRITE_FIXTURES=1 cargo test --test contract damage` writes it; then read what has changed.
";
