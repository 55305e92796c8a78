//! The fixtures of damaged and odd logs: what each is, how it is made of a whole one, and that the files are what is said of them here.
//!
//! `tests/data/odd/healthy` is a folder of JSON Lines with a root `desk` and its children `above`, `odd` and `below`. Every other file there takes the place of
//! `odd`'s in it; every other folder is laid over it instead of `odd`. What the program says of each stands in `expected.toml`, which `damage` compares.

mod odds;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::author::crc32c;
use greenroom::session::{
    codec::{event_crc, message_crc},
    descriptor::Descriptor,
    event::{Body, EpochEnd, Event, Role, SurfaceMessage, TurnEnd},
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Block, Message, Source},
    recover::begin_epoch,
    store::{Accept, Append, Close, Create, Done, Fence, Op, Open, Store, jsonl::JsonlStore},
};

pub(crate) use odds::ODDS;

/// A file, line by line, each with its line feed if it has one.
pub(crate) type Lines = Vec<Vec<u8>>;

/// How a whole session becomes an odd one.
pub(crate) enum Make {
    /// The text of an event, under a checksum that fits it.
    Event(u64, fn(&str) -> String),
    /// The text of a waiting message, under a checksum that fits it.
    Message(fn(&str) -> String),
    /// The text of the header, under a checksum that fits it.
    Header(fn(&str) -> String),
    /// The lines of the file, and the same in SQLite if it can come about there; `{sid}` is the number of the session.
    Lines(fn(&mut Lines), Option<&'static str>),
    /// Files that are laid over the healthy folder, which has no other `odd`.
    Folder(fn(&Healthy) -> BTreeMap<&'static str, Vec<u8>>, Option<&'static str>),
}

/// A fixture: its name, what it is, and how it comes about.
pub(crate) struct Odd {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) make: Make,
}

/// The healthy folder, file by file.
pub(crate) type Healthy = BTreeMap<String, Vec<u8>>;

/// Where `odd` lies.
pub(crate) const ODD: &str = "desk/odd.jsonl";

pub(crate) fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/odd")
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

pub(crate) fn lines(bytes: &[u8]) -> Lines {
    bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Every file below a folder, by its path within.
pub(crate) fn below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            match fs::read(&path) {
                Ok(bytes) => drop(found.insert(name, bytes)),
                // Whoever has just closed the store takes its own files away.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}"),
            }
        }
    }
    found
}

/// Writes files into a folder.
pub(crate) fn lay(folder: &Path, files: impl IntoIterator<Item = (impl AsRef<Path>, impl AsRef<[u8]>)>) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The text of a record without its checksum, and whether its batch goes on.
pub(crate) fn body_of(line: &[u8]) -> (String, bool) {
    let text = std::str::from_utf8(line).unwrap();
    let body = text.rsplit_once(",\"crc\":\"").unwrap().0;
    (format!("{}}}", body.trim_end_matches(",\"more\":true")), body.ends_with(",\"more\":true"))
}

/// The checksum that fits the text of a record.
pub(crate) fn crc_of(session: &str, body: &[u8]) -> u32 {
    if body.starts_with(b"{\"version\":") {
        return crc32c(&[b"h\0", body].concat());
    }
    match body.strip_prefix(b"{\"order\":") {
        Some(rest) => {
            let end = rest.iter().position(|&byte| byte == b',').unwrap();
            let order = std::str::from_utf8(&rest[..end]).unwrap().parse().unwrap();
            message_crc(&id(session), order, false, &[b"{", &rest[end + 1..]].concat())
        }
        None => event_crc(&id(session), body),
    }
}

/// A line of a session with the checksum that fits it.
pub(crate) fn sealed(session: &str, body: &[u8], more: bool) -> Vec<u8> {
    let body = if more { [&body[..body.len() - 1], b",\"more\":true}"].concat() } else { body.to_vec() };
    let crc = crc_of(session, &body);
    [&body[..body.len() - 1], format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes()].concat()
}

/// Changes the text of a line of `odd` and seals it again.
fn rewrite(line: &mut Vec<u8>, change: impl Fn(&str) -> String) {
    let (body, more) = body_of(line);
    *line = sealed("odd", change(&body).as_bytes(), more);
}

/// Ends a batch with this line.
fn end_batch(line: &mut Vec<u8>) {
    *line = sealed("odd", body_of(line).0.as_bytes(), false);
}

/// Puts a byte between a record and its line feed.
fn before_the_end(line: &mut Vec<u8>, byte: u8) {
    line.insert(line.len() - 1, byte);
}

/// A record with one more key at its end.
fn with_key(body: &str, key: &str) -> String {
    format!("{},{key}}}", &body[..body.len() - 1])
}

