//! A store of each kind, what lies in it, and runtimes over it.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use greenroom::{Runtime, RuntimeBuilder, Turn, TurnEnd};
use greenroom_session::{
    event::Body,
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Message, Source},
    place::path_of,
    recover::begin_epoch,
    store::{Accept, Create, Done, Fence, Import, Op, Open, Reader, Refused, Store, jsonl::JsonlStore, memory::MemoryStore, sqlite::SqliteStore},
};
use tempfile::TempDir;

use crate::{
    author::{Author, descriptor},
    watched::Watch,
    watched_store::WatchedStore,
};

/// Which store a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Jsonl,
}

/// One store, open or closed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) kind: Kind,
    /// What is counted and planted; it outlives openings.
    pub(crate) watch: Watch,
    folder: TempDir,
    memory: Mutex<MemoryStore>,
    open: Mutex<Option<Arc<dyn Store>>>,
}

impl World {
    pub(crate) fn memory() -> Self {
        Self::of(Kind::Memory)
    }

    pub(crate) fn sqlite() -> Self {
        Self::of(Kind::Sqlite)
    }

    pub(crate) fn jsonl() -> Self {
        Self::of(Kind::Jsonl)
    }

    fn of(kind: Kind) -> Self {
        Self { kind, watch: Watch::default(), folder: tempfile::tempdir().unwrap(), memory: Mutex::default(), open: Mutex::default() }
    }

