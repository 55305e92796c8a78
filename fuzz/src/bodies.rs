// What each fuzz target does with its input. The tests of the project run these over the corpus, too (`tests/it/fuzzed.rs`), so they need no fuzzer.

use std::{fs, path::Path, sync::OnceLock};

use greenroom::program::Program;
use greenroom_session::{
    check::check,
    codec::{decode_event, decode_header, decode_message, encode_event, encode_header, encode_message, event_crc, header_crc, message_crc},
    descriptor::Descriptor,
    id::SessionId,
    store::{
        Reader, Store,
        jsonl::{JsonlStore, open_reader},
        memory::MemoryStore,
    },
    transfer::import_folder,
};

/// The session that everything is said of.
fn id() -> SessionId {
    SessionId::new("odd").unwrap()
}

/// An empty store for the files of this process.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            JsonlStore::open(folder.path()).unwrap().close().unwrap();
            fs::create_dir_all(folder.path().join("desk")).unwrap();
            folder
        })
        .path()
}

/// Gives each line the checksum that fits it, as far as it looks like a record: no fuzzer guesses one.
fn sealed(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        let (text, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |text| (text, &b"\n"[..]));
        match text.strip_suffix(b"}") {
            Some(text) => {
                let mut body = text.to_vec();
                body.push(b'}');
                let crc = event_crc(&id(), &body);
                bytes.extend_from_slice(text);
                bytes.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}").as_bytes());
            }
            None => bytes.extend_from_slice(text),
        }
        bytes.extend_from_slice(end);
    }
    bytes
}

/// Reads a file of JSON Lines, whatever it is. The first byte says whether its lines get checksums that fit.
pub fn jsonl_reader(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    let bytes = if how % 2 == 0 { rest.to_vec() } else { sealed(rest) };
    let (folder, session) = (folder(), id());
    fs::write(folder.join("desk/odd.jsonl"), &bytes).unwrap();
    let mut reader = open_reader(folder).unwrap();
    let loaded = reader.load(&session);
    let mut findings = 0;
    check(&mut reader, None, &mut |seen| findings += usize::from(matches!(seen, greenroom_session::check::Seen::Finding(_)))).unwrap();
    drop(reader.family(None, None, 10, true).unwrap());
    drop(reader.events(&session, 0, 1_000));
    let mut exported = Vec::new();
    let whole = reader.export(&session, &mut |line| {
        exported.push(line.to_vec());
        Ok(())
    });
    match &loaded {
        Ok(log) => {
            // What is read is read the same way again, and says of itself what it is.
            assert_eq!(reader.load(&session).unwrap().events, log.events);
            assert!(whole.is_ok() && exported.len() > log.events.len());
            assert_eq!(log.fold.head().next_seq, log.events.len() as u64);
        }
        Err(_) => assert!(findings > 0 || bytes.is_empty(), "it cannot be read and nobody says why"),
    }
    // An import takes it whole or not at all.
    let store = MemoryStore::new();
    let report = import_folder(&store, folder, true, &mut |_| {}).unwrap();
    if report.imported == 1 {
        let log = store.reader().unwrap().load(&session).unwrap();
        assert_eq!(loaded.unwrap().events, log.events);
    }
}

/// Decodes an event, a header and a message, whatever they are; what is one is written as it was read.
pub fn event_codec(input: &[u8]) {
    let session = id();
    for seq in [0, 7] {
        if let Ok(event) = decode_event(&session, seq, input, event_crc(&session, input)) {
            let encoded = encode_event(&session, &event).expect("what is read can be written");
            let again = decode_event(&session, seq, &encoded.body, encoded.crc).expect("what is written can be read");
            assert_eq!(again, event);
            assert_eq!(encode_event(&session, &again).unwrap().body, encoded.body);
        }
    }
    if let Ok(header) = decode_header(&session, input, header_crc(input)) {
        let encoded = encode_header(&header).expect("what is read can be written");
        assert_eq!(decode_header(&session, &encoded.body, encoded.crc).unwrap(), header);
    }
    for held in [false, true] {
        if let Ok(message) = decode_message(&session, 3, held, input, message_crc(&session, 3, held, input)) {
            let body = encode_message(&message).expect("what is read can be written");
            let again = decode_message(&session, 3, held, &body, message_crc(&session, 3, held, &body)).unwrap();
            assert_eq!(again, message);
            assert_eq!(again.hash(), message.hash());
        }
    }
}

/// Parses a descriptor, whatever it is; what is one says the same once more.
pub fn descriptor(input: &[u8]) {
    let Ok(value) = serde_json::from_slice(input) else { return };
    if let Ok(descriptor) = Descriptor::parse(&value) {
        let said = serde_json::to_value(&descriptor).unwrap();
        assert_eq!(Descriptor::parse(&said).unwrap(), descriptor);
        drop(descriptor.check_new());
    }
}

/// Parses a program file, whatever it is; every mistake has a place in it.
pub fn program_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Err(errors) = Program::parse(text, "fuzzed.toml", Path::new("/nowhere")) {
        assert!(!errors.mistakes().is_empty());
        let lines = text.lines().count().max(1) + 1;
        for mistake in errors.mistakes() {
            assert!(!mistake.to_string().is_empty());
            let position = mistake.position;
            assert!(position.line >= 1 && position.column >= 1 && position.line <= lines, "{mistake}");
        }
    }
}
