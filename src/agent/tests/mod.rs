//! Tests of the behaviours over a runtime with a store in memory.

mod answering;
mod repeating;
mod scripting;

use std::{path::Path, sync::Arc};

use greenroom_actors::{Occurrence, catalog::Entry};
use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::SessionId,
    message::text_of,
    store::memory::MemoryStore,
};
use tempfile::TempDir;

use super::{Guards, Stage, cast};
use crate::{program::Program, runtime::Runtime};

/// A folder and a store that outlive the runtimes over them.
struct World {
    dir: Arc<TempDir>,
    store: MemoryStore,
}

impl World {
    fn new() -> Self {
        Self { dir: Arc::new(TempDir::new().unwrap()), store: MemoryStore::new() }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// Starts a runtime that plays `agents`, the inside of a program file after its `[run]`.
    async fn play(&self, agents: &str) -> Play {
        let run = if agents.contains("[run]") { "" } else { "[run]\nroot = \"root\"\n" };
        let program = Program::parse(&format!("{run}{agents}"), "test.toml", self.dir.path()).unwrap_or_else(|error| panic!("{error}"));
        let bindings = program.bind(&[], Path::new("/")).unwrap();
        let stage = Stage { bindings, base_dir: program.base_dir.clone(), guards: Guards::temporary() };
        let builder = Runtime::builder().max_depth(program.run.max_depth);
        let builder = cast(&program, &program.run.root, &Arc::new(stage), builder).unwrap();
        Play { runtime: builder.start(Arc::new(self.store.clone())).await.unwrap(), _dir: self.dir.clone() }
    }

    /// Plays a root's message until `here` tells so of an occurrence, or of none, and then ends like a process that is killed. Returns the root.
    fn crash(&self, agents: &str, root: Option<&SessionId>, here: impl Fn(Option<&Occurrence>) -> bool) -> SessionId {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let id = tokio.block_on(async {
            let play = self.play(agents).await;
            let mut occurrences = play.runtime.subscribe();
            let handle = if let Some(root) = root {
                play.runtime.resume(root).await.unwrap()
            } else {
                let handle = play.runtime.root("root", "root").await.unwrap();
                handle.send("go").await.unwrap();
                handle
            };
            while !here(occurrences.try_recv().ok().as_ref()) {
                tokio::task::yield_now().await;
            }
            let id = handle.id().clone();
            // Nothing of it may end in good order.
            std::mem::forget((handle, play));
            id
        });
        tokio.shutdown_background();
        id
    }
}

struct Play {
    runtime: Runtime,
    _dir: Arc<TempDir>,
}

impl Play {
    /// Sends each message to a new root when the one before is done with, and returns the root.
    async fn tell(&self, messages: &[&str]) -> SessionId {
        let root = self.runtime.root("root", "root").await.unwrap();
        for message in messages {
            root.send(*message).await.unwrap();
            assert_eq!(root.quiescent().await.unwrap(), []);
        }
        root.id().clone()
    }

    /// Goes on with a root until all is done.
    async fn go_on(&self, root: &SessionId) {
        let root = self.runtime.resume(root).await.unwrap();
        self.runtime.recover(Some(root.id())).await.unwrap();
        assert_eq!(root.quiescent().await.unwrap(), []);
    }

    async fn events(&self, session: &SessionId) -> Vec<Event> {
        self.runtime.read_events(session).await.unwrap()
    }

    /// Returns what a session has said.
    async fn said(&self, session: &SessionId) -> Vec<String> {
        let events = self.events(session).await;
        events
            .iter()
            .filter_map(|event| match &event.body {
                Body::AssistantMessage { message, .. } => Some(text_of(&message.content)),
                _ => None,
            })
            .collect()
    }

    async fn memos(&self, session: &SessionId) -> Vec<String> {
        let events = self.events(session).await;
        events
            .into_iter()
            .filter_map(|event| match event.body {
                Body::Memo { text, key: None, .. } => Some(text),
                _ => None,
            })
            .collect()
    }

    /// Returns how the turns of a session ended; the error of a failed one as `CODE: message`.
    async fn ends(&self, session: &SessionId) -> Vec<String> {
        let events = self.events(session).await;
        events
            .into_iter()
            .filter_map(|event| match event.body {
                Body::TurnEnd { reason: TurnEnd::Error { code, message }, .. } => Some(format!("{code}: {message}")),
                Body::TurnEnd { reason, .. } => Some(reason.as_str().to_owned()),
                _ => None,
            })
            .collect()
    }

    async fn children(&self, session: &SessionId) -> Vec<Entry> {
        self.runtime.list(Some(session)).await.unwrap().entries
    }

    /// Returns the child with this label.
    async fn child(&self, session: &SessionId, label: &str) -> SessionId {
        let children = self.children(session).await;
        let child = children.iter().find(|entry| entry.listed().is_some_and(|listed| listed.label.as_deref() == Some(label)));
        child.unwrap_or_else(|| panic!("no {label} in {children:?}")).id().clone()
    }
}
