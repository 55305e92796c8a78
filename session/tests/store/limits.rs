//! What is too large or too deep is refused, and what is just small enough comes back whole.

use greenroom_session::{
    event::Body,
    event::Opaque,
    limits::{MAX_EVENT_BYTES, MAX_INTEGER, MAX_MESSAGE_BYTES},
    message::{Message, Source},
    store::{Done, Op},
};
use serde_json::{Map, Value, json};

use crate::support::{Fixture, accept, append, mid, root, sid, turn};

crate::on_every_store!(
    the_largest_message_passes_and_becomes_a_turn,
    a_message_that_its_event_could_not_hold_is_refused,
    a_message_that_nests_too_deep_is_refused,
    an_event_that_is_too_large_or_too_deep_is_refused,
    an_event_whose_time_no_reader_would_take_is_refused,
    labels_and_texts_come_back_as_they_were,
);

fn the_largest_message_passes_and_becomes_a_turn(f: &Fixture) {
    f.root("r");
    let text = "x".repeat(MAX_MESSAGE_BYTES);
    f.accept("r", Message::turn("m", text.clone(), Source::User, 1).unwrap()).unwrap();
    let (_, claimed) = f.open("r", Some(1));
    assert_eq!(claimed.unwrap().taken, [0]);
    let log = f.load("r");
    assert!(matches!(&log.events.last().unwrap().body, Body::UserMessage(message) if message.content[0].len() == text.len()));
}

fn a_message_that_its_event_could_not_hold_is_refused(f: &Fixture) {
    f.root("r");
    // A control character takes six bytes of JSON.
    let long = Message::turn("m", "\u{1}".repeat(MAX_EVENT_BYTES / 6), Source::User, 1).unwrap();
    let done = f.store.commit(&[Op::Create(root("q", 1)), accept("r", long.clone()), accept("r", turn("n"))]).unwrap();
    assert_eq!(done[1].as_ref().unwrap_err().code(), "MESSAGE_TOO_LARGE");
    assert_eq!(done[2], Ok(Done::Accepted { order: 0, duplicate: false }));
    let mut create = root("p", 1);
    create.message = Some(std::sync::Arc::new(long));
    assert_eq!(f.one(Op::Create(create)).unwrap_err().code(), "MESSAGE_TOO_LARGE");
    assert_eq!(f.reader().header(&sid("p")).unwrap(), None);
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn a_message_that_nests_too_deep_is_refused(f: &Fixture) {
    f.root("r");
    let message = |levels| {
        let source = Source::Other(Map::from_iter([("kind".to_owned(), json!("odd")), ("deep".to_owned(), nested(levels))]));
        Message { source, ..turn("m") }
    };
    assert_eq!(f.accept("r", message(125)).unwrap_err().code(), "EVENT_TOO_DEEP");
    f.accept("r", message(124)).unwrap();
    f.open("r", Some(1));
    assert_eq!(f.load("r").fold.head().open.as_ref().unwrap().message, mid("m"));
}

fn an_event_that_is_too_large_or_too_deep_is_refused(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    let event = |data| Body::Opaque(Opaque { name: "odd/one".into(), data }).at(3, 1);
    let code = |data| f.one(append(&fence, vec![event(data)], vec![])).unwrap_err().code();
    assert_eq!(code(nested(128)), "EVENT_TOO_DEEP");
    assert_eq!(code(json!("x".repeat(MAX_EVENT_BYTES))), "EVENT_TOO_LARGE");
    assert_eq!(f.one(append(&fence, vec![event(nested(127))], vec![])), Ok(Done::Appended));
    assert_eq!(f.load("r").events[3], event(nested(127)));
}

fn an_event_whose_time_no_reader_would_take_is_refused(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    let memo = |time| Body::Opaque(Opaque { name: "odd/one".into(), data: json!(1) }).at(3, time);
    let plain = |time| Body::EndSeed {}.at(0, time);
    assert_eq!(f.one(append(&fence, vec![memo(MAX_INTEGER + 1)], vec![])).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.one(append(&fence, vec![memo(MAX_INTEGER)], vec![])), Ok(Done::Appended));
    assert_eq!(f.load("r").events[3].time, MAX_INTEGER);
    let mut create = root("q", 1);
    create.events = std::sync::Arc::new([plain(u64::MAX)]);
    assert_eq!(f.one(Op::Create(create)).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.reader().header(&sid("q")).unwrap(), None);
}

fn labels_and_texts_come_back_as_they_were(f: &Fixture) {
    let label = "Füße – 漢字 \u{1F3AD} \"quoted\" \\ back";
    let mut create = root("r", 1);
    create = greenroom_session::store::Create::root(create.session, "agent", label);
    f.create(create);
    assert!(matches!(f.describe("r").unwrap().verdict, greenroom_session::listing::Verdict::Root { label: found, .. } if found == label));
    let text = "line\nline\u{0}\u{7f}\u{2028}";
    f.accept("r", Message::turn("m", text, Source::User, 1).unwrap()).unwrap();
    assert_eq!(f.reader().inbox(&sid("r"), 1).unwrap()[0].message.text(), text);
}
