//! Every kind of mistake with its place; the cases stand in `mistakes.txt`.

use super::parse;
use crate::program::error::{Position, ProgramErrors};
use crate::program::file::Program;

const CASES: &str = include_str!("mistakes.txt");
const RIGHT_AGENT: &str = "[agents.a]\nbehavior = \"script\"\nturns = []";

/// A mistake as `mistakes.txt` writes it.
struct Expected<'c> {
    place: &'c str,
    part: &'c str,
}

fn whole_text(kind: &str, lines: &[&str]) -> String {
    let text = lines.join("\n").replace('@', RIGHT_AGENT).replace("<U+FEFF>", "\u{feff}").replace("<U+202E>", "\u{202e}");
    match kind {
        "file" => text,
        "agent" => format!("run = {{ root = \"a\" }}\n[agents.a]\n{text}\n"),
        "step" => format!(
            "run = {{ root = \"a\" }}\nvars = {{ city = \"Lyon\", dir = {{ path = \"in\" }} }}\n\
             [agents.a]\nbehavior = \"script\"\nturns = [[\n{text}\n]]\n"
        ),
        kind => panic!("unknown kind {kind}"),
    }
}

fn assert_mistakes(text: &str, expected: &[Expected<'_>]) {
    let errors = parse(text).expect_err(text);
    assert_eq!(errors.code(), "PROGRAM_INVALID");
    let mistakes = errors.mistakes();
    let places: Vec<_> = mistakes.iter().map(|mistake| format!("{}:{}", mistake.position.line, mistake.position.column)).collect();
    let wanted: Vec<_> = expected.iter().map(|expected| expected.place).collect();
    assert_eq!(places, wanted, "\n{text}\n{errors}");
    for (mistake, Expected { part, .. }) in mistakes.iter().zip(expected) {
        assert!(mistake.message.contains(part), "{part:?} in\n{text}\n{errors}");
    }
}

#[test]
fn every_mistake_is_reported_at_its_place() {
    let mut cases = 0;
    for case in CASES.split("\n## ").skip(1) {
        let mut lines = case.trim_end().lines();
        let kind = lines.next().expect("a kind");
        let (expected, text): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("> "));
        let expected: Vec<_> =
            expected.iter().filter_map(|line| line.strip_prefix("> ")?.split_once(' ')).map(|(place, part)| Expected { place, part }).collect();
        assert_mistakes(&whole_text(kind, &text), &expected);
        cases += 1;
    }
    assert!(cases > 60, "only {cases} cases were read");
}

#[test]
fn long_and_deep_values_are_reported() {
    let nested = format!("x = {}{}", "[".repeat(100), "]".repeat(100));
    let too_deep = Expected { place: "1:85", part: "expected at most 80 levels of nested values" };
    assert_mistakes(&nested, &[too_deep]);
    let label = "é".repeat(201);
    let long = format!("run = {{root = \"a\", label = \"{label}\"}}\n{RIGHT_AGENT}");
    let too_long = Expected { place: "1:28", part: "expected at most 200 characters, found 201" };
    assert_mistakes(&long, &[too_long]);
}

#[test]
fn mistakes_display_one_per_line_with_the_file() {
    let errors = parse("run = 1\nagents = 2").expect_err("mistakes");
    assert_eq!(
        errors.to_string(),
        "p.toml:1:7: expected the table [run], found the integer 1\n\
         p.toml:2:10: expected the table [agents], found the integer 2"
    );
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("p.toml");
    let errors = Program::load(&path).expect_err("missing");
    assert!(matches!(errors, ProgramErrors::Unreadable { .. }));
    std::fs::write(&path, b"a = 1\n\xff").expect("written");
    let errors = Program::load(&path).expect_err("no text");
    let mistake = &errors.mistakes()[0];
    assert_eq!(mistake.position, Position { line: 2, column: 1 });
    assert_eq!(mistake.message, "expected UTF-8 text, found the byte 0xFF");
}
