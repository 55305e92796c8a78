use serde_json::{Value, json};

use super::*;
use crate::{
    event::{Opaque, Role, RootOpened, SurfaceMessage},
    header::NewSession,
};

fn id() -> SessionId {
    SessionId::new("a").unwrap()
}

fn opaque(data: Value) -> Event {
    Body::Opaque(Opaque { name: "weather/changed".into(), data }).at(3, 7)
}

fn read_event(body: &str) -> Result<Event, DecodeError> {
    decode_event(&id(), 3, body.as_bytes(), event_crc(&id(), body.as_bytes()))
}

#[test]
fn a_header_is_read_only_if_it_holds_what_a_header_holds() {
    let read = |body: &str| decode_header(&id(), body.as_bytes(), header_crc(body.as_bytes()));
    let whole = r#"{"version":1,"id":"a","parent":"p","created_at":5,"seed_length":2,"depth":1,"cwd":"/srv"}"#;
    assert!(read(whole).is_ok());
    for (field, good, values) in [
        ("version\":1", true, &["1"][..]),
        ("version\":1", false, &["0", "2", "-1", "1.0", "1.5", "\"1\"", "null", "18446744073709551615"]),
        ("id\":\"a\"", false, &["\"\"", "\"b\"", "1", "null", "\"a\\u0000\"", "\"\\ud800\""]),
        ("parent\":\"p\"", true, &["\"a/b\"", "\"..\""]),
        ("parent\":\"p\"", false, &["\"\"", "1", "null", "\"p\\u0000\""]),
        ("created_at\":5", true, &["0", "9007199254740991"]),
        ("created_at\":5", false, &["-1", "-0", "1.5", "5.0", "9007199254740992", "\"5\"", "null", "1e3"]),
        ("seed_length\":2", true, &["0", "9007199254740991"]),
        ("seed_length\":2", false, &["-1", "-0", "1.5", "9007199254740992", "null"]),
        ("depth\":1", true, &["0", "3000"]),
        ("depth\":1", false, &["-1", "-0", "1.5", "4294967296", "\"1\"", "null"]),
        ("cwd\":\"/srv\"", true, &["\"/\"", "\"/srv/desk\""]),
        ("cwd\":\"/srv\"", false, &["\"\"", "\"srv\"", "\"./srv\"", "\"~/srv\"", "1", "null"]),
    ] {
        let key = field.split_once("\":").unwrap().0;
        for value in values {
            let body = whole.replace(field, &format!("{key}\":{value}"));
            assert_eq!(read(&body).is_ok(), good, "{body}");
        }
    }
    for (what, body) in [
        ("an unknown key", whole.replace("\"depth\"", "\"colour\":\"red\",\"depth\"")),
        ("a key twice", whole.replace("\"depth\":1", "\"depth\":1,\"depth\":2")),
        ("no depth", whole.replace(",\"depth\":1", "")),
        ("no time", whole.replace(",\"created_at\":5", "")),
        ("no id", whole.replace(",\"id\":\"a\"", "")),
        ("no version", whole.replace("\"version\":1,", "")),
        ("more behind it", format!("{whole} {{}}")),
        ("no object", format!("[{whole}]")),
    ] {
        assert_eq!(read(&body).unwrap_err().code(), "SESSION_CORRUPT", "{what}");
    }
    // The version is looked at first, whatever else is there.
    for body in [r#"{"version":2}"#, r#"{"version":2,"id":7,"colour":null}"#, r#"{"version":2,"id":"b","created_at":-0,"depth":0}"#] {
        assert_eq!(read(body), Err(DecodeError::Version(2)), "{body}");
    }
}

#[test]
fn a_header_that_no_reader_takes_is_not_written() {
    let header = || NewSession { cwd: Some("/srv".into()), ..NewSession::root(id()) }.at(5);
    assert!(encode_header(&header()).is_ok());
    for (what, header) in [
        ("version", Header { version: 2, ..header() }),
        ("created_at", Header { created_at: MAX_INTEGER + 1, ..header() }),
        ("seed_length", Header { seed_length: MAX_INTEGER + 1, ..header() }),
        ("cwd", Header { cwd: Some("srv".into()), ..header() }),
        ("no cwd", Header { cwd: Some(String::new()), ..header() }),
    ] {
        assert_eq!(encode_header(&header).unwrap_err().code(), "EVENT_INVALID", "{what}");
    }
    for created_at in [0, MAX_INTEGER] {
        let header = Header { created_at, ..header() };
        let Encoded { body, crc } = encode_header(&header).unwrap();
        assert_eq!(decode_header(&id(), &body, crc), Ok(header));
    }
}

