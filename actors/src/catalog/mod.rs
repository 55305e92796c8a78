//! The Catalog actor: the list of a parent's children, and of everything below a session.
//!
//! **Messages.** `Children`, `Roots` and `Descendants`, from agents and the host.
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

use self::{descendants::Gathering, describe::listing};
use crate::{
    error::ListError,
    live::LiveTable,
    query::{Page, QueryMessage, Then, ask_actor},
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
    Children {
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
    Roots {
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
    Descendants {
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
            CatalogMessage::Children { parent, page, verify, cancel, reply } => (Some(parent), page, verify, cancel, reply),
            CatalogMessage::Roots { page, verify, cancel, reply } => (None, page, verify, cancel, reply),
            CatalogMessage::Descendants { top, page, cancel, reply } => {
                state.walk(top, &page, cancel, reply);
                return Ok(());
            }
        };
        state.list(parent, &page.unwrap_or_default(), verify, cancel, reply);
        Ok(())
    }
}

impl CatalogState {
    fn list(&self, parent: Option<SessionId>, page: &Page, verify: bool, cancel: CancellationToken, reply: Reply<Listing>) {
        let asked = match page.one_more() {
            Ok(asked) => asked,
            // Whoever asked may be gone.
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        let (live, family, limit) = (self.live.clone(), parent.clone(), page.limit);
        let then = Then::new(move |family| {
            let listing = family.map_err(ListError::from).and_then(|family| listing(parent.as_ref(), family, limit, |id| live.is_resident(id)));
            drop(reply.send(listing));
        });
        // If the Query actor is gone the reply is dropped with the message, which says so.
        drop(self.query.send_message(QueryMessage::Family { parent: family, page: asked, verify, cancel, then }));
    }

    fn walk(&self, top: SessionId, page: &Page, cancel: CancellationToken, reply: Reply<Descendants>) {
        let asked = match page.one_more() {
            Ok(asked) => asked,
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        let walker = Box::new(Gathering::new(self.live.clone(), page.limit, reply));
        let after = asked.after.map(|cursor| cursor.id);
        drop(self.query.send_message(QueryMessage::Walk { top, after, enough: asked.limit, cancel, walker }));
    }
}

/// Asks the Catalog and waits, as [`ask_actor`] does.
pub(crate) async fn ask<T>(
    services: &Services,
    cancel: &CancellationToken,
    message: impl FnOnce(CancellationToken, Reply<T>) -> CatalogMessage,
) -> Result<T, ListError> {
    ask_actor(services.catalog.as_ref(), services, cancel, message).await
}
