//! The inbox: acceptance, order, claims.

use greenroom_session::{
    event::TurnEnd,
    message::{Block, Control, Message, MessageKind, Source},
    store::{Accept, Append, ClaimKind, Done, MessageState, Op, Refused},
};

use crate::support::{Fixture, accept, append, fence, heard, mid, note, sid, turn};

crate::on_every_store!(
    messages_get_places_in_the_order_of_acceptance,
    the_same_message_again_is_the_same_acceptance_even_once_taken,
    another_body_under_a_known_id_is_a_conflict,
    a_full_inbox_is_busy_and_keeps_what_it_has,
    a_duplicate_is_accepted_however_full_the_inbox,
    requests_have_their_own_limit_and_are_never_turns,
    a_refused_operation_leaves_its_neighbours_unhurt,
    a_turn_goes_before_waking_notes_and_notes_join_before_it,
    a_waking_note_alone_opens_a_turn,
    a_quiet_note_alone_opens_none,
    a_message_that_was_cut_off_is_served_before_the_queue,
    notes_join_the_open_turn,
    no_second_turn_opens_beside_an_open_one,
    a_claim_of_a_moved_log_is_refused,
    states_of_messages_are_told,
    a_message_that_is_not_pending_cannot_be_taken,
    a_message_leaves_only_with_events,
    the_events_name_what_leaves_and_nothing_else_that_waits,
    unknown_sessions_take_nothing,
);

