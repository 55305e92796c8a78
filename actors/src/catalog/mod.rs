//! The Catalog actor: the list of a parent's children, and of everything below a session.
//!
//! **Messages.** `ListChildren`, `ListRoots` and `ListDescendants`, from agents and the host.
//! **State.** None. It asks the Query actor for a trace and for what each child is, and never talks to an Activation.
//! **Order.** It waits for no listing: each is made where its read ends.
//! **End.** A listing that is under way is answered.
//!
//! Two phases, two kinds of failure: if the trace fails there is no set of children to trust and the call fails; once it succeeded, a child
//! that cannot be described is an entry that says so, and its siblings stay visible.

use greenroom_session::id::SessionId;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::{
    descendants::Gathering,
    describe::{listing, one_more},
};
use crate::{
    agent::answered,
    error::{ListError, QueryError},
    live::LiveTable,
    query::{Page, QueryMessage, Then},
    services::Services,
};

mod descendants;
mod describe;
mod entry;
mod read;

pub use descendants::{Descendant, Descendants};
pub use entry::{Entry, Listed, Listing, Status};
pub use read::{read_children, read_entry, read_listing};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ListError>>;

/// What the catalog is asked.
#[derive(Debug)]
pub(crate) enum CatalogMessage {
    /// The children of a session.
    ListChildren {
        /// The parent.
        parent: SessionId,
        /// Which of them; all if `None`.
        page: Option<Page>,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the listing.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Listing>,
    },
    /// The roots, and sessions whose parent is not in the store.
    ListRoots {
        /// Which of them; all if `None`.
        page: Option<Page>,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the listing.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Listing>,
    },
    /// Everything below a session.
    ListDescendants {
        /// The session.
        top: SessionId,
        /// Which of it.
        page: Page,
        /// Cancels the listing.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Descendants>,
    },
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Catalog;

#[derive(Debug)]
pub(crate) struct CatalogState {
    pub(crate) query: ActorRef<QueryMessage>,
    pub(crate) live: LiveTable,
}

impl Actor for Catalog {
    type Msg = CatalogMessage;
    type State = CatalogState;
    type Arguments = CatalogState;

    async fn pre_start(&self, _myself: ActorRef<CatalogMessage>, state: CatalogState) -> Result<CatalogState, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _myself: ActorRef<CatalogMessage>, message: CatalogMessage, state: &mut CatalogState) -> Result<(), ActorProcessingErr> {
        let (parent, page, verify, cancel, reply) = match message {
            CatalogMessage::ListChildren { parent, page, verify, cancel, reply } => (Some(parent), page, verify, cancel, reply),
            CatalogMessage::ListRoots { page, verify, cancel, reply } => (None, page, verify, cancel, reply),
            CatalogMessage::ListDescendants { top, page, cancel, reply } => {
                let enough = one_more(&page).limit.unwrap_or(usize::MAX);
                let walker = Box::new(Gathering::new(state.live.clone(), page.limit, reply));
                let after = page.after.map(|cursor| cursor.id);
                // If the Query actor is gone the walker is dropped with the message, which says so.
                drop(state.query.send_message(QueryMessage::Walk { top, after, enough, cancel, walker }));
                return Ok(());
            }
        };
        let page = page.unwrap_or_default();
        let (live, family, asked) = (state.live.clone(), parent.clone(), one_more(&page));
        let then = Then::new(move |family| {
            let listing = family.map_err(ListError::from).and_then(|family| listing(parent.as_ref(), family, page.limit, |id| live.is_resident(id)));
            // Whoever asked may be gone.
            drop(reply.send(listing));
        });
        // If the Query actor is gone the reply is dropped with the message, which says so.
        drop(state.query.send_message(QueryMessage::Family { parent: family, page: asked, verify, cancel, then }));
        Ok(())
    }
}

/// Asks the Catalog and waits. A cancellation that is seen at any point is the answer, whatever else there is.
pub(crate) async fn ask<T>(services: &Services, cancel: &CancellationToken, message: impl FnOnce(Reply<T>) -> CatalogMessage) -> Result<T, ListError> {
    let Some(catalog) = &services.catalog else { return Err(ListError::QueryUnavailable) };
    if cancel.is_cancelled() {
        return Err(ListError::Cancelled);
    }
    let (reply, listing) = oneshot::channel();
    if catalog.send_message(message(reply)).is_err() {
        return Err(QueryError::Ended.into());
    }
    let listing = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(ListError::Cancelled),
        listing = answered(listing, services.config.ask_deadline) => listing,
    };
    if cancel.is_cancelled() { Err(ListError::Cancelled) } else { listing }
}