/// Lines of `odd`, counted from 0: the header, its seed, m0, the epoch and the turn, what the turn did and its end, the epoch's end, m1 and m2, which wait.
const FIRST_MESSAGE: usize = 3;
const TURN: usize = 5;
const MEMO: usize = 8;
const LAST: usize = 14;

fn commit(store: &dyn Store, op: Op) -> Done {
    store.commit(&[op]).unwrap().remove(0).unwrap()
}

fn create(store: &dyn Store, name: &str, time: u64) {
    let descriptor = Descriptor::continuable("spawn", format!("the {name} one"), "reporter");
    let message = Message::turn("m0", "Begin.", Source::Host, time).unwrap();
    commit(store, Op::Create(Create::child(NewSession::child(id(name), id("desk"), 0), vec![], &descriptor, Some(message.into()), time).unwrap()));
}

/// The folder that everything is made of.
pub(crate) fn healthy() -> Healthy {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let mut desk = Create::root(NewSession::root(id("desk")), "editor", "a desk");
    desk.time = 1_000;
    commit(&store, Op::Create(desk));
    for (name, time) in [("above", 1_100), ("odd", 1_200), ("below", 1_300)] {
        create(&store, name, time);
        let log = store.reader().unwrap().load(&id(name)).unwrap();
        let (epoch, events) = begin_epoch(&log.fold, time + 1, 3);
        commit(&store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(time + 1) }));
        let fence = Fence { session: id(name), epoch };
        let m0 = MessageId::new("m0").unwrap();
        let said = SurfaceMessage {
            id: MessageId::new("a0").unwrap(),
            role: Role::Assistant,
            content: vec![Block::text("three facts")],
            source: Source::Agent { name: "reporter".into() },
        };
        let did = [
            Body::StepStart { turn: 1, step: 1 },
            Body::Memo { turn: 1, message: m0, key: None, text: "looked at two files".into() },
            Body::AssistantMessage { turn: 1, step: 1, message: said, usage: None, stop: None },
            Body::StepEnd { turn: 1, step: 1, cut: None },
            Body::TurnEnd { turn: 1, reason: TurnEnd::Completed },
        ];
        let events: Vec<Event> = did.into_iter().zip(5..).map(|(body, seq)| body.at(seq, time + 2)).collect();
        commit(&store, Op::Append(Append { fence: fence.clone(), events: events.into(), take: vec![] }));
        let end = Body::ActivationEnd { epoch, reason: EpochEnd::Settled }.at(10, time + 3);
        commit(&store, Op::Close(Close { fence, events: [end].into(), unless_pending: false }));
        for message in ["m1", "m2"] {
            let message = Message::turn(message, format!("And {message}?"), Source::User, time + 4).unwrap();
            commit(&store, Op::Accept(Accept::new(id(name), message)));
        }
    }
    store.close().unwrap();
    drop(store);
    let mut files = below(folder.path());
    files.remove("_lock");
    files
}

/// What a fixture's files are, by their path in the store.
pub(crate) fn made(odd: &Odd, healthy: &Healthy) -> BTreeMap<String, Vec<u8>> {
    let mut text = lines(&healthy[ODD]);
    match &odd.make {
        Make::Event(seq, change) => {
            let at = text.iter().position(|line| line.starts_with(format!("{{\"seq\":{seq},").as_bytes())).unwrap();
            rewrite(&mut text[at], change);
        }
        Make::Message(change) => rewrite(&mut text[LAST - 1], change),
        Make::Header(change) => rewrite(&mut text[0], change),
        Make::Lines(change, _) => change(&mut text),
        Make::Folder(make, _) => return make(healthy).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
    }
    [(ODD.to_owned(), text.concat())].into()
}

/// Reads a fixture as it lies in `tests/data/odd`: the files that are there instead of the healthy `odd`.
pub(crate) fn stored(odd: &Odd) -> BTreeMap<String, Vec<u8>> {
    match odd.make {
        Make::Folder(..) => below(&data().join(odd.name)),
        _ => [(ODD.to_owned(), fs::read(data().join(format!("{}.jsonl", odd.name))).unwrap())].into(),
    }
}

/// The log of `odd` as another session's of this parent, every record sealed anew.
pub(crate) fn as_another(healthy: &Healthy, session: &str, parent: &str) -> Vec<u8> {
    let seal = |line: Vec<u8>| {
        let (body, more) = body_of(&line);
        let header = format!("\"id\":\"{session}\",\"parent\":\"{parent}\"");
        sealed(session, body.replace("\"id\":\"odd\",\"parent\":\"desk\"", &header).as_bytes(), more)
    };
    lines(&healthy[ODD]).into_iter().flat_map(seal).collect()
}