fn messages_get_places_in_the_order_of_acceptance(f: &Fixture) {
    f.root("r");
    let ops: Vec<Op> = (0..5).map(|n| accept("r", turn(&format!("m{n}")))).collect();
    let done = f.store.commit(&ops).unwrap();
    let orders: Vec<_> = done.into_iter().map(Result::unwrap).collect();
    assert_eq!(orders, (0..5).map(|order| Done::Accepted { order, duplicate: false }).collect::<Vec<_>>());
    let mut reader = f.reader();
    let ids = |limit, reader: &mut dyn greenroom_session::store::Reader| -> Vec<String> {
        reader.inbox(&sid("r"), limit).unwrap().iter().map(|record| record.message.id.to_string()).collect()
    };
    assert_eq!(ids(10, &mut *reader), ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(ids(2, &mut *reader), ["m0", "m1"]);
}

fn the_same_message_again_is_the_same_acceptance_even_once_taken(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.accept("r", turn("m1")).unwrap();
    let later = Message { sent_at: 99, ..turn("m0") };
    assert_eq!(f.accept("r", later.clone()), Ok(Done::Accepted { order: 0, duplicate: true }));
    f.open("r", Some(1));
    assert_eq!(f.accept("r", later), Ok(Done::Accepted { order: 0, duplicate: true }));
    assert_eq!(f.accept("r", turn("m2")), Ok(Done::Accepted { order: 2, duplicate: false }));
    assert_eq!(f.load("r").fold.head().pending_turns, 2);
}

fn another_body_under_a_known_id_is_a_conflict(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let other = Message { content: vec![Block::text("other")], ..turn("m0") };
    assert_eq!(f.accept("r", other.clone()), Err(Refused::MessageIdConflict(mid("m0"))));
    f.open("r", Some(1));
    assert_eq!(f.accept("r", other.clone()), Err(Refused::MessageIdConflict(mid("m0"))));
    // Ids are a session's own.
    f.root("q");
    assert!(f.accept("q", other).is_ok());
}

fn a_full_inbox_is_busy_and_keeps_what_it_has(f: &Fixture) {
    f.root("r");
    let limited = |message: Message| Op::Accept(Accept { inbox_limit: 2, note_limit: 1, ..Accept::new(sid("r"), message) });
    assert!(f.one(limited(turn("m0"))).is_ok());
    assert!(f.one(limited(turn("m1"))).is_ok());
    assert_eq!(f.one(limited(turn("m2"))), Err(Refused::Busy { pending: 2, limit: 2 }));
    assert!(f.one(limited(note("n0", true))).is_ok());
    assert_eq!(f.one(limited(note("n1", false))), Err(Refused::Busy { pending: 1, limit: 1 }));
    f.open("r", Some(1));
    assert!(f.one(limited(turn("m2"))).is_ok());
    assert_eq!(f.load("r").fold.head().pending_turns, 2);
}

fn a_duplicate_is_accepted_however_full_the_inbox(f: &Fixture) {
    f.root("r");
    let limited = |message: Message| Op::Accept(Accept { inbox_limit: 1, ..Accept::new(sid("r"), message) });
    f.one(limited(turn("m0"))).unwrap();
    assert_eq!(f.one(limited(turn("m0"))), Ok(Done::Accepted { order: 0, duplicate: true }));
    let other = Message { wake: false, ..turn("m0") };
    assert_eq!(f.one(limited(other)), Err(Refused::MessageIdConflict(mid("m0"))));
}

fn requests_have_their_own_limit_and_are_never_turns(f: &Fixture) {
    f.root("r");
    let control = |id: &str| Message::control(mid(id), Control::Interrupt { turn: None }, 1);
    let limited = |message: Message| Op::Accept(Accept { inbox_limit: 1, ..Accept::new(sid("r"), message) });
    f.one(limited(turn("m0"))).unwrap();
    f.one(limited(control("c0"))).unwrap();
    assert_eq!(f.one(limited(control("c1"))), Err(Refused::Busy { pending: 1, limit: 1 }));
    let (fence, claimed) = f.open("r", Some(1));
    assert_eq!(heard(&claimed.unwrap()), ["m0"]);
    f.end_turn(&fence, 1, TurnEnd::Completed);
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
    assert_eq!(f.load("r").fold.head().pending_controls, 1);
}

fn a_refused_operation_leaves_its_neighbours_unhurt(f: &Fixture) {
    f.root("r");
    f.root("q");
    f.accept("r", turn("m0")).unwrap();
    let conflict = Message { wake: false, ..turn("m0") };
    let ops = [
        accept("r", turn("m1")),
        accept("r", conflict),
        accept("nobody", turn("m2")),
        append(&fence("q", 4), vec![], vec![]),
        accept("q", turn("m2")),
        accept("r", turn("m2")),
    ];
    let codes: Vec<_> = f.store.commit(&ops).unwrap().into_iter().map(|done| done.map_err(|refused| refused.code())).collect();
    assert_eq!(
        codes,
        [
            Ok(Done::Accepted { order: 1, duplicate: false }),
            Err("MESSAGE_ID_CONFLICT"),
            Err("SESSION_NOT_FOUND"),
            Err("FENCED"),
            Ok(Done::Accepted { order: 0, duplicate: false }),
            Ok(Done::Accepted { order: 2, duplicate: false }),
        ]
    );
    assert_eq!(f.load("r").fold.head().pending_turns, 3);
}

fn a_turn_goes_before_waking_notes_and_notes_join_before_it(f: &Fixture) {
    f.root("r");
    for message in [note("n0", false), turn("m0"), note("n1", true), turn("m1")] {
        f.accept("r", message).unwrap();
    }
    let (fence, claimed) = f.open("r", Some(1));
    let claimed = claimed.unwrap();
    assert_eq!(heard(&claimed), ["n0", "n1", "m0"]);
    assert_eq!(claimed.taken, [1, 0, 2]);
    f.end_turn(&fence, 1, TurnEnd::Completed);
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m1"]);
    f.end_turn(&fence, 2, TurnEnd::Completed);
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
}

fn a_waking_note_alone_opens_a_turn(f: &Fixture) {
    f.root("r");
    f.accept("r", note("n0", true)).unwrap();
    f.accept("r", note("n1", false)).unwrap();
    let (_, claimed) = f.open("r", Some(1));
    assert_eq!(heard(&claimed.unwrap()), ["n0", "n1"]);
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.pending(), head.open.unwrap().message), (0, mid("n1")));
}

fn a_quiet_note_alone_opens_none(f: &Fixture) {
    f.root("r");
    f.accept("r", note("n0", true)).unwrap();
    let (fence, claimed) = f.open("r", Some(1));
    assert_eq!(claimed, None);
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
    assert_eq!(f.claim(&fence, ClaimKind::Notes), None);
    assert_eq!(f.load("r").fold.head().pending_quiet, 1);
}

