//! `docs/contract.md` and `docs/reliability.md` against the tests that they name: none is missing, and no number is left out.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The numbers that the document must have, each once.
const NUMBERS: [std::ops::RangeInclusive<u32>; 2] = [1..=285, 293..=295];

const LIST: &str = "## All numbers\n";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// One check: its numbers, and what the document says of it.
struct Check {
    numbers: Vec<u32>,
    text: String,
}

impl Check {
    fn applies(&self) -> bool {
        !self.text.starts_with("n/a:")
    }

    /// Looks that every test that it names is there, and tells how many it names.
    fn tests(&self) -> usize {
        tests(&self.text).map(|(file, function)| assert_is_there(&file, function)).count()
    }
}

/// The tests that a text names, as file and function.
fn tests(text: &str) -> impl Iterator<Item = (PathBuf, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|word| {
        let (file, function) = word.split_once("::")?;
        let (folder, file) = file.split_once('/')?;
        let folder = match folder {
            "actors" => "actors/src",
            "session" => "session/src",
            "src" => "src",
            "store" => "session/tests/store",
            "contract" | "it" => &format!("tests/{folder}"),
            _ => return None,
        };
        Some((root().join(folder).join(file).with_extension("rs"), function))
    })
}

fn assert_is_there(file: &Path, function: &str) {
    let source = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(source.contains(&format!("fn {function}(")), "{} has no test {function}", file.display());
}

/// Reads the items, each of which may go on over several lines.
fn checks(document: &str) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    let mut open = false;
    for line in document.lines() {
        if let Some((numbers, text)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("** ")) {
            let numbers = numbers.split(", ").map(|number| number.parse().unwrap_or_else(|_| panic!("{line}"))).collect();
            checks.push(Check { numbers, text: text.to_owned() });
            open = true;
        } else if line.trim().is_empty() || line.starts_with('#') {
            open = false;
        } else if let (true, Some(last)) = (open, checks.last_mut()) {
            last.text.push(' ');
            last.text.push_str(line.trim());
        }
    }
    checks
}

fn list(checks: &[Check]) -> String {
    let mut verdicts = BTreeMap::new();
    for check in checks {
        for number in &check.numbers {
            let verdict = if check.applies() { "pass" } else { "n/a" };
            assert_eq!(verdicts.insert(*number, verdict), None, "{number} is there twice");
        }
    }
    let wanted: Vec<u32> = NUMBERS.into_iter().flatten().collect();
    assert_eq!(verdicts.keys().copied().collect::<Vec<_>>(), wanted);
    let lines: Vec<_> = verdicts.iter().collect();
    let lines = lines.chunks(12).map(|line| line.iter().map(|(number, verdict)| format!("{number} {verdict}")).collect::<Vec<_>>().join(" · "));
    format!("{LIST}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_contract_names_every_number_and_tests_that_exist() {
    let path = root().join("docs/contract.md");
    let document = fs::read_to_string(&path).unwrap();
    let checks = checks(&document);
    for check in &checks {
        assert!(check.tests() > 0 || !check.applies(), "{:?} names no test", check.numbers);
    }
    let (before, there) = document.split_at(document.find(LIST).unwrap());
    let list = list(&checks);
    if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{before}{list}")).unwrap();
    } else {
        assert_eq!(there, list, "GREENROOM_WRITE_DOCS=1 writes it anew");
    }
}

#[test]
fn the_page_on_reliability_names_tests_that_exist_for_every_reported_failure() {
    let document = fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    for (file, function) in tests(&document) {
        assert_is_there(&file, function);
    }
    let failures = checks(&document);
    let numbers: Vec<u32> = failures.iter().flat_map(|failure| failure.numbers.clone()).collect();
    assert_eq!(numbers, (1..=37).collect::<Vec<_>>());
    for failure in &failures {
        assert!(failure.tests() > 0, "{:?} names no test", failure.numbers);
    }
}
