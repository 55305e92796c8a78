//! What the pages about the command line are made of, beyond what clap writes itself: the sections below a verb's help.
//!
//! A verb's `after_help` holds sections with a blank line between two. Each has a line with its title and a colon, and its lines below, two spaces in.

use clap::Command;

/// A section below a verb's help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Its title, without the colon.
    pub(crate) title: String,
    /// Its lines, without their two spaces.
    pub(crate) lines: Vec<String>,
}

/// Returns the sections of a verb's longest help.
pub(crate) fn sections(command: &Command) -> Vec<Section> {
    let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) else { return Vec::new() };
    text.to_string().split("\n\n").filter_map(section).collect()
}

fn section(text: &str) -> Option<Section> {
    let (title, lines) = text.trim_end().split_once(":\n")?;
    let lines = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned()).collect();
    Some(Section { title: title.trim().to_owned(), lines })
}

/// Returns the program and all its verbs, those of verbs too, that are not hidden: each with its whole name, in the order of the help.
pub(crate) fn commands(root: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    let mut open = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = open.pop() {
        let below: Vec<_> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
        open.extend(below.into_iter().rev().map(|verb| (format!("{name} {}", verb.get_name()), verb)));
        found.push((name, command));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_of_a_help_come_apart() {
        let command = Command::new("x").after_help("short").after_long_help("Example:\n  x a\n    b\n\nExit codes:\n  0  done\n\nno section");
        let section = |title: &str, lines: &[&str]| Section { title: title.into(), lines: lines.iter().map(ToString::to_string).collect() };
        assert_eq!(sections(&command), [section("Example", &["x a", "  b"]), section("Exit codes", &["0  done"])]);
        assert_eq!(sections(&Command::new("x")), []);
    }

    #[test]
    fn verbs_of_verbs_are_found_and_hidden_ones_are_not() {
        let root = Command::new("x")
            .subcommand(Command::new("a").subcommand(Command::new("b")))
            .subcommand(Command::new("c").hide(true))
            .subcommand(Command::new("d"));
        let names: Vec<_> = commands(&root).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x", "x a", "x a b", "x d"]);
    }
}
