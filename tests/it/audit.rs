//! An audit of a store in plain SQL or plain lines, and plain JSON. It uses none of greenroom's code, so that it cannot share a mistake with it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// One row of an inbox.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) id: String,
    pub(crate) order: i64,
    pub(crate) is_turn: bool,
    pub(crate) pending: bool,
}

/// One session as its rows tell it.
#[derive(Debug, Clone)]
pub(crate) struct Audited {
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) events: Vec<Value>,
    pub(crate) inbox: Vec<Accepted>,
}

/// One run of a command, as the command itself wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) session: String,
    pub(crate) turn: u64,
    pub(crate) attempt: u64,
}

/// Reads a whole store.
pub(crate) fn read(store: &Path) -> Vec<Audited> {
    let db = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let ok: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
    let mut sessions = db.prepare("SELECT sid, id, parent_id FROM session ORDER BY sid").unwrap();
    let mut events = db.prepare("SELECT seq, body FROM event WHERE sid = ? ORDER BY seq").unwrap();
    let mut inbox = db.prepare("SELECT ord, message_id, kind, state FROM inbox WHERE sid = ? ORDER BY ord").unwrap();
    let rows: Vec<(i64, String, Option<String>)> =
        sessions.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().map(Result::unwrap).collect();
    rows.into_iter()
        .map(|(sid, id, parent)| {
            let found: Vec<(i64, String)> = events.query_map([sid], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
            let parsed: Vec<Value> = found
                .into_iter()
                .enumerate()
                .map(|(at, (seq, body))| {
                    assert_eq!(seq, i64::try_from(at).unwrap(), "{id}: the log has a gap");
                    serde_json::from_str(&body).unwrap()
                })
                .collect();
            let accepted = inbox
                .query_map([sid], |row| {
                    Ok(Accepted { order: row.get(0)?, id: row.get(1)?, is_turn: row.get::<_, i64>(2)? == 0, pending: row.get::<_, i64>(3)? == 0 })
                })
                .unwrap()
                .map(Result::unwrap)
                .collect();
            Audited { id, parent, events: parsed, inbox: accepted }
        })
        .collect()
}

/// Reads a whole folder of JSON Lines, as far as its batches are whole.
pub(crate) fn read_jsonl(store: &Path) -> Vec<Audited> {
    let mut sessions: Vec<Audited> = jsonl_files(store).iter().map(|path| read_file(path)).collect();
    sessions.sort_by(|a, b| a.id.cmp(&b.id));
    sessions
}

/// Returns the files of sessions in a folder of JSON Lines.
pub(crate) fn jsonl_files(store: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

fn read_file(path: &Path) -> Audited {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).collect();
    while lines.last().is_some_and(|line| line["more"] == true) {
        lines.pop();
    }
    let text_of = |value: &Value| value.as_str().map(str::to_owned);
    let (mut events, mut inbox): (Vec<Value>, Vec<Accepted>) = (Vec::new(), Vec::new());
    let header = lines.remove(0);
    let id = text_of(&header["id"]).unwrap();
    for line in lines {
        if line["seq"].is_u64() {
            assert_eq!(line["seq"], events.len(), "{id}: the log has a gap");
            let data = &line["data"];
            let taken: Vec<String> = match line["type"].as_str().unwrap() {
                "turn/start" | "message/withdrawn" => text_of(&data["message"]).into_iter().collect(),
                "note/joined" => data["notes"].as_array().unwrap().iter().filter_map(text_of).collect(),
                "control/answered" => text_of(&data["control"]).into_iter().collect(),
                _ => Vec::new(),
            };
            // A turn that notes opened names one of them, which leaves when it joins.
            let notes = line["type"] != "turn/start";
            for accepted in inbox.iter_mut().filter(|accepted| taken.contains(&accepted.id) && (accepted.is_turn || notes)) {
                accepted.pending = false;
            }
            events.push(line);
        } else {
            assert_eq!(line["order"], inbox.len(), "{id}: the inbox has a gap");
            let order = line["order"].as_i64().unwrap();
            inbox.push(Accepted { order, id: text_of(&line["id"]).unwrap(), is_turn: line["kind"] == "turn", pending: true });
        }
    }
    Audited { id, parent: text_of(&header["parent"]), events, inbox }
}

/// One start of a turn: its place in the log, the turn's number, the attempt, and how it ended.
type Started = (usize, u64, u64, Option<String>);

impl Audited {
    /// Returns the events of a type with their data.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (usize, &'a Value)> {
        self.events.iter().enumerate().filter(move |(_, event)| event["type"] == kind).map(|(at, event)| (at, &event["data"]))
    }

    /// Returns the turns of each message: place of the start, turn number, attempt, and how it ended.
    pub(crate) fn turns(&self) -> BTreeMap<String, Vec<Started>> {
        let ends: HashMap<u64, String> =
            self.of("turn/end").map(|(_, data)| (data["turn"].as_u64().unwrap(), data["reason"]["kind"].as_str().unwrap().to_owned())).collect();
        let mut turns: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (at, data) in self.of("turn/start") {
            let turn = data["turn"].as_u64().unwrap();
            turns.entry(data["message"].as_str().unwrap().to_owned()).or_default().push((
                at,
                turn,
                data["attempt"].as_u64().unwrap(),
                ends.get(&turn).cloned(),
            ));
        }
        turns
    }

    /// Checks one log against the promises: turns nest and count, epochs follow one another, every accepted message ends in exactly one final turn, in order.
    pub(crate) fn check(&self) {
        let id = &self.id;
        let (mut open, mut turns, mut epoch, mut live) = (None, 0, 0, false);
        for event in &self.events {
            let data = &event["data"];
            match event["type"].as_str().unwrap() {
                "activation/start" => {
                    assert!(!live && open.is_none(), "{id}: an epoch starts within another: {event}");
                    assert_eq!(data["epoch"].as_u64().unwrap(), epoch + 1, "{id}: {event}");
                    (epoch, live) = (epoch + 1, true);
                }
                "activation/end" => {
                    assert!(live && open.is_none() && data["epoch"] == epoch, "{id}: an epoch ends with a turn open: {event}");
                    live = false;
                }
                "turn/start" => {
                    assert!(live && open.is_none(), "{id}: a turn starts within another: {event}");
                    turns += 1;
                    assert_eq!(data["turn"], turns, "{id}: {event}");
                    open = Some(turns);
                }
                "turn/end" => {
                    assert_eq!(open.take(), data["turn"].as_u64(), "{id}: {event}");
                }
                _ => {}
            }
        }
        let by_message = self.turns();
        let withdrawn = self.withdrawn();
        let mut served = Vec::new();
        for accepted in self.inbox.iter().filter(|accepted| accepted.is_turn) {
            let Some(starts) = by_message.get(&accepted.id) else {
                assert_ne!(accepted.pending, withdrawn.contains(&accepted.id), "{id}: message {} has left the inbox without a turn", accepted.id);
                continue;
            };
            assert!(!withdrawn.contains(&accepted.id), "{id}: message {} was taken back and has a turn", accepted.id);
            assert!(!accepted.pending, "{id}: message {} has a turn and is still in the inbox", accepted.id);
            for (attempt, start) in starts.iter().enumerate() {
                assert_eq!(start.2, attempt as u64 + 1, "{id}: attempts of message {} do not count", accepted.id);
            }
            let finals = starts.iter().filter(|(.., end)| end.as_deref().is_some_and(|end| !matches!(end, "interrupted" | "disposed"))).count();
            let last_is_final = starts.last().is_some_and(|(.., end)| end.as_deref().is_some_and(|end| !matches!(end, "interrupted" | "disposed")));
            assert!(finals <= 1 && (finals == 0 || last_is_final), "{id}: message {} was served more than once: {starts:?}", accepted.id);
            served.push((accepted.order, starts[0].0));
        }
        assert!(served.is_sorted_by_key(|(_, start)| *start), "{id}: messages were not served in order: {served:?}");
    }

    /// Checks that every message was served to a final end and nothing is left open.
    pub(crate) fn check_finished(&self) {
        self.check();
        let withdrawn = self.withdrawn();
        for accepted in self.inbox.iter().filter(|accepted| accepted.is_turn && !withdrawn.contains(&accepted.id)) {
            let turns = self.turns();
            let end = turns.get(&accepted.id).and_then(|starts| starts.last()).and_then(|start| start.3.clone());
            assert!(matches!(end.as_deref(), Some("completed" | "error" | "aborted" | "max_tokens")), "{}: message {} ended {end:?}", self.id, accepted.id);
        }
        assert!(self.inbox.iter().all(|accepted| !accepted.pending), "{}: something is still pending", self.id);
        let last = self.events.iter().rev().find(|event| event["type"].as_str().unwrap().starts_with("activation/")).map(|event| event["type"].clone());
        assert_eq!(last, Some("activation/end".into()), "{}: its last epoch has no end", self.id);
    }

    /// Returns the messages that were taken back, each once.
    fn withdrawn(&self) -> BTreeSet<String> {
        let all: Vec<_> = self.of("message/withdrawn").map(|(_, data)| data["message"].as_str().unwrap().to_owned()).collect();
        let once: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(once.len(), all.len(), "{}: a message was taken back twice", self.id);
        once
    }

    /// Returns how the last turn of each `turn` message ended.
    pub(crate) fn ends(&self) -> Vec<Option<String>> {
        let turns = self.turns();
        self.inbox
            .iter()
            .filter(|accepted| accepted.is_turn)
            .map(|accepted| turns.get(&accepted.id).and_then(|starts| starts.last()).and_then(|start| start.3.clone()))
            .collect()
    }
}