fn a_message_that_was_cut_off_is_served_before_the_queue(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.accept("r", turn("m1")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.end_turn(&fence, 1, TurnEnd::Interrupted);
    f.accept("r", note("n0", true)).unwrap();
    let claimed = f.claim(&fence, ClaimKind::Turn).unwrap();
    assert_eq!(heard(&claimed), ["n0"]);
    let open = f.load("r").fold.head().open.clone().unwrap();
    assert_eq!((open.message, open.attempt, open.turn), (mid("m0"), 2, 2));
    assert_eq!(f.load("r").fold.head().pending_turns, 1);
}

fn notes_join_the_open_turn(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    for message in [note("n0", true), turn("m1"), note("n1", false)] {
        f.accept("r", message).unwrap();
    }
    let claimed = f.claim(&fence, ClaimKind::Notes).unwrap();
    assert_eq!((heard(&claimed), claimed.taken), (vec!["n0".to_owned(), "n1".to_owned()], vec![1, 3]));
    assert_eq!(f.claim(&fence, ClaimKind::Notes), None);
    assert_eq!(f.load("r").fold.head().pending(), 1);
}

fn no_second_turn_opens_beside_an_open_one(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.accept("r", turn("m1")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
    assert_eq!(f.load("r").fold.head().pending_turns, 1);
}

fn a_claim_of_a_moved_log_is_refused(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", None);
    let claim = greenroom_session::store::Claim { fence, first_seq: 2, kind: ClaimKind::Turn, time: 1 };
    assert_eq!(f.one(Op::Claim(claim)), Err(Refused::Moved { stored: 3 }));
}

fn states_of_messages_are_told(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.accept("r", turn("m1")).unwrap();
    f.open("r", Some(1));
    let mut reader = f.reader();
    assert_eq!(reader.message(&sid("r"), &mid("m0")).unwrap(), Some(MessageState::Taken(0)));
    assert_eq!(reader.message(&sid("r"), &mid("m1")).unwrap(), Some(MessageState::Pending(1)));
    assert_eq!(reader.message(&sid("r"), &mid("m2")).unwrap(), None);
    assert_eq!(reader.message(&sid("nobody"), &mid("m2")).unwrap_err().code(), "SESSION_NOT_FOUND");
}

fn a_message_that_is_not_pending_cannot_be_taken(f: &Fixture) {
    use greenroom_session::event::Body;
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", None);
    let withdrawn = |seq: u64| vec![Body::MessageWithdrawn { message: mid("m0"), by: "user".into() }.at(seq, 1)];
    assert_eq!(f.one(append(&fence, withdrawn(3), vec![0, 7])), Err(Refused::NotPending(7)));
    assert_eq!(f.load("r").fold.head().pending_turns, 1);
    assert_eq!(f.one(append(&fence, withdrawn(3), vec![0])), Ok(Done::Appended));
    assert_eq!(f.one(append(&fence, withdrawn(4), vec![0])), Err(Refused::NotPending(0)));
    assert_eq!(f.one(append(&fence, withdrawn(4), vec![u64::MAX])), Err(Refused::NotPending(u64::MAX)));
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.pending_turns, head.next_order, head.next_seq), (0, 1, 4));
}

fn a_message_leaves_only_with_events(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", None);
    let refused = f.one(Op::Append(Append { fence, events: std::sync::Arc::new([]), take: vec![0] })).unwrap_err();
    assert_eq!(refused.code(), "EVENT_INVALID");
}

fn the_events_name_what_leaves_and_nothing_else_that_waits(f: &Fixture) {
    use greenroom_session::event::Body;
    f.root("r");
    for message in [turn("m0"), turn("m1"), note("n0", true)] {
        f.accept("r", message).unwrap();
    }
    let (fence, _) = f.open("r", None);
    let withdrawn = |id: &str| vec![Body::MessageWithdrawn { message: mid(id), by: "user".into() }.at(3, 1)];
    for (named, take) in [("m0", vec![]), ("nobody", vec![0]), ("m0", vec![1]), ("m0", vec![0, 1]), ("n0", vec![0])] {
        assert_eq!(f.one(append(&fence, withdrawn(named), take.clone())).unwrap_err().code(), "EVENT_INVALID", "{named} {take:?}");
    }
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.next_seq, head.pending_turns, head.pending_quiet), (3, 2, 1));
    assert_eq!(f.one(append(&fence, withdrawn("n0"), vec![2, 2])), Ok(Done::Appended));
}

fn unknown_sessions_take_nothing(f: &Fixture) {
    assert_eq!(f.accept("nobody", turn("m")), Err(Refused::NotFound(sid("nobody"))));
    assert_eq!(f.one(append(&fence("nobody", 1), vec![], vec![])), Err(Refused::NotFound(sid("nobody"))));
    let message = Message::with(mid("m"), MessageKind::Note, vec![], Source::Host, 1, true).unwrap();
    assert_eq!(f.accept("nobody", message), Err(Refused::NotFound(sid("nobody"))));
}