    /// Returns the file or the folder of the store. Nothing lies there in memory.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(match self.kind {
            Kind::Memory => "nowhere",
            Kind::Sqlite => "store.db",
            Kind::Jsonl => "sessions",
        })
    }

    /// Returns the file of a session in a folder of JSON Lines.
    pub(crate) fn file(&self, id: &str, parent: Option<&str>) -> PathBuf {
        self.path().join(path_of(parent.map(sid).as_ref(), &sid(id)))
    }

    /// Returns the store without the watch, opening it if it is closed.
    pub(crate) fn plain(&self) -> Arc<dyn Store> {
        let mut open = lock(&self.open);
        open.get_or_insert_with(|| match self.kind {
            Kind::Memory => Arc::new(lock(&self.memory).clone()),
            Kind::Sqlite => Arc::new(SqliteStore::open(self.path()).unwrap()),
            Kind::Jsonl => Arc::new(JsonlStore::open(self.path()).unwrap()),
        })
        .clone()
    }

    /// Returns the store under watch, opening it if it is closed.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(WatchedStore { store: self.plain(), watch: self.watch.clone() })
    }

    /// Returns a reader without the watch.
    pub(crate) fn reader(&self) -> Box<dyn Reader> {
        self.plain().reader().unwrap()
    }

    /// Closes the store; the next use opens it again. No runtime may be left over it.
    pub(crate) fn close(&self) {
        let open = lock(&self.open).take();
        if let Some(store) = open {
            store.close().unwrap();
            assert!(self.kind == Kind::Memory || Arc::strong_count(&store) == 1, "somebody still has the store open");
        }
    }

    /// Closes the store when the last task of a runtime that was over it has gone.
    pub(crate) async fn close_after(&self, runtime: Runtime) {
        runtime.shutdown().await;
        drop(runtime);
        while self.open.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|store| Arc::strong_count(store) > 1) {
            tokio::task::yield_now().await;
        }
        self.close();
    }

    /// Opens the same store as another process would; `None` where only one process may write.
    pub(crate) fn peer(&self) -> Option<Arc<dyn Store>> {
        drop(self.plain());
        match self.kind {
            Kind::Memory => Some(Arc::new(lock(&self.memory).peer())),
            Kind::Sqlite => Some(Arc::new(SqliteStore::open_existing(self.path()).unwrap())),
            Kind::Jsonl => None,
        }
    }

    /// Lets the process that has the store open die: nothing is given up in order, and what it held is held by nobody. The next use opens it again.
    pub(crate) fn crash(&self) {
        drop(lock(&self.open).take());
        let mut memory = lock(&self.memory);
        *memory = memory.reopen();
    }

    /// Commits one operation without the watch.
    pub(crate) fn one(&self, op: Op) -> Result<Done, Refused> {
        one(&*self.plain(), op)
    }

    /// Creates a root.
    pub(crate) fn root(&self, id: &str) {
        self.one(Op::Create(Create::root(NewSession::root(sid(id)), "worker", format!("root {id}")))).unwrap();
    }

    /// Creates a root that a given behaviour plays.
    pub(crate) fn root_of(&self, id: &str, agent: &str) {
        self.one(Op::Create(Create::root(NewSession::root(sid(id)), agent, format!("root {id}")))).unwrap();
    }

    /// Creates a healthy continuable child, labelled `child ID`, whose parent is in the store.
    pub(crate) fn child(&self, id: &str, parent: &str) {
        let depth = self.reader().header(&sid(parent)).unwrap().unwrap().depth;
        let session = NewSession::child(sid(id), sid(parent), depth);
        self.one(Op::Create(Create::child(session, Vec::new(), &descriptor(&format!("child {id}")), None, 1_000).unwrap())).unwrap();
    }

    /// Creates a fork of a session.
    pub(crate) fn fork(&self, id: &str, source: &str) {
        let events = Arc::new([Body::EndSeed {}.at(0, 1_000)]);
        self.one(Op::Create(Create { session: NewSession::fork(sid(id), sid(source)), time: 1_000, events, message: None })).unwrap();
    }

    /// Creates a session as it is, by the store's own import: with its time, and with good derived rows.
    pub(crate) fn create(&self, author: &Author) {
        self.create_all(std::slice::from_ref(author));
    }

    /// Creates sessions as they are, in one batch.
    pub(crate) fn create_all(&self, authors: &[Author]) {
        let imports: Vec<Op> = authors.iter().map(|author| Op::Import(import(author).expect("the store imports what can be read"))).collect();
        for done in self.plain().commit(&imports).unwrap() {
            done.unwrap();
        }
    }

    /// Writes a session behind the store's back, whatever its rules say; there are no derived rows of it then. Memory has no back: false if it refuses.
    pub(crate) fn plant(&self, author: &Author) -> bool {
        self.plant_all(std::slice::from_ref(author))
    }

    /// Writes sessions behind the store's back.
    pub(crate) fn plant_all(&self, authors: &[Author]) -> bool {
        drop(self.plain());
        match self.kind {
            Kind::Memory => return authors.iter().all(|author| import(author).is_some_and(|import| self.one(Op::Import(import)).is_ok())),
            Kind::Sqlite => {
                self.close();
                plant_rows(&self.path(), authors).unwrap();
            }
            Kind::Jsonl => {
                self.close();
                for author in authors {
                    self.plant_file(&path_of(author.place(), author.id()), &author.lines());
                }
            }
        }
        true
    }

    /// Writes a file into a folder of JSON Lines.
    pub(crate) fn plant_file(&self, name: &Path, bytes: &[u8]) {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// Begins the next epoch of a session in some opening of the store, perhaps with a turn, and returns the right to append.
    pub(crate) fn activate(store: &dyn Store, id: &str, turn: bool) -> Fence {
        let fold = store.reader().unwrap().load(&sid(id)).unwrap().fold;
        let (epoch, events) = begin_epoch(&fold, 2_000, 3);
        one(store, Op::Open(Open { session: sid(id), epoch, events: events.into(), claim: turn.then_some(2_000) })).unwrap();
        Fence { session: sid(id), epoch }
    }

    /// Accepts a message that becomes a turn.
    pub(crate) fn accept(&self, session: &str, message: &str) {
        let message = Message::turn(message, format!("text of {message}"), Source::User, 1_000).unwrap();
        self.one(Op::Accept(Accept::new(sid(session), message))).unwrap();
    }

    /// Leaves half a line behind the last one of a session's file, as a write that was cut off does.
    pub(crate) fn tear(&self, id: &str, parent: Option<&str>) {
        let mut file = fs::OpenOptions::new().append(true).open(self.file(id, parent)).unwrap();
        file.write_all(br#"{"seq":"#).unwrap();
    }

    /// Begins a runtime: `worker` repeats what it is told.
    pub(crate) fn builder() -> RuntimeBuilder {
        Runtime::builder().closure("worker", |turn: Turn| async move {
            turn.say(turn.text())?;
            Ok(TurnEnd::Completed)
        })
    }

    /// Starts a runtime over the store under watch.
    pub(crate) async fn start(&self, builder: RuntimeBuilder) -> Runtime {
        builder.start(self.store()).await.unwrap()
    }

    /// Starts a runtime whose `worker` repeats what it is told.
    pub(crate) async fn runtime(&self) -> Runtime {
        self.start(Self::builder()).await
    }

    /// Returns every file of the store by its name. What serves locking alone, SQLite's shared memory, is not part of it.
    pub(crate) fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_str().unwrap().ends_with("-shm") {
                    let bytes = fs::read(&path).unwrap();
                    found.insert(path, bytes);
                }
            }
        }
        found
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn import(author: &Author) -> Option<Import> {
    Import::new(Arc::new(author.header.clone()), author.decoded()?.into(), [].into()).ok()
}