#[test]
fn free_data_comes_back_as_it_was_or_is_refused_with_its_place() {
    let numbers = json!([0, -1, 9_007_199_254_740_993_u64, u64::MAX, i64::MIN, 0.1, 1e300, 5e-324, f64::MAX, 0.1 + 0.2, 1.0, 2_f64.powi(63)]);
    let texts = json!({"": "", "\u{0}": "\u{1F3AD}\u{2028}", "a\"b": "\\", "e\u{301}": "é", "null": null});
    for data in [json!(null), json!(1), numbers, texts, json!({"a": {"a": {"a": []}}})] {
        let event = opaque(data.clone());
        let Encoded { body, crc } = encode_event(&id(), &event).unwrap();
        let back = decode_event(&id(), 3, &body, crc).unwrap();
        assert_eq!(back, event);
        let Body::Opaque(Opaque { data: found, .. }) = back.body else { panic!("{back:?}") };
        assert_eq!(found.to_string(), data.to_string());
    }
    // An infinity or no number cannot be in a value: it becomes null before it comes here.
    assert_eq!((json!(f64::NAN), json!(f64::INFINITY)), (Value::Null, Value::Null));
    let error = encode_event(&id(), &opaque(json!({"wind": [1, {"x": -0.0}]}))).unwrap_err();
    assert_eq!(error.code(), "EVENT_INVALID");
    let told = error.to_string();
    assert!(told.contains("a negative zero at /data/wind/1/x (byte ") && told.contains("weather/changed"), "{told}");
}

