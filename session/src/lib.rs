//! What is true on disk: sessions, their logs, their inboxes, and the stores that keep them.
//!
//! This crate is synchronous. It knows no async runtime and no actor, so nothing in it can wake anybody:
//! listing a session and reading its log never start it.
//!
//! # Layout
//!
//! - [`id`]: the names of things, each a type of its own.
//! - [`header`], [`event`], [`message`], [`descriptor`]: the records of a session.
//! - [`codec`]: how a record becomes bytes with a checksum, and back.
//! - [`line`](mod@line): how a record stands on a line of text.
//! - [`place`]: where a session's file lies in a folder of sessions.
//! - [`head`] and [`fold`]: the one fold; everything that is derived from records is derived there.
//! - [`surface`]: what a model sees, as positions in the log.
//! - [`compact`]: what takes the place of a run of messages. [`fork`]: where a session may be cut.
//! - [`recover`]: the closing events of a turn that a crash cut off.
//! - [`turns`]: which message becomes the next turn, and the events that open it. [`requests`]: what answers a request to end a turn or to take a message back.
//! - [`store`]: the [`Store`](store::Store) trait, its operations, and the stores.
//! - [`transfer`]: sessions to a folder of files and back.
//! - [`listing`]: what a listing says of a child.
//! - [`check`](mod@check): verifying a store, with findings as values.
//! - [`repair`]: what of a damaged store has one right answer is put right, and the rest is quarantined.
//! - [`text`]: the rule for labels, and how text is shown so that a terminal obeys none of it. [`limits`]: the bounds.
//! - [`digest`]: one hash over everything that is true in a store.
//! - [`clock`]: time and identity, injected.
//!
//! # Example
//!
//! ```
//! use greenroom_session::{
//!     header::NewSession,
//!     id::SessionId,
//!     message::{Message, Source},
//!     store::{Accept, Create, Done, Op, Store, memory::MemoryStore},
//! };
//!
//! let store = MemoryStore::new();
//! let root = SessionId::new("root")?;
//! let create = Create::root(NewSession::root(root.clone()), "editor", "launch story");
//! let accept = Accept::new(root.clone(), Message::turn("m0", "Cover the launch.", Source::User, 1_000)?);
//! let done = store.commit(&[Op::Create(create), Op::Accept(accept)])?;
//! assert!(matches!(done[1], Ok(Done::Accepted { order: 0, duplicate: false })));
//!
//! let log = store.reader()?.load(&root)?;
//! assert_eq!(log.events.len(), 2); // root/opened, session/end-seed
//! assert_eq!(log.fold.head().pending_turns, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod check;
pub mod clock;
pub mod codec;
pub mod compact;
mod departed;
pub mod descriptor;
pub mod digest;
pub mod event;
pub mod fold;
pub mod fork;
pub mod head;
pub mod header;
pub mod id;
mod json;
pub mod limits;
pub mod line;
pub mod listing;
pub mod message;
pub mod place;
pub mod recover;
pub mod repair;
pub mod requests;
pub mod store;
pub mod surface;
pub mod text;
pub mod transfer;
pub mod turns;
