//! `docs/cli.md`, made from the command line itself, and what every verb's help must hold.

use std::{fmt::Write, fs, path::Path};

use clap::{Arg, CommandFactory};

use super::{
    args::CommandLine,
    manual::{self, Section},
};

const INTRODUCTION: &str = "\
# The command line

This page is made from the program: `greenroom help` and `greenroom help VERB` say the same. [errors.md](errors.md) has every error code,
[guide.md](guide.md) shows the verbs at work.

stdout carries the result and nothing else; progress and errors go to stderr. An id may be shortened to its beginning, four characters or more, as long as it is
the beginning of one session only. With `--json` the result is one JSON document, for `log` one per line.
";

fn document() -> String {
    let mut root = CommandLine::command();
    root.build();
    let mut text = String::from(INTRODUCTION);
    let mut more = Vec::new();
    for (name, command) in manual::commands(&root) {
        let is_root = name == root.get_name();
        let title = if is_root { "Global options".to_owned() } else { format!("`{name}`") };
        write!(text, "\n## {title}\n\n").unwrap();
        if is_root {
            text.push_str("They may stand before or after the verb.\n\n");
        } else {
            let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
            write!(text, "{}\n\n", about.trim()).unwrap();
            let usage = command.clone().render_usage().to_string();
            write!(text, "```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ").trim()).unwrap();
        }
        let of_this =
            |argument: &&Arg| !argument.is_hide_set() && (is_root || !argument.is_global_set()) && !["help", "version"].contains(&argument.get_id().as_str());
        let arguments: Vec<&Arg> = command.get_arguments().filter(of_this).collect();
        if !arguments.is_empty() {
            text.push_str("| argument | meaning | default |\n|---|---|---|\n");
            for argument in arguments {
                row(&mut text, argument);
            }
            text.push('\n');
        }
        for section in manual::sections(command) {
            if is_example(&section) {
                write!(text, "```sh\n{}\n```\n", section.lines.join("\n")).unwrap();
            } else {
                more.push(section);
            }
        }
    }
    for section in more {
        write!(text, "\n## {}\n\n| | |\n|---|---|\n", section.title).unwrap();
        for line in &section.lines {
            let (name, means) = line.split_once("  ").unwrap_or((line, ""));
            writeln!(text, "| {name} | {} |", means.trim()).unwrap();
        }
    }
    text
}

fn is_example(section: &Section) -> bool {
    section.title.starts_with("Example")
}

fn row(text: &mut String, argument: &Arg) {
    let values = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let takes = argument.get_action().takes_values();
    let mut names: Vec<String> = argument.get_short().into_iter().map(|short| format!("-{short}")).collect();
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let name = match (names.is_empty(), takes) {
        (true, _) => values,
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = help.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned() + ".";
    let possible: Vec<String> = argument.get_possible_values().iter().filter(|_| takes).map(|value| format!("`{}`", value.get_name())).collect();
    if !possible.is_empty() {
        write!(meaning, " One of {}.", possible.join(", ")).unwrap();
    }
    if let Some(variable) = argument.get_env() {
        write!(meaning, " Environment: `{}`.", variable.to_string_lossy()).unwrap();
    }
    let default = argument.get_default_values().iter().filter(|_| takes).map(|value| format!("`{}`", value.to_string_lossy())).collect::<Vec<_>>().join(" ");
    // A table takes a bar apart also within code.
    writeln!(text, "| `{}` | {} | {default} |", name.replace('|', "\\|"), meaning.replace('|', "\\|")).unwrap();
}

/// Set `GREENROOM_WRITE_DOCS` to write the page.
#[test]
fn the_page_of_the_documentation_is_this_command_line() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
        fs::write(&path, document()).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), document(), "run with GREENROOM_WRITE_DOCS=1 to write it");
}

/// Splits a line as a shell would, up to a pipe, a redirection or the next command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | '<' | '&' | ';' | '#') => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_verb_shows_an_example_and_every_example_makes_sense() {
    let mut root = CommandLine::command();
    root.build();
    for (name, command) in manual::commands(&root) {
        assert!(command.get_about().is_some(), "{name} says not what it does");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{name} says nothing of {}", argument.get_id());
        }
        let examples: Vec<String> = manual::sections(command).into_iter().filter(is_example).flat_map(|section| section.lines).collect();
        let mut shown = false;
        for example in examples {
            // What stands before a pipe feeds the program.
            let Some(at) = example.find("greenroom") else { continue };
            let words = words(&example[at..]);
            shown |= words.join(" ").starts_with(&name);
            if let Err(error) = CommandLine::command().try_get_matches_from(&words) {
                panic!("{name} shows an example that makes no sense: {example}\n{error}");
            }
        }
        assert!(shown, "{name} shows no example of itself below its help");
    }
}

#[test]
fn a_shell_line_comes_apart() {
    assert_eq!(words(r#"greenroom send 7f3a "and now?" ''  --wait | cat"#), ["greenroom", "send", "7f3a", "and now?", "", "--wait"]);
    assert_eq!(words("greenroom list > file"), ["greenroom", "list"]);
}
