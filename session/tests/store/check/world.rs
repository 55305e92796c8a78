//! A store with every kind of row, and what a check finds in a store.

use std::path::Path;

use greenroom_session::{
    check::{Seen, check},
    event::{Body, TurnEnd},
    id::SessionId,
    message::{Control, Message},
    store::{ClaimKind, sqlite::open_reader},
};

use crate::support::{Fixture, append, child, mid, note, turn};

/// A store with every kind of row: a root that has turns behind it, messages of all kinds waiting and gone, children with aliases, an orphan.
pub(super) fn busy() -> Fixture {
    let f = Fixture::sqlite();
    f.root("r");
    f.create(child("c1", "r", Some("a"), 1_000));
    f.create(child("c2", "r", Some("b"), 1_000));
    f.create(child("o", "nobody", None, 1_000));
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.accept("r", note("n0", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    for message in [turn("m1"), note("n1", true), Message::control(mid("k0"), Control::Interrupt { turn: None }, 1), turn("m2")] {
        f.accept("r", message).unwrap();
    }
    let answered = Body::ControlAnswered { control: mid("k0"), op: "interrupt".into(), outcome: "done".into() };
    let withdrawn = Body::MessageWithdrawn { message: mid("m2"), by: "user".into() };
    let seq = f.next_seq("r");
    f.one(append(&fence, vec![answered.at(seq, 5), withdrawn.at(seq + 1, 5)], vec![4, 5])).unwrap();
    f.accept("c1", turn("m0")).unwrap();
    f
}

/// What a check of the whole store finds, as `session place: class`.
pub(super) fn found(path: &Path) -> Vec<String> {
    found_in(path, None)
}

pub(super) fn found_in(path: &Path, only: Option<&SessionId>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = open_reader(path).unwrap();
    check(&mut reader, only, &mut |seen| {
        if let Seen::Finding(finding) = seen {
            let session = finding.session.map_or_else(String::new, |id| format!("{id} "));
            found.push(format!("{session}{}: {}", finding.place, finding.class));
        }
    })
    .unwrap();
    found
}

/// The one notice of [`busy`].
pub(super) const HEALTHY: &str = "o header: orphan";