fn plant_rows(path: &Path, authors: &[Author]) -> rusqlite::Result<()> {
    let mut conn = rusqlite::Connection::open(path)?;
    let all = conn.transaction()?;
    for author in authors {
        let (header, crc) = author.header_record();
        let parent = author.place().map(SessionId::as_str);
        let insert = "INSERT INTO session(id, parent_id, created_at, header, crc, creation) VALUES(?1, ?2, ?3, ?4, ?5, zeroblob(16))";
        let created_at = i64::try_from(author.header.created_at).unwrap();
        all.prepare_cached(insert)?.execute(rusqlite::params![author.id().as_str(), parent, created_at, header, crc])?;
        let sid = all.last_insert_rowid();
        for (seq, (body, crc)) in (0_i64..).zip(author.event_records()) {
            all.prepare_cached("INSERT INTO event(sid, seq, body, crc) VALUES(?1, ?2, ?3, ?4)")?.execute(rusqlite::params![sid, seq, body, crc])?;
        }
    }
    all.commit()
}

/// Commits one operation.
pub(crate) fn one(store: &dyn Store, op: Op) -> Result<Done, Refused> {
    store.commit(&[op]).unwrap().pop().unwrap()
}

pub(crate) fn sid(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub(crate) fn mid(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

/// Runs each function against each store: `on_every_store!(a, b)` for functions of `&World`, `on_every_store!(async a, b)` for async ones.
#[macro_export]
macro_rules! on_every_store {
    (async $($name:ident),* $(,)?) => {
        mod memory { $( #[tokio::test] async fn $name() { $crate::world::bounded(super::$name(&$crate::world::World::memory())).await; } )* }
        mod sqlite { $( #[tokio::test] async fn $name() { $crate::world::bounded(super::$name(&$crate::world::World::sqlite())).await; } )* }
        mod jsonl { $( #[tokio::test] async fn $name() { $crate::world::bounded(super::$name(&$crate::world::World::jsonl())).await; } )* }
    };
    ($($name:ident),* $(,)?) => {
        mod memory { $( #[test] fn $name() { super::$name(&$crate::world::World::memory()); } )* }
        mod sqlite { $( #[test] fn $name() { super::$name(&$crate::world::World::sqlite()); } )* }
        mod jsonl { $( #[test] fn $name() { super::$name(&$crate::world::World::jsonl()); } )* }
    };
}

/// A test that hangs says so.
pub(crate) async fn bounded(test: impl Future<Output = ()>) {
    let time = std::time::Duration::from_secs(300);
    tokio::time::timeout(time, test).await.expect("the world hangs: nothing can go on and somebody still waits");
}
