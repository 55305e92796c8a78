//! A store with an odd session in it, and what everybody says of that.

use super::*;

/// A store with an odd session in it.
pub(super) struct World {
    pub(super) folder: TempDir,
    pub(super) url: String,
}

impl World {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A folder of JSON Lines with these files over the healthy ones.
    pub(super) fn jsonl(healthy: &Healthy, over: BTreeMap<String, Vec<u8>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        lay(&path, healthy.iter().filter(|(name, _)| *name != ODD));
        lay(&path, over);
        Self { url: format!("jsonl:{}", path.display()), folder }
    }

    /// A database with the healthy sessions and the fault in it, its index derived anew.
    pub(super) fn sqlite(odd: &Odd, healthy: &Healthy) -> Option<Self> {
        let world = Self { folder: tempfile::tempdir().unwrap(), url: String::new() };
        let path = world.path();
        let files = world.folder.path().join("healthy");
        lay(&files, healthy);
        let store = SqliteStore::open(&path).unwrap();
        let report = import_folder(&store, &files, true, &mut |_| {}).unwrap();
        assert_eq!((report.imported, report.troubles.len()), (4, 0));
        let conn = Connection::open(&path).unwrap();
        let sid: i64 = conn.query_row("SELECT sid FROM session WHERE id = 'odd'", [], |row| row.get(0)).unwrap();
        let changed = |select: &str, before: &str, change: fn(&str) -> String| {
            let body: String = conn.query_row(select, [sid], |row| row.get(0)).unwrap();
            let text = format!("{before}{}", &body[1..]);
            let after = change(&text);
            assert_ne!(text, after);
            (crc_of("odd", after.as_bytes()), format!("{{{}", &after[if after.starts_with(before) { before.len() } else { 1 }..]))
        };
        match &odd.make {
            Make::Event(seq, change) => {
                let (crc, body) = changed(&format!("SELECT body FROM event WHERE sid = ?1 AND seq = {seq}"), "{", *change);
                conn.execute("UPDATE event SET body = ?2, crc = ?3 WHERE sid = ?1 AND seq = ?4", (sid, body, crc, seq.cast_signed())).unwrap();
            }
            Make::Message(change) => {
                let (crc, body) = changed("SELECT body FROM inbox WHERE sid = ?1 AND ord = 1", "{\"order\":1,", *change);
                conn.execute("UPDATE inbox SET body = ?2, crc = ?3 WHERE sid = ?1 AND ord = 1", (sid, body, crc)).unwrap();
            }
            Make::Header(change) => {
                let (crc, body) = changed("SELECT header FROM session WHERE sid = ?1", "{", *change);
                conn.execute("UPDATE session SET header = ?2, crc = ?3 WHERE sid = ?1", (sid, body, crc)).unwrap();
            }
            Make::Lines(_, sql) | Make::Folder(_, sql) => conn.execute_batch(&sql.as_ref()?.replace("{sid}", &sid.to_string())).unwrap(),
        }
        store.rebuild_index(None, &mut |_| {}).unwrap();
        store.close().unwrap();
        Some(Self { url: format!("sqlite:{}", path.display()), ..world })
    }

    pub(super) fn reader(&self) -> Box<dyn Reader> {
        if self.is_folder() { Box::new(jsonl::open_reader(self.path()).unwrap()) } else { Box::new(sqlite::open_reader(self.path()).unwrap()) }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.path().is_dir()
    }

    /// Every byte of the store, what tells readers of each other and of the writer aside.
    pub(super) fn bytes(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = if self.is_folder() { below(&self.path()) } else { below(self.folder.path()) };
        // A write-ahead log that is not there is an empty one.
        let is_known = |name: &str, empty: bool| name.ends_with("-shm") || name.ends_with("-lock") || name == "_lock" || (empty && name.ends_with("-wal"));
        files.retain(|name, bytes| !is_known(name, bytes.is_empty()));
        files
    }

