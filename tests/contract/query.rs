//! Queries: where a session comes from, which sessions there are, and what is in a log.

mod bounds;
mod cancel;
mod events;
mod family;
mod sources;
mod trace;

use greenroom::actors::{Host, error::QueryError, query::Page};
use tokio_util::sync::CancellationToken;

use crate::world::{Kind, World, sid};

/// Every kind of read, by the name of its method.
const READS: [&str; 7] = ["trace", "list_sessions", "list_events", "read_events", "read_event", "load", "fold"];

/// Those that read one log.
const OF_A_LOG: [&str; 5] = ["list_events", "read_events", "read_event", "load", "fold"];

/// Those that take a token.
const WITH_A_TOKEN: [&str; 5] = ["trace", "list_sessions", "list_events", "read_events", "read_event"];

/// Asks one kind of read about a session, and says how often it would have told of it.
async fn ask(host: &Host, read: &str, session: &str, cancel: CancellationToken) -> Result<usize, QueryError> {
    let id = sid(session);
    match read {
        "trace" => host.trace(&id, cancel).await.map(|trace| trace.descendants.len() + 1),
        "list_sessions" => {
            host.list_sessions(Page::default(), cancel).await.map(|page| page.sessions.iter().filter(|record| record.id == id && record.header.is_ok()).count())
        }
        "list_events" => host.list_events(&id, cancel).await.map(|lines| lines.len()),
        "read_events" => host.read_events(&id, 0, usize::MAX, cancel).await.map(|events| events.len()),
        "read_event" => host.read_event(&id, 0, 0, 50, cancel).await.map(|window| window.events.len()),
        "load" => host.load(&id).await.map(|log| log.events.len()),
        "fold" => host.fold(&id).await.map(|fold| usize::try_from(fold.head().next_seq).unwrap()),
        other => panic!("{other} is no read"),
    }
}

/// Asks as [`ask`] does, and returns the code of the failure, or `ok`.
async fn code(host: &Host, read: &str, session: &str) -> &'static str {
    ask(host, read, session, CancellationToken::new()).await.map_or_else(|error| error.code(), |_| "ok")
}

/// Returns another world of the same kind, for a runtime with other bounds.
fn another(world: &World) -> World {
    match world.kind {
        Kind::Memory => World::memory(),
        Kind::Sqlite => World::sqlite(),
        Kind::Jsonl => World::jsonl(),
    }
}
