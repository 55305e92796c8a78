//! Creation: idempotent, ordered, with aliases of their own.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Descriptor,
    event::Body,
    header::NewSession,
    limits::MAX_INTEGER,
    store::{Done, Op, Refused},
};

use crate::support::{Fixture, accept, child, root, sid, turn};

crate::on_every_store!(
    the_same_creation_again_is_the_same_acceptance,
    another_creation_of_the_same_id_is_refused,
    a_creation_brings_its_first_message,
    a_creation_without_a_message_differs_from_one_with_it,
    siblings_are_never_older_than_those_before_them,
    roots_keep_their_own_time,
    an_alias_is_taken_once_per_parent,
    an_inherited_prefix_brings_no_descriptor,
    a_malformed_seed_is_refused_and_leaves_nothing,
    a_header_that_no_reader_would_take_is_refused_and_leaves_nothing,
);

fn the_same_creation_again_is_the_same_acceptance(f: &Fixture) {
    let first = f.root("r");
    let again = f.one(Op::Create(root("r", 9_999))).unwrap();
    assert_eq!(again, Done::Created { header: first.clone(), existing: true });
    f.accept("r", turn("m")).unwrap();
    f.open("r", Some(1));
    assert_eq!(f.one(Op::Create(root("r", 1))).unwrap(), Done::Created { header: first, existing: true });
}

fn another_creation_of_the_same_id_is_refused(f: &Fixture) {
    f.root("r");
    let mut other = root("r", 1_000);
    other.session.cwd = Some("/elsewhere".into());
    assert_eq!(f.one(Op::Create(other)), Err(Refused::Exists(sid("r"))));
    let mut other = root("r", 1_000);
    other.events = Arc::new([Body::EndSeed {}.at(0, 1)]);
    assert_eq!(f.one(Op::Create(other)), Err(Refused::Exists(sid("r"))));
    assert_eq!(f.load("r").events.len(), 2);
}

fn a_creation_brings_its_first_message(f: &Fixture) {
    let mut create = root("r", 1_000);
    create.message = Some(Arc::new(turn("m0")));
    f.create(create.clone());
    assert_eq!(f.load("r").fold.head().pending_turns, 1);
    assert_eq!(f.accept("r", turn("m0")), Ok(Done::Accepted { order: 0, duplicate: true }));
    assert!(matches!(f.one(Op::Create(create)), Ok(Done::Created { existing: true, .. })));
}

fn a_creation_without_a_message_differs_from_one_with_it(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let mut create = root("r", 1_000);
    create.message = Some(Arc::new(turn("m0")));
    assert_eq!(f.one(Op::Create(create)), Err(Refused::Exists(sid("r"))));
}

fn siblings_are_never_older_than_those_before_them(f: &Fixture) {
    f.create(root("r", 5_000));
    assert_eq!(f.create(child("b", "r", None, 10)).created_at, 5_000);
    assert_eq!(f.create(child("c", "r", None, 7_000)).created_at, 7_000);
    assert_eq!(f.create(child("a", "r", None, 6_000)).created_at, 7_000);
    let ids: Vec<_> = f.reader().children(Some(&sid("r")), None, 10).unwrap().into_iter().map(|child| child.id.to_string()).collect();
    assert_eq!(ids, ["b", "a", "c"]);
}

fn roots_keep_their_own_time(f: &Fixture) {
    f.create(root("late", 9_000));
    assert_eq!(f.create(root("early", 10)).created_at, 10);
}

fn an_alias_is_taken_once_per_parent(f: &Fixture) {
    f.root("r");
    f.root("q");
    f.create(child("a", "r", Some("anna"), 1));
    assert_eq!(f.one(Op::Create(child("b", "r", Some("anna"), 1))), Err(Refused::AliasTaken("anna".into())));
    assert_eq!(f.reader().header(&sid("b")).unwrap(), None);
    f.create(child("b", "r", Some("bert"), 1));
    f.create(child("c", "q", Some("anna"), 1));
    let mut reader = f.reader();
    assert_eq!(reader.alias(&sid("r"), "anna").unwrap(), Some(sid("a")));
    assert_eq!(reader.alias(&sid("q"), "anna").unwrap(), Some(sid("c")));
    assert_eq!(reader.alias(&sid("q"), "bert").unwrap(), None);
    assert_eq!(reader.alias(&sid("nobody"), "anna").unwrap(), None);
}

fn an_inherited_prefix_brings_no_descriptor(f: &Fixture) {
    f.root("r");
    f.create(child("a", "r", None, 1));
    let inherited = f.load("a").events;
    let descriptor = Descriptor::continuable("fork", "a copy", "reporter");
    let create = greenroom_session::store::Create::child(NewSession::child(sid("b"), sid("r"), 0), inherited, &descriptor, None, 5).unwrap();
    f.create(create);
    let log = f.load("b");
    assert_eq!((log.events.len(), log.fold.header().seed_length), (4, 2));
    assert!(
        matches!(f.describe("b").unwrap().verdict, greenroom_session::listing::Verdict::Child { label: Some(label), descriptor: 2, .. } if label == "a copy")
    );
}

fn a_malformed_seed_is_refused_and_leaves_nothing(f: &Fixture) {
    let mut create = root("r", 1);
    create.events = Arc::new([Body::EndSeed {}.at(1, 1)]);
    let results = f.store.commit(&[Op::Create(create), Op::Create(root("q", 1)), accept("q", turn("m"))]).unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().code(), "EVENT_INVALID");
    assert!(results[1].is_ok() && results[2].is_ok());
    assert_eq!(f.reader().header(&sid("r")).unwrap(), None);
}

fn a_header_that_no_reader_would_take_is_refused_and_leaves_nothing(f: &Fixture) {
    f.root("r");
    for wrong in ["relative", "./dot", ""] {
        let mut create = child("a", "r", Some("anna"), 1);
        create.session.cwd = Some(wrong.into());
        assert_eq!(f.one(Op::Create(create)).unwrap_err().code(), "EVENT_INVALID", "{wrong:?}");
    }
    let mut create = child("a", "r", Some("anna"), 1);
    create.session.seed_length = MAX_INTEGER + 1;
    assert_eq!(f.one(Op::Create(create)).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.reader().header(&sid("a")).unwrap(), None);
    assert!(f.reader().children(Some(&sid("r")), None, 9).unwrap().is_empty());
    // The alias was not taken.
    let mut create = child("b", "r", Some("anna"), 1);
    create.session.cwd = Some("/absolute".into());
    assert_eq!(f.create(create).cwd.as_deref(), Some("/absolute"));
    assert_eq!(f.load("b").fold.header().cwd.as_deref(), Some("/absolute"));
}