#[test]
fn what_cannot_come_back_is_neither_written_nor_read() {
    let opened = |params| {
        Body::RootOpened(RootOpened {
            label: "l".into(),
            agent: "a".into(),
            program_sha256: None,
            vars: [].into(),
            seed: None,
            params: Some(params),
            model: None,
        })
        .at(0, 7)
    };
    let said = |usage| {
        let message = SurfaceMessage { id: MessageId::new("a").unwrap(), role: Role::Assistant, content: vec![], source: Source::Agent { name: "a".into() } };
        Body::AssistantMessage { turn: 1, step: 0, message, usage: Some(usage), stop: None }.at(0, 7)
    };
    let from = |source: Value| {
        let source: Source = serde_json::from_value(source).unwrap();
        Body::UserMessage(SurfaceMessage { id: MessageId::new("a").unwrap(), role: Role::User, content: vec![Block::text("x")], source }).at(0, 7)
    };
    let known = |name: &str| Body::Opaque(Opaque { name: name.into(), data: json!({}) }).at(0, 7);
    for (what, event, taken) in [
        ("params", opened(json!({"a": [null, 0.5]})), true),
        ("params with a signed zero", opened(json!({"a": [-0.0]})), false),
        ("params that are null, which reads as none", opened(Value::Null), false),
        ("usage", said(json!({"tokens": 1})), true),
        ("usage with a signed zero", said(json!(-0.0)), false),
        ("usage that is null", said(Value::Null), false),
        ("an unknown source", from(json!({"kind": "oracle", "voice": {"of": [1.5]}})), true),
        ("an unknown source with a signed zero", from(json!({"kind": "oracle", "voice": -0.0})), false),
        ("a descriptor", Body::Descriptor(json!({"version": 1, "label": null})).at(0, 7), true),
        ("a descriptor with a signed zero", Body::Descriptor(json!({"ext": {"x": -0.0}})).at(0, 7), false),
        ("a type that is not known", known("odd/one"), true),
        ("a known type without its shape", known("turn/start"), false),
        ("a type of the surface without its shape", known("user/message"), false),
    ] {
        let checked = check_event(&event).map_err(|error| error.code());
        assert_eq!(checked, if taken { Ok(()) } else { Err("EVENT_INVALID") }, "{what}");
        match encode_event(&id(), &event) {
            Ok(Encoded { body, crc }) => {
                assert!(taken, "{what}");
                assert_eq!(decode_event(&id(), 0, &body, crc).as_ref(), Ok(&event), "{what}");
            }
            Err(error) => assert!(!taken, "{what}: {error}"),
        }
    }
    for (data, told, at) in [
        (r#"{"a":1,"b":{"c":2,"c":3}}"#, "a key that stands there twice at /data/b/c", 18),
        (r#"{"a":-0}"#, "a negative zero at /data/a", 5),
        (r#"{"a":[1,-0.0]}"#, "a negative zero at /data/a/1", 8),
        (r#"{"a":36893488147419103232}"#, "an integer of more than 64 bits at /data/a", 5),
        (r#"{"a":"\udead"}"#, "a lone surrogate at /data/a", 6),
    ] {
        let front = |kind: &str| format!(r#"{{"seq":3,"time":7,"type":"{kind}","data":"#);
        let read = |kind: &str| read_event(&format!("{}{data}}}", front(kind)));
        let told = format!("{told} (byte {})", front("weather/changed").len() + at);
        assert_eq!(read("weather/changed"), Err(DecodeError::Malformed(told)), "{data}");
        // Where a known type does not look, it is damage, too.
        assert_eq!(read("session/end-seed").map_err(|error| error.code()), Err("SESSION_CORRUPT"), "{data}");
    }
}

#[test]
fn an_envelope_holds_its_keys_and_no_other() {
    let whole = r#"{"seq":3,"time":7,"type":"odd/one","data":{"x":1},"ignorable":true}"#;
    assert!(read_event(whole).is_ok());
    let with = |from: &str, to: &str| whole.replace(from, to);
    for (what, body) in [
        ("an unknown key", with("\"data\"", "\"colour\":1,\"data\"")),
        ("a key twice", with("\"data\"", "\"seq\":3,\"data\"")),
        ("another seq", with("\"seq\":3", "\"seq\":4")),
        ("a seq of no number", with("\"seq\":3", "\"seq\":\"3\"")),
        ("a fraction of a time", with("\"time\":7", "\"time\":7.5")),
        ("a time before all time", with("\"time\":7", "\"time\":-1")),
        ("a signed zero as a time", with("\"time\":7", "\"time\":-0")),
        ("a time out of range", with("\"time\":7", "\"time\":9007199254740992")),
        ("a type of no text", with("\"odd/one\"", "1")),
        ("no type", with("\"type\":\"odd/one\",", "")),
        ("no data", with("\"data\":{\"x\":1},", "")),
        ("an operation that is not known", with("\"ignorable\":true", "\"surface_op\":\"prepend\"")),
        ("a replacement without an end", with("\"ignorable\":true", "\"surface_op\":{\"op\":\"replace\",\"start\":1}")),
        ("a replacement with more", with("\"ignorable\":true", "\"surface_op\":{\"op\":\"replace\",\"start\":1,\"end\":2,\"x\":3}")),
        ("a replacement before the start", with("\"ignorable\":true", "\"surface_op\":{\"op\":\"replace\",\"start\":-1,\"end\":2}")),
        ("an append with a range", with("\"ignorable\":true", "\"surface_op\":{\"op\":\"append\",\"start\":1,\"end\":2}")),
        ("sources that are no numbers", with("\"ignorable\":true", "\"source_event_seqs\":[\"1\"]")),
        ("a source before the start", with("\"ignorable\":true", "\"source_event_seqs\":[-1]")),
        ("data that ends early", with("{\"x\":1}", "{\"x\":1")),
        ("nested too deep", with("{\"x\":1}", &format!("{}1{}", "[".repeat(128), "]".repeat(128)))),
    ] {
        assert_eq!(read_event(&body).unwrap_err().code(), "SESSION_CORRUPT", "{what}");
    }
}

#[test]
fn a_message_that_would_change_is_not_accepted() {
    let message = |source: Value| Message { source: serde_json::from_value(source).unwrap(), ..Message::turn("m", "x", Source::User, 5).unwrap() };
    for (source, taken) in [(json!({"kind": "oracle", "x": [null, 0.25]}), true), (json!({"kind": "oracle", "x": -0.0}), false)] {
        let message = message(source.clone());
        assert_eq!(check_message(&message).map_err(|error| error.code()), if taken { Ok(()) } else { Err("EVENT_INVALID") }, "{source}");
        if let Ok(body) = encode_message(&message) {
            assert_eq!(decode_message(&id(), 0, false, &body, message_crc(&id(), 0, false, &body)), Ok(message), "{source}");
        }
    }
    let body = br#"{"id":"m","kind":"turn","content":[],"source":{"kind":"oracle","x":1,"x":2},"sent_at":5,"wake":true}"#;
    assert_eq!(decode_message(&id(), 0, false, body, message_crc(&id(), 0, false, body)).unwrap_err().code(), "SESSION_CORRUPT");
}

/// Makes an event that holds this many bytes.
type Maker<'a> = Box<dyn Fn(usize) -> Event + 'a>;

#[test]
fn an_event_is_checked_as_it_would_be_written_whatever_makes_it_large() {
    let text = |bytes: usize| "\u{1}".repeat(bytes);
    let message = |bytes| SurfaceMessage {
        id: MessageId::new("a").unwrap(),
        role: Role::User,
        content: vec![Block::text(text(bytes))],
        source: Source::Agent { name: "a".into() },
    };
    let m = || MessageId::new("m").unwrap();
    let summary = |bytes: usize, seqs: usize| Body::CompactSummary {
        start: 0,
        end: 0,
        shadowed_seqs: vec![MAX_INTEGER; seqs],
        text: Some(text(bytes)),
        provider: None,
        model: None,
        tokens: None,
    };
    let makers: Vec<(&str, Maker<'_>)> = vec![
        ("a user", Box::new(|bytes| Body::UserMessage(message(bytes)).at(0, 7))),
        ("an agent", Box::new(|bytes| Body::AssistantMessage { turn: 1, step: 0, message: message(bytes), usage: None, stop: None }.at(0, 7))),
        ("a tool", Box::new(|bytes| Body::ToolResult { turn: 1, step: 1, message: message(bytes), error: None }.at(0, 7))),
        ("a call", Box::new(|bytes| Body::ToolCall { turn: 1, step: 1, call_id: "c".into(), name: "n".into(), arguments: text(bytes) }.at(0, 7))),
        ("a memo", Box::new(|bytes| Body::Memo { turn: 1, message: m(), key: None, text: text(bytes) }.at(0, 7))),
        ("an answer", Box::new(|bytes| Body::AnswerRecorded { message: m(), attempt: 1, text: text(bytes) }.at(0, 7))),
        ("the end of a turn", Box::new(|bytes| Body::TurnEnd { turn: 1, reason: TurnEnd::error("X", text(bytes)) }.at(0, 7))),
        ("notes", Box::new(|bytes| Body::NoteJoined { turn: 1, notes: vec![MessageId::new("\u{1}".repeat(500)).unwrap(); bytes / 500 + 1] }.at(0, 7))),
        ("a summary", Box::new(move |bytes| summary(bytes, 0).at(0, 7))),
        ("a summary of many", Box::new(move |bytes| summary(0, bytes / 3).at(0, 7))),
        ("a replacement of many", Box::new(|bytes| Event { source_event_seqs: Some(vec![MAX_INTEGER; bytes / 3]), ..Body::UserMessage(message(1)).at(0, 7) })),
        (
            "a root",
            Box::new(|bytes| {
                let vars = [("x".to_owned(), text(bytes))].into();
                Body::RootOpened(RootOpened { label: "l".into(), agent: "a".into(), program_sha256: None, vars, seed: None, params: None, model: None })
                    .at(0, 7)
            }),
        ),
    ];
    for (what, maker) in makers {
        for (bytes, taken) in [(1, true), (SMALL, true), (3 * SMALL, false)] {
            let event = maker(bytes);
            let expected = if taken { Ok(()) } else { Err("EVENT_TOO_LARGE") };
            assert_eq!(check_event(&event).map_err(|error| error.code()), expected, "{what}: {bytes}");
            assert_eq!(encode_event(&id(), &event).map(|_| ()).map_err(|error| error.code()), expected, "{what}: {bytes}");
        }
    }
}
