//! The files and commands of the pages that teach, run as they stand there: what a reader sees is what the page shows.
//!
//! A page has files (blocks of code whose language is followed by a name), commands (lines of `console` blocks that begin with `$ `), and what those
//! print. In what is expected, `…` stands for anything within a line, and eight hex digits for the beginning of an id: wherever they come again, in what is
//! expected or in a command, they are the same id.

use std::{collections::HashMap, fs, path::Path, process::Command};

use crate::cli::Desk;

/// A block of code: what stands behind its fence, and its lines.
struct Block {
    language: String,
    name: Option<String>,
    lines: Vec<String>,
    /// Its first line in the page, from 1.
    at: usize,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (line, at) in text.lines().zip(1..) {
        match (line.strip_prefix("```"), open) {
            (Some(fence), false) => {
                let mut words = fence.split(' ').map(str::to_owned);
                blocks.push(Block { language: words.next().unwrap_or_default(), name: words.next(), lines: Vec::new(), at: at + 1 });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => blocks.last_mut().unwrap().lines.push(line.to_owned()),
            (None, false) => {}
        }
    }
    assert!(!open, "a block of code is not closed");
    blocks
}

/// The ids that those of a page stand for.
#[derive(Debug, Default)]
struct Ids(HashMap<String, String>);

impl Ids {
    /// Tells whether a line is as expected, learning ids from it.
    fn fits(&mut self, expected: &str, line: &str) -> bool {
        let mut learnt = self.0.clone();
        let fits = fits(&mut learnt, expected, line);
        if fits {
            self.0 = learnt;
        }
        fits
    }

    /// Puts the true ids into a command.
    fn translate(&self, command: &str) -> String {
        self.0.iter().fold(command.to_owned(), |command, (guide, own)| command.replace(guide, own))
    }
}

fn fits(ids: &mut HashMap<String, String>, expected: &str, line: &str) -> bool {
    if let Some(rest) = expected.strip_prefix('…') {
        let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        return ends.into_iter().any(|at| {
            let mut learnt = ids.clone();
            let found = fits(&mut learnt, rest, &line[at..]);
            if found {
                *ids = learnt;
            }
            found
        });
    }
    if let (Some(guide), Some(own)) = (id_at(expected), id_at(line)) {
        let known = ids.entry(guide.to_owned()).or_insert_with(|| own.to_owned());
        return known == own && fits(ids, &expected[8..], &line[8..]);
    }
    match (expected.chars().next(), line.chars().next()) {
        (None, None) => true,
        (Some(a), Some(b)) if a == b => fits(ids, &expected[a.len_utf8()..], &line[b.len_utf8()..]),
        _ => false,
    }
}

fn id_at(text: &str) -> Option<&str> {
    let id = text.get(..8)?;
    let is_id = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) && id.bytes().any(|byte| byte.is_ascii_digit());
    is_id.then_some(id)
}

/// The commands of a block, each with what it is to print.
fn commands<'a>(page: &str, block: &'a Block) -> Vec<(String, Vec<&'a str>, usize)> {
    let mut commands: Vec<(String, Vec<&str>, usize)> = Vec::new();
    for (line, at) in block.lines.iter().zip(block.at..) {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), Vec::new(), at)),
            None => commands.last_mut().unwrap_or_else(|| panic!("{page}:{at}: output before a command")).1.push(line),
        }
    }
    commands
}

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|output| output.status.success())
}

#[test]
fn every_command_of_the_guide_prints_what_the_guide_shows() {
    assert!(play("docs/guide.md") > 10);
}

#[test]
fn every_program_of_the_page_on_program_files_does_what_the_page_says() {
    assert!(play("docs/programs.md") > 2);
}

/// Writes the files of a page and runs its commands, in the page's order, in a folder of their own. Returns how many commands there were.
fn play(page: &str) -> usize {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let desk = Desk::new();
    let (mut ids, mut environment, mut count) = (Ids::default(), Vec::new(), 0);
    let program = Path::new(env!("CARGO_BIN_EXE_greenroom")).parent().unwrap().display().to_string();
    for block in blocks(&text) {
        if let Some(name) = &block.name {
            desk.write(name, &format!("{}\n", block.lines.join("\n")));
        }
        if block.language != "console" {
            continue;
        }
        for (command, expected, at) in commands(page, &block) {
            if let Some((name, value)) = command.strip_prefix("export ").and_then(|set| set.split_once('=')) {
                environment.push((name.to_owned(), value.to_owned()));
                continue;
            }
            if let Some((_, needed)) = command.split_once("# needs: ")
                && !has(needed)
            {
                eprintln!("skipped: this machine has no `{needed}`");
                continue;
            }
            let command = ids.translate(&command);
            let mut shell = desk.command(&[]);
            // The program's own settings, but another program.
            let settings: Vec<_> = shell.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
            shell = Command::new("sh");
            shell.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(desk.folder());
            for (name, value) in settings {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            shell.envs(environment.iter().cloned()).env("PATH", format!("{program}:{}", std::env::var("PATH").unwrap_or_default()));
            let output = shell.output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let printed: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| *line != "Killed").collect();
            let as_shown = printed.len() == expected.len() && expected.iter().zip(&printed).all(|(expected, line)| ids.fits(expected, line));
            assert!(as_shown, "{page}:{at}: `{command}` is to print\n{}\nand prints\n{}", expected.join("\n"), printed.join("\n"));
            count += 1;
        }
    }
    count
}

#[test]
fn ids_are_learnt_and_kept() {
    let mut ids = Ids::default();
    assert!(ids.fits("root d1e208cc-…", "root 00aa11bb-268c"));
    assert!(ids.fits("d1e208cc … done", "00aa11bb is nearly done"));
    assert!(!ids.fits("d1e208cc", "00aa11bc"), "another id");
    assert!(!ids.fits("one …", "two three"));
    assert!(!ids.fits("one", "one more"));
    assert_eq!(ids.translate("log d1e208cc"), "log 00aa11bb");
}
