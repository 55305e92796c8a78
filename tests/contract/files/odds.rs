//! Every fixture, and how it comes about.

use super::*;

/// Every fixture.
pub(crate) const ODDS: &[Odd] = &[
    odd("whole", "no fault at all", Make::Lines(|_| {}, None)),
    // Ends.
    odd("torn-record", "the last record is cut off in its middle", Make::Lines(|text| text[LAST].truncate(60), None)),
    odd("torn-line-feed", "the last record is whole and has no line feed", Make::Lines(|text| _ = text[LAST].pop(), None)),
    odd("torn-batch", "the last batch has no end", Make::Lines(|text| text.truncate(11), None)),
    odd("torn-page", "the last record is a run of NULs with a line feed", Make::Lines(|text| text[LAST] = [vec![0; 200], b"\n".to_vec()].concat(), None)),
    odd("rotten-end", "the text of the last record was changed", Make::Lines(|text| text[LAST][60] ^= 1, None)),
    odd("lost-end", "the last messages are missing", Make::Lines(|text| text.truncate(13), Some("DELETE FROM inbox WHERE sid = {sid} AND ord > 0"))),
    // Bytes.
    odd(
        "bad-line",
        "a line in the middle is no record",
        Make::Lines(|text| text[MEMO] = b"dear diary\n".to_vec(), Some("UPDATE event SET body = 'dear diary' WHERE sid = {sid} AND seq = 6")),
    ),
    odd(
        "checksum",
        "the text of a record in the middle was changed",
        Make::Lines(
            |text| text[MEMO] = String::from_utf8(text[MEMO].clone()).unwrap().replace("two files", "ten files").into(),
            Some("UPDATE event SET body = replace(body, 'two files', 'ten files') WHERE sid = {sid} AND seq = 6"),
        ),
    ),
    odd(
        "checksum-of-the-header",
        "the header was changed",
        Make::Lines(
            |text| text[0] = String::from_utf8(text[0].clone()).unwrap().replace("1200", "1201").into(),
            Some("UPDATE session SET header = replace(header, '1200', '1201') WHERE sid = {sid}"),
        ),
    ),
    odd("byte-order-mark", "a byte order mark before the header", Make::Lines(|text| drop(text[0].splice(0..0, *b"\xef\xbb\xbf")), None)),
    odd("carriage-returns", "every line ends with CR LF", Make::Lines(|text| text.iter_mut().for_each(|line| before_the_end(line, b'\r')), None)),
    odd("carriage-return", "one line ends with CR LF", Make::Lines(|text| before_the_end(&mut text[MEMO], b'\r'), None)),
    odd("blank-line", "a blank line in the middle", Make::Lines(|text| text.insert(MEMO, b"\n".to_vec()), None)),
    odd("blank-lines-at-the-end", "two blank lines at the end", Make::Lines(|text| text.extend([b"\n".to_vec(), b"\n".to_vec()]), None)),
    odd("trailing-space", "a space behind a record in the middle", Make::Lines(|text| before_the_end(&mut text[MEMO], b' '), None)),
    odd("trailing-space-at-the-end", "a space behind the last record", Make::Lines(|text| before_the_end(&mut text[LAST], b' '), None)),
    odd("nul-run", "a run of NULs in the middle", Make::Lines(|text| text[MEMO][20..80].fill(0), None)),
    odd("missing-line-feed", "no line feed between two records in the middle", Make::Lines(|text| _ = text[MEMO].pop(), None)),
    odd("missing-line-feed-at-the-end", "no line feed between the last two records", Make::Lines(|text| _ = text[LAST - 1].pop(), None)),
    odd(
        "no-text",
        "a byte that is no UTF-8, under a checksum that fits",
        Make::Lines(
            |text| {
                let (body, more) = body_of(&text[MEMO]);
                let body: Vec<u8> = body.bytes().map(|byte| if byte == b'k' { 0xff } else { byte }).collect();
                text[MEMO] = sealed("odd", &body, more);
            },
            None,
        ),
    ),
    odd("no-end-of-a-json", "a record in the middle whose JSON does not end", Make::Event(6, |body| format!("{}}}", &body[..40]))),
    // What JSON allows and the format does not.
    odd("lone-surrogate-in-a-label", "half of a character in the label", Make::Event(0, |body| body.replace("odd", "\\ud800"))),
    odd("lone-surrogate-in-a-message", "half of a character in a message that waits", Make::Message(|body| body.replace("And", "\\ud800"))),
    odd("lone-surrogate-in-a-turn", "half of a character in what was said to the session", Make::Event(4, |body| body.replace("Begin", "\\udfff"))),
    odd("negative-zero", "the time of a record is -0", Make::Event(6, |body| body.replace("\"time\":1202", "\"time\":-0"))),
    odd("fraction", "the time of the header is a fraction", Make::Header(|body| body.replace("1200", "1200.5"))),
    odd("no-integer-that-json-keeps", "the time of a record is above 2^53", Make::Event(6, |body| body.replace("\"time\":1202", "\"time\":9007199254740993"))),
    odd("null", "an optional key is null", Make::Event(6, |body| body.replace("\"data\"", "\"surface_op\":null,\"data\""))),
    odd("null-in-the-header", "an optional key of the header is null", Make::Header(|body| with_key(body, "\"cwd\":null"))),
    odd("null-in-a-message", "an optional key of a message is null", Make::Message(|body| with_key(body, "\"control\":null"))),
    odd("key-twice", "a record says its seq twice", Make::Event(6, |body| body.replace("\"time\"", "\"seq\":7,\"time\""))),
    odd("unknown-key", "a key of the envelope that nobody knows", Make::Event(6, |body| body.replace("\"data\"", "\"mood\":\"good\",\"data\""))),
    odd("unknown-key-of-the-header", "a key of the header that nobody knows", Make::Header(|body| body.replace("\"depth\"", "\"mood\":\"good\",\"depth\""))),
    odd(
        "wrong-shape",
        "what was said to the session has no content",
        Make::Event(4, |body| body.replace("\"content\":[{\"type\":\"text\",\"text\":\"Begin.\"}],", "")),
    ),
    odd(
        "too-deep",
        "a record that nests a thousand levels",
        Make::Event(6, |body| body.replace("\"looked at two files\"", &format!("{}{}", "[".repeat(1_000), "]".repeat(1_000)))),
    ),
    // Records in the wrong place.
    odd("letter", "the file is somebody's letter", Make::Lines(|text| *text = vec![b"Dear Sir or Madam,\n".to_vec()], None)),
    odd("empty", "a file without a byte", Make::Lines(Vec::clear, None)),
    odd(
        "header-alone",
        "a header and nothing else",
        Make::Lines(
            |text| {
                text.truncate(1);
                end_batch(&mut text[0]);
            },
            Some("DELETE FROM event WHERE sid = {sid}; DELETE FROM inbox WHERE sid = {sid}"),
        ),
    ),
    odd("header-of-a-cut-batch", "a header that says that more follows, and nothing else", Make::Lines(|text| text.truncate(1), None)),
    odd("no-header", "the header is missing", Make::Lines(|text| drop(text.remove(0)), Some("DELETE FROM session WHERE sid = {sid}"))),
    odd("second-header", "the header comes again in the middle", Make::Lines(|text| text.insert(4, text[0].clone()), None)),
    odd("header-of-another", "the header is that of a session `else`", Make::Header(|body| body.replace("\"id\":\"odd\"", "\"id\":\"else\""))),
    odd(
        "line-of-another",
        "a line is its sibling's",
        Make::Folder(
            |healthy| {
                let mut text = lines(&healthy[ODD]);
                text[MEMO].clone_from(&lines(&healthy["desk/above.jsonl"])[MEMO]);
                [(ODD, text.concat())].into()
            },
            None,
        ),
    ),
    odd("copy-of-a-sibling", "the file is a copy of its sibling's", Make::Folder(|healthy| [(ODD, healthy["desk/above.jsonl"].clone())].into(), None)),
    odd(
        "copied-file",
        "the file lies there under a second name too",
        Make::Folder(|healthy| [(ODD, healthy[ODD].clone()), ("desk/odd-copy.jsonl", healthy[ODD].clone())].into(), None),
    ),
    odd(
        "two-files",
        "two files have the same id, in two folders",
        Make::Folder(|healthy| [(ODD, healthy[ODD].clone()), ("above/odd.jsonl", as_another(healthy, "odd", "above"))].into(), None),
    ),
    odd(
        "wrong-folder",
        "the header names another parent than the folder",
        Make::Lines(|text| rewrite(&mut text[0], |header| header.replace("\"desk\"", "\"above\"")), None),
    ),
    odd("seq-gap", "an event is missing", Make::Lines(|text| drop(text.remove(MEMO)), Some("DELETE FROM event WHERE sid = {sid} AND seq = 6"))),
    odd("seq-repeat", "an event is there twice", Make::Lines(|text| text.insert(MEMO, text[MEMO].clone()), None)),
    odd(
        "seq-swap",
        "two events have changed places",
        Make::Lines(
            |text| text.swap(MEMO, MEMO + 2),
            Some("UPDATE event SET seq = -seq WHERE sid = {sid} AND seq IN (6, 8); UPDATE event SET seq = 14 + seq WHERE sid = {sid} AND seq < 0"),
        ),
    ),
    odd("order-gap", "a message is missing", Make::Lines(|text| drop(text.remove(LAST - 1)), Some("DELETE FROM inbox WHERE sid = {sid} AND ord = 1"))),
    odd("order-repeat", "a message is there twice", Make::Lines(|text| text.push(text[LAST].clone()), None)),
    odd(
        "never-accepted",
        "the message of the turn was never accepted",
        Make::Lines(
            |text| {
                text.remove(FIRST_MESSAGE);
                end_batch(&mut text[FIRST_MESSAGE - 1]);
                for (order, line) in text.iter_mut().rev().take(2).rev().enumerate() {
                    rewrite(line, |body| body.replace(&format!("\"order\":{}", order + 1), &format!("\"order\":{order}")));
                }
            },
            None,
        ),
    ),
    odd(
        "turn-out-of-turn",
        "a turn has the number of another",
        Make::Lines(|text| rewrite(&mut text[TURN], |event| event.replace("\"turn\":1", "\"turn\":7")), None),
    ),
    // What is of another version.
    odd("header-of-tomorrow", "the header is of version 2", Make::Header(|_| "{\"version\":2,\"id\":\"odd\",\"shape\":\"another\"}".into())),
    odd("header-of-yesterday", "the header is of version 0", Make::Header(|body| body.replace("\"version\":1", "\"version\":0"))),
    odd("header-of-no-version", "the header's version is a text", Make::Header(|body| body.replace("\"version\":1", "\"version\":\"1\""))),
    odd("descriptor-of-tomorrow", "the descriptor is of version 2", Make::Event(0, |body| body.replace("\"version\":1", "\"version\":2"))),
    odd("event-of-tomorrow", "an event is of a type that nobody knows", Make::Event(6, |body| body.replace("\"memo\"", "\"weather/changed\""))),
    odd(
        "event-of-tomorrow-to-ignore",
        "an event is of a type that nobody knows and says that it may be ignored",
        Make::Event(6, |body| with_key(&body.replace("\"memo\"", "\"weather/changed\""), "\"ignorable\":true")),
    ),
    odd("ignorable-that-is-known", "an event of a known type says that it may be ignored", Make::Event(6, |body| with_key(body, "\"ignorable\":true"))),
    // The surface.
    odd("no-surface-marker", "what a model sees is not marked", Make::Event(4, |body| body.replace(",\"surface_op\":\"append\"", ""))),
    odd("surface-marker-too-many", "what no model sees is marked", Make::Event(6, |body| with_key(body, "\"surface_op\":\"append\""))),
    odd(
        "replace-of-nothing",
        "an event takes the place of one that is not there",
        Make::Event(7, |body| body.replace("\"surface_op\":\"append\"", "\"surface_op\":{\"op\":\"replace\",\"start\":2,\"end\":2},\"source_event_seqs\":[2]")),
    ),
    // What the session is.
    odd(
        "two-descriptors",
        "two events describe the child",
        Make::Event(6, |body| {
            format!(
                "{},\"type\":\"subagent/descriptor\",\"data\":{{\"version\":1,\"mode\":\"continuable\",\"provider\":\"spawn\",\"label\":\"another\",\"agent\":\"reporter\"}}}}",
                &body[..body.find(",\"type\"").unwrap()]
            )
        }),
    ),
    odd(
        "no-descriptor",
        "nothing describes the child",
        Make::Event(0, |body| with_key(&body.replace("subagent/descriptor", "nothing/special"), "\"ignorable\":true")),
    ),
    odd("bad-descriptor", "the descriptor has no label", Make::Event(0, |body| body.replace("\"label\":\"the odd one\",", ""))),
    odd("descriptor-of-a-wrong-type", "the descriptor's label is a number", Make::Event(0, |body| body.replace("\"the odd one\"", "17"))),
    odd(
        "inherited-descriptor",
        "the descriptor stands in the inherited prefix only",
        Make::Header(|body| body.replace("\"depth\"", "\"seed_length\":1,\"depth\"")),
    ),
    odd(
        "seed-longer-than-the-log",
        "the header says that more was inherited than there is",
        Make::Header(|body| body.replace("\"depth\"", "\"seed_length\":99,\"depth\"")),
    ),
    odd("fork-with-a-descriptor", "the header says that it is a fork, whatever its log says", Make::Header(|body| body.replace("\"depth\":1", "\"depth\":0"))),
    odd("depth", "the header says that it is five levels down", Make::Header(|body| body.replace("\"depth\":1", "\"depth\":5"))),
    odd("own-parent", "the session is its own parent", Make::Folder(|healthy| [("odd/odd.jsonl", as_another(healthy, "odd", "odd"))].into(), None)),
    odd(
        "parent-cycle",
        "two sessions are each other's parents",
        Make::Folder(|healthy| [("twin/odd.jsonl", as_another(healthy, "odd", "twin")), ("odd/twin.jsonl", as_another(healthy, "twin", "odd"))].into(), None),
    ),
    odd("dangling-parent", "the parent is nowhere", Make::Folder(|healthy| [("nowhere/odd.jsonl", as_another(healthy, "odd", "nowhere"))].into(), None)),
    // Labels.
    odd("label-of-ten-thousand-bytes", "the label is far too long", Make::Event(0, long_label)),
    odd("empty-label", "the label is empty", Make::Event(0, |body| body.replace("the odd one", ""))),
    odd("right-to-left-label", "the label turns the text around it", Make::Event(0, |body| body.replace("the odd one", "\u{202e}eno ddo \u{5d0}\u{5d1}"))),
    odd("label-of-two-lines", "the label has a line feed", Make::Event(0, |body| body.replace("the odd one", "the odd\\none"))),
    odd(
        "label-with-an-escape",
        "the label would colour a terminal",
        Make::Event(0, |body| body.replace("the odd one", "the \\u001b[31modd\\u001b[0m one\\u0007")),
    ),
];

const fn odd(name: &'static str, what: &'static str, make: Make) -> Odd {
    Odd { name, what, make }
}

/// A label of ten thousand bytes.
fn long_label(text: &str) -> String {
    text.replace("the odd one", &"long ".repeat(2_000))
}
