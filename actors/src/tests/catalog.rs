//! What becomes of an answer of the Query actor, whatever it is: an entry, or the failure of the whole list.

use std::{ops::ControlFlow, sync::Arc};

use greenroom_session::{
    header::NewSession,
    listing::{Description, Reason, Verdict},
    store::{Store as _, StoreError, Traced},
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::support::{Witness, id, on_paused_time};
use crate::{
    catalog::{Catalog, CatalogMessage, CatalogState, Entry},
    error::QueryError,
    live::LiveTable,
    query::{Family, Page, QueryMessage, Step},
};

type Answer = Arc<dyn Fn() -> Result<Family, QueryError> + Send + Sync>;

/// In the place of the Query actor: answers as the test says.
struct Scripted;

impl Actor for Scripted {
    type Msg = QueryMessage;
    type State = Answer;
    type Arguments = Answer;

    async fn pre_start(&self, _myself: ActorRef<QueryMessage>, answer: Answer) -> Result<Answer, ActorProcessingErr> {
        Ok(answer)
    }

    async fn handle(&self, _myself: ActorRef<QueryMessage>, message: QueryMessage, answer: &mut Answer) -> Result<(), ActorProcessingErr> {
        match message {
            QueryMessage::Family { then, .. } => then.take(answer()),
            QueryMessage::Walk { top, mut walker, .. } => {
                let end = answer().map(|family| {
                    let mut steps = family.into_iter().map(|(child, described)| Step { parent: top.clone(), depth: 1, child, described });
                    let _enough: ControlFlow<()> = steps.try_for_each(|step| walker.see(step));
                });
                walker.end(end);
            }
            _ => panic!("the catalog asks for nothing else"),
        }
        Ok(())
    }
}

/// Asks a catalog over these answers for the children of `root`, and for everything below it: entries, or the code of the failure.
async fn ask(answer: Answer) -> [Result<Vec<Entry>, &'static str>; 2] {
    let (query, _) = Actor::spawn(None, Scripted, answer).await.unwrap();
    let (catalog, _) = Actor::spawn(None, Catalog, CatalogState { query: query.clone(), live: LiveTable::default() }).await.unwrap();
    let cancel = CancellationToken::new;
    let (reply, children) = oneshot::channel();
    catalog.send_message(CatalogMessage::Children { parent: id("root"), page: None, verify: false, cancel: cancel(), reply }).unwrap();
    let (reply, descendants) = oneshot::channel();
    catalog.send_message(CatalogMessage::Descendants { top: id("root"), page: Page::default(), cancel: cancel(), reply }).unwrap();
    let children = children.await.unwrap().map(|listing| listing.entries).map_err(|error| error.code());
    let descendants = descendants.await.unwrap().map(|list| list.entries.into_iter().map(|line| line.entry).collect()).map_err(|error| error.code());
    query.stop(None);
    catalog.stop(None);
    [children, descendants]
}

fn child(name: &str) -> Traced {
    Traced { id: id(name), created_at: 5, header: Ok(Arc::new(NewSession::child(id(name), id("root"), 0).at(5))) }
}

/// Every failure of a query, and what it means for the entry of a child: nothing if it says nothing about the child.
fn failures() -> Vec<(QueryError, Option<Reason>)> {
    let (corrupt, unavailable) = (Some(Reason::Corrupt), Some(Reason::Unavailable));
    let session = || id("b");
    vec![
        (QueryError::SessionNotFound(session()), unavailable),
        (QueryError::EventNotFound { session: session(), seq: 1 }, unavailable),
        (StoreError::Unsupported("a planted outage".into()).into(), unavailable),
        (QueryError::InvalidSurface { session: session(), reason: "planted".into() }, corrupt),
        (QueryError::SourceConflict(session()), corrupt),
        (QueryError::Corrupt { session: session(), reason: "planted".into() }, corrupt),
        (QueryError::InvalidLineage(session()), None),
        (QueryError::InvalidWindow { asked: 51, max: 50 }, None),
        (QueryError::InvalidLimit, None),
        (QueryError::InvalidCursor(session()), None),
        (QueryError::StaleCursor(session()), None),
        (QueryError::InvalidConfig { name: "read_concurrency", given: 0, min: 1, max: 9 }, None),
        (QueryError::Cancelled, None),
        (QueryError::TimedOut, None),
        (QueryError::Ended, None),
        (QueryError::Unavailable, None),
    ]
}

/// The code that the failure of a list has where a query failed so.
fn code_of(error: &QueryError) -> &'static str {
    match error {
        QueryError::Cancelled => "CANCELLED",
        other => other.code(),
    }
}

#[test]
fn a_failure_of_the_trace_is_the_failure_of_the_list_under_its_own_code() {
    on_paused_time(async {
        for (error, _) in failures() {
            let code = code_of(&error);
            for list in ask(Arc::new(move || Err(error.clone()))).await {
                assert_eq!(list, Err(code));
            }
        }
    });
}

#[test]
fn a_failure_of_one_child_is_its_entry_where_it_says_something_of_the_child_and_the_failure_of_the_list_else() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    store.child(&root, "a", "worker");
    let described = {
        let mut reader = store.reader().unwrap();
        let children = reader.children(Some(&root), None, 9).unwrap();
        reader.describe(&children, false).unwrap().remove(0).unwrap()
    };
    assert!(matches!(&described, Description { verdict: Verdict::Child { .. }, .. }));
    on_paused_time(async {
        for (error, reason) in failures() {
            let code = code_of(&error);
            let described = described.clone();
            let family = move || Ok(vec![(child("a"), Ok(described.clone())), (child("b"), Err(error.clone())), (child("c"), Ok(described.clone()))]);
            for list in ask(Arc::new(family)).await {
                match (list, reason) {
                    (Ok(entries), Some(reason)) => {
                        assert_eq!(entries.len(), 3);
                        assert_eq!(entries[1], Entry::Diagnostic { id: id("b"), reason });
                        assert!(entries[0].listed().is_some() && entries[2].listed().is_some());
                    }
                    (list, None) => assert_eq!(list, Err(code), "{code}"),
                    (list, reason) => panic!("{code}: {reason:?} expected, and it is {list:?}"),
                }
            }
        }
    });
}