    pub(super) fn load(&self) -> Result<(usize, u64), LoadError> {
        self.reader().load(&id("odd")).map(|log| (log.events.len(), log.fold.head().next_order))
    }

    /// What is listed below the desk, and beside it.
    pub(super) fn listed(&self, verify: bool) -> Vec<String> {
        let mut reader = self.reader();
        let mut list = |parent| read_listing(&mut *reader, parent, &Page::default(), verify).unwrap().entries;
        let roots = list(None).into_iter().filter(|entry| *entry.id() != id("desk"));
        let children = list(Some(&id("desk")));
        roots.map(|entry| format!("beside the desk: {}", shown(&entry))).chain(children.iter().map(shown)).collect()
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut see = |seen: Seen| {
            if let Seen::Finding(finding) = seen {
                found.push(finding);
            }
        };
        check(&mut *self.reader(), None, &mut see).unwrap();
        found
    }

    /// What is imported of the folder, and what is said of the rest.
    pub(super) fn imported(&self) -> (u64, Vec<String>) {
        let report = import_folder(&MemoryStore::new(), &self.path(), false, &mut |_| {}).unwrap();
        let folder = format!("{}/", self.path().display());
        let troubles = report.troubles.iter().map(|trouble| format!("{}: {}", trouble.code(), trouble.to_string().replace(&folder, ""))).collect();
        (report.imported, troubles)
    }

    /// How many events the command line shows, and what it ends with.
    pub(super) fn logged(&self) -> String {
        let said = Command::new(env!("CARGO_BIN_EXE_greenroom")).args(["log", "odd", "--raw", "--store", &self.url]).output().unwrap();
        let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
        let code = err.split_once("error[").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(code, _)| code);
        format!("{} events, exit {} {code}", out.lines().filter(|line| line.starts_with("{\"seq\":")).count(), said.status.code().unwrap()).trim_end().into()
    }

    /// Sends to the odd one and to its sibling, lets them serve what they have, and tells what came of it.
    pub(super) async fn sent(&self) -> (String, String) {
        let cast = Runtime::builder().closure("reporter", |turn: Turn| async move {
            turn.say(format!("heard {}", turn.text()))?;
            Ok(TurnEnd::Completed)
        });
        let runtime = cast.closure("editor", |_: Turn| async { Ok(TurnEnd::Completed) }).open(&self.url).await.unwrap();
        let host = runtime.host();
        let mut said = Vec::new();
        for session in ["odd", "above"] {
            said.push(match host.send(&id(session), "Go on.", Some(MessageId::new("m9").unwrap())).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.code()),
            });
        }
        runtime.recover(None).await.unwrap();
        host.quiescent(&id("desk")).await.unwrap();
        host.quiescent(&id("odd")).await.unwrap();
        runtime.shutdown().await;
        let mut reader = self.reader();
        let mut ends = ["odd", "above"].into_iter().zip(said).map(|(session, said)| match said {
            Err(code) => code.to_owned(),
            Ok(()) => match reader.load(&id(session)) {
                Ok(log) => format!("accepted, {} turns, {} messages wait", log.fold.head().turns, log.fold.head().pending_turns),
                Err(error) => format!("accepted, then {}", error.code()),
            },
        });
        (ends.next().unwrap(), ends.next().unwrap())
    }
}

fn shown(entry: &Entry) -> String {
    match entry {
        Entry::Diagnostic { id, reason: Reason::Corrupt } => format!("{id} corrupt"),
        Entry::Diagnostic { id, reason } => format!("{id} {reason:?}").to_lowercase(),
        Entry::Root(listed) | Entry::Child(listed) => {
            let label = listed.label.as_deref().unwrap_or_default();
            let label = if label.len() > 100 { format!("{} bytes", label.len()) } else { format!("{label:?}") };
            format!("{} {} {label}", listed.id, listed.status.as_str())
        }
    }
}