/// Reads what the commands wrote down: one line `session turn attempt` per run.
pub(crate) fn invocations(side: &Path) -> Vec<Invocation> {
    let text = std::fs::read_to_string(side).unwrap_or_default();
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [session, turn, attempt] = words.as_slice() else { panic!("torn line in the side file: {line:?}") };
            Invocation { session: (*session).to_owned(), turn: turn.parse().unwrap(), attempt: attempt.parse().unwrap() }
        })
        .collect()
}

/// Checks that every run of a command has exactly one turn that started it, with that attempt, and that none follows its message's recorded answer.
pub(crate) fn check_invocations(sessions: &[Audited], ran: &[Invocation]) {
    for invocation in ran {
        let session =
            sessions.iter().find(|session| session.id == invocation.session).unwrap_or_else(|| panic!("a command ran for an unknown session: {invocation:?}"));
        let starts: Vec<&Value> =
            session.of("turn/start").map(|(_, data)| data).filter(|data| data["turn"] == invocation.turn && data["attempt"] == invocation.attempt).collect();
        assert_eq!(starts.len(), 1, "{invocation:?} has not exactly one turn/start");
        let twice = ran.iter().filter(|other| *other == invocation).count();
        assert_eq!(twice, 1, "{invocation:?} ran {twice} times");
        let answered = session.of("answer/recorded").find(|(_, data)| data["message"] == starts[0]["message"]);
        if let Some((_, answer)) = answered {
            assert!(invocation.attempt <= answer["attempt"].as_u64().unwrap(), "{invocation:?} ran after its message's answer was recorded");
        }
    }
}
