//! What the documentation of the public API must hold: an example for every public type, and what a caller must know of a function.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The crates of this workspace by the folders of their sources.
const CRATES: [&str; 3] = ["src", "actors/src", "session/src"];

/// A public item with the doc comment above it.
#[derive(Debug)]
struct Item {
    /// Its file and line, as a compiler would name them.
    place: String,
    /// Its name, without generics.
    name: String,
    kind: Kind,
    docs: String,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Type,
    Function { is_async: bool, returns_result: bool },
}

/// Reads every file that `root` declares as a module, directly or not, and returns the items that anybody outside of the crate may use.
fn public_items(root: &Path) -> Vec<Item> {
    let mut items = Vec::new();
    let mut open = vec![(root.to_owned(), true)];
    while let Some((file, public)) = open.pop() {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        // `pub use part::Type` makes a type of a private module public.
        let shown = used(text);
        for (name, is_public) in modules(text) {
            let folder = folder_of(&file);
            let flat = folder.join(format!("{name}.rs"));
            let module = if flat.exists() { flat } else { folder.join(&name).join("mod.rs") };
            open.push((module, public && (is_public || shown.contains(&name))));
        }
        if public {
            items.extend(items_of(&file, text));
        }
    }
    items
}

/// Returns the folder in which the modules that a file declares lie.
fn folder_of(file: &Path) -> PathBuf {
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod") => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    }
}

/// Returns the modules that a file declares and whether they are public; those of tests are left out.
fn modules(text: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.iter().enumerate().filter(|(at, _)| *at == 0 || lines[at - 1] != "#[cfg(test)]");
    declared
        .filter_map(|(_, line)| {
            let (line, is_public) = line.strip_prefix("pub ").map_or((*line, false), |rest| (rest, true));
            let name = line.strip_prefix("mod ")?.strip_suffix(';')?;
            Some((name.to_owned(), is_public))
        })
        .collect()
}

/// Returns the own modules that a file shows something of by `pub use`.
fn used(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("pub use ")?.split("::").next().map(str::to_owned)).collect()
}

fn items_of(file: &Path, text: &str) -> Vec<Item> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let place = |at: usize| format!("{}:{}", file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(file).display(), at + 1);
    let mut items = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("pub ") else { continue };
        let mut words = rest.split_whitespace().filter(|word| *word != "const");
        let (kind, name) = match (words.next(), words.next(), words.next()) {
            (Some("struct" | "enum" | "trait"), Some(name), _) => (Kind::Type, name),
            (Some("fn"), Some(name), _) => (Kind::Function { is_async: false, returns_result: returns_result(&lines[at..]) }, name),
            (Some("async"), Some("fn"), Some(name)) => (Kind::Function { is_async: true, returns_result: returns_result(&lines[at..]) }, name),
            _ => continue,
        };
        let name = name.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').next().unwrap_or_default().to_owned();
        items.push(Item { place: place(at), name, kind, docs: docs_above(&lines[..at]) });
    }
    items
}

/// Tells whether the function that begins here returns a result, by the end of its signature.
fn returns_result(lines: &[&str]) -> bool {
    let mut signature = String::new();
    for line in lines {
        signature.push_str(line);
        if line.ends_with('{') || line.ends_with(';') {
            break;
        }
    }
    signature.rsplit_once("->").is_some_and(|(_, output)| output.trim_start().starts_with("Result<"))
}

/// Returns the doc comment that ends just above, attributes left out.
fn docs_above(lines: &[&str]) -> String {
    let above = lines.iter().rev().skip_while(|line| line.starts_with("#[") || line.starts_with("$(#[") || line.starts_with(')'));
    let mut docs: Vec<&str> = above.map_while(|line| line.strip_prefix("///")).collect();
    docs.reverse();
    docs.join("\n")
}

/// Returns the public items of the three crates. The names that the macro for ids makes stand where it is called.
fn all_items() -> Vec<Item> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let items: Vec<Item> = CRATES.iter().flat_map(|folder| public_items(&base.join(folder).join("lib.rs"))).collect();
    assert!(items.len() > 300, "only {} public items were found", items.len());
    items
}

/// Tells whether a doc comment has an example that is compiled and run: a block of code that is closed and of no other language.
fn has_example(docs: &str) -> bool {
    let mut opened: Option<&str> = None;
    for language in docs.lines().filter_map(|line| line.trim().strip_prefix("```")) {
        match opened {
            None => opened = Some(language),
            Some("" | "rust") if language.is_empty() => return true,
            Some(_) if language.is_empty() => opened = None,
            // A fence that names a language closes nothing.
            Some(_) => {}
        }
    }
    false
}

#[test]
fn only_a_closed_block_of_rust_is_an_example() {
    for (docs, expected) in [
        ("", false),
        ("```\nassert!(true);\n```", true),
        ("```rust\nassert!(true);\n```", true),
        ("```text\na picture\n```", false),
        ("```text\na picture\n```\nand words", false),
        ("```text\na picture\n```\nand code:\n```\nassert!(true);\n```", true),
        ("```text\n```rust\n```", false),
        ("```toml\na = 1\n```\n```json\n{}\n```", false),
        ("```\nnever closed", false),
    ] {
        assert_eq!(has_example(docs), expected, "{docs:?}");
    }
}

fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_public_type_has_an_example_that_runs() {
    let types = all_items().into_iter().filter(|item| item.kind == Kind::Type && !item.name.starts_with('$'));
    let wrong: Vec<String> = types.filter(|item| !has_example(&item.docs)).map(|item| format!("{} {}", item.place, item.name)).collect();
    assert_none("public types without an example", &wrong);
}

#[test]
fn every_id_has_an_example_that_runs() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("session/src/id.rs")).unwrap();
    let calls: Vec<&str> = text.split("\nid! {").skip(1).filter_map(|call| call.split("\n}").next()).collect();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|docs| docs.contains("/// ```\n")), "an id without an example");
}

#[test]
fn no_example_is_left_out_of_the_run() {
    for item in all_items() {
        for word in ["no_run", "ignore", "compile_fail", "should_panic"] {
            assert!(!item.docs.contains(&format!("```{word}")), "{} {}: {word}", item.place, item.name);
        }
    }
}

#[test]
fn every_public_async_function_says_what_its_cancellation_leaves() {
    let wrong: Vec<String> = all_items()
        .into_iter()
        .filter(|item| matches!(item.kind, Kind::Function { is_async: true, .. }) && !item.docs.contains("# Cancel safety"))
        .map(|item| format!("{} {}", item.place, item.name))
        .collect();
    assert_none("public async functions without `# Cancel safety`", &wrong);
}

#[test]
fn every_public_function_that_can_fail_says_when() {
    let wrong: Vec<String> = all_items()
        .into_iter()
        .filter(|item| matches!(item.kind, Kind::Function { returns_result: true, .. }) && !item.docs.contains("# Errors"))
        .map(|item| format!("{} {}", item.place, item.name))
        .collect();
    assert_none("public functions that return a result without `# Errors`", &wrong);
}
