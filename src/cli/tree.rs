//! `greenroom tree`: a forest of sessions.

use std::collections::HashSet;

use clap::Args;
use greenroom::{
    Entry, SessionId,
    actors::{
        catalog::{read_children, read_entry},
        query::Page,
    },
    session::store::Reader,
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::{
    entry::{self, SCHEMA_VERSION},
    failure::Failure,
    paint::Role,
    session::resolve,
    store,
    terminal::Terminal,
};

/// Draw the sessions below a root, or all of them.
///
/// Wakes nobody and writes nothing. With --json the sessions come in the order of the drawing, each with its `parent` and `depth`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom tree\n  greenroom tree 7f3a --depth 2")]
pub(crate) struct TreeArgs {
    /// The session to begin with, by its id or a unique beginning of it; without it all roots and orphans.
    #[arg(value_name = "ROOT")]
    root: Option<String>,
    /// Go at most this many levels below it.
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
}

impl TreeArgs {
    /// Draws.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let tops = match &self.root {
            None => read_children(&mut *reader, None, &Page::default(), false)?.entries,
            Some(text) => {
                let id = resolve(&mut *reader, text)?;
                match read_entry(&mut *reader, &id)? {
                    Some(entry) => vec![entry],
                    // A plain fork is listed nowhere, but it may have children that are.
                    None => read_children(&mut *reader, Some(&id), &Page::default(), false)?.entries,
                }
            }
        };
        let mut walk = Walk::new(&mut *reader, tops, self.depth.unwrap_or(u32::MAX));
        if terminal.is_json() {
            let mut entries = Vec::new();
            while let Some(node) = walk.next()? {
                entries.push(node.json());
            }
            return terminal.json(&json!({"schema_version": SCHEMA_VERSION, "entries": entries}));
        }
        let mut empty = true;
        while let Some(node) = walk.next()? {
            empty = false;
            let rule = terminal.paint().show(Role::Aside, &node.rule).to_string();
            terminal.line(format_args!("{rule}{}", entry::glance(&node.entry, terminal.paint())))?;
            if terminal.is_closed() {
                break;
            }
        }
        let nobody = if self.root.is_some() { "(no subagents)" } else { "(no sessions)" };
        if empty { terminal.line(nobody) } else { Ok(()) }
    }
}

/// A session in its place in the drawing.
#[derive(Debug)]
struct Node {
    entry: Entry,
    parent: Option<SessionId>,
    depth: u32,
    rule: String,
}

impl Node {
    fn json(&self) -> Value {
        let mut json = entry::json(&self.entry);
        json.insert("parent".to_owned(), json!(self.parent));
        json.insert("depth".to_owned(), json!(self.depth));
        if let Some(listed) = self.entry.listed() {
            json.insert("turns".to_owned(), json!(listed.turns));
        }
        Value::Object(json)
    }
}

/// A walk from above, depth first. It keeps the siblings that are still to come, level by level, and never calls itself: a lineage may
/// be thousands of levels deep.
struct Walk<'a> {
    reader: &'a mut dyn Reader,
    levels: Vec<Level>,
    max_depth: u32,
    /// Damaged headers can name each other as parents in a circle.
    seen: HashSet<SessionId>,
}

struct Level {
    parent: Option<SessionId>,
    siblings: std::iter::Peekable<std::vec::IntoIter<Entry>>,
    /// What stands before the lines of this level's own rule.
    indent: String,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a mut dyn Reader, tops: Vec<Entry>, max_depth: u32) -> Self {
        let top = Level { parent: None, siblings: tops.into_iter().peekable(), indent: String::new() };
        Self { reader, levels: vec![top], max_depth, seen: HashSet::new() }
    }

    fn next(&mut self) -> Result<Option<Node>, Failure> {
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.siblings.next() else {
                self.levels.pop();
                continue;
            };
            if !self.seen.insert(entry.id().clone()) {
                continue;
            }
            let last = level.siblings.peek().is_none();
            let indent = level.indent.clone();
            let parent = match &level.parent {
                Some(parent) => Some(parent.clone()),
                // At the top the walk has not come from the parent: an orphan names one, and so does the child that a user began with.
                None => self.reader.header(entry.id()).ok().flatten().and_then(|header| header.parent.clone()),
            };
            let depth = u32::try_from(self.levels.len()).unwrap_or(u32::MAX) - 1;
            let (branch, below) = match (depth, last) {
                (0, _) => ("", ""),
                (_, true) => ("└─ ", "   "),
                (_, false) => ("├─ ", "│  "),
            };
            if depth < self.max_depth {
                let siblings = read_children(self.reader, Some(entry.id()), &Page::default(), false)?.entries;
                if !siblings.is_empty() {
                    let indent = format!("{indent}{below}");
                    self.levels.push(Level { parent: Some(entry.id().clone()), siblings: siblings.into_iter().peekable(), indent });
                }
            }
            return Ok(Some(Node { entry, parent, depth, rule: format!("{indent}{branch}") }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use greenroom::session::{
        descriptor::Descriptor,
        header::NewSession,
        store::{Create, Op, Store, memory::MemoryStore},
    };

    use super::*;
    use crate::cli::paint::Paint;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    fn child(store: &MemoryStore, name: &str, parent: &str, depth: u32, time: u64) {
        let descriptor = Descriptor::continuable("spawn", format!("the {name}"), "a");
        let session = NewSession::child(id(name), id(parent), depth);
        let create = Create::child(session, Vec::new(), &descriptor, None, time).unwrap();
        assert!(store.commit(&[Op::Create(create)]).unwrap()[0].is_ok());
    }

    fn draw(store: &MemoryStore, depth: u32) -> Vec<String> {
        let mut reader = store.reader().unwrap();
        let tops = read_children(&mut *reader, None, &Page::default(), false).unwrap().entries;
        let mut walk = Walk::new(&mut *reader, tops, depth);
        let mut lines = Vec::new();
        while let Some(node) = walk.next().unwrap() {
            lines.push(format!("{}{}", node.rule, entry::glance(&node.entry, Paint::plain())));
        }
        lines
    }

    #[test]
    fn a_tree_shows_who_stands_below_whom() {
        let store = MemoryStore::new();
        store.commit(&[Op::Create(Create::root(NewSession::root(id("root")), "a", "the root"))]).unwrap();
        child(&store, "one", "root", 0, 1);
        child(&store, "two", "root", 0, 2);
        child(&store, "leaf", "one", 1, 3);
        insta::assert_snapshot!(draw(&store, u32::MAX).join("\n"), @r"
        root [complete] — the root · 0 turns
        ├─ one [complete] — the one · 0 turns
        │  └─ leaf [complete] — the leaf · 0 turns
        └─ two [complete] — the two · 0 turns
        ");
        assert_eq!(draw(&store, 0).len(), 1);
    }

    #[test]
    fn a_lineage_of_three_thousand_levels_is_ordinary() {
        let store = MemoryStore::new();
        store.commit(&[Op::Create(Create::root(NewSession::root(id("s0")), "a", "the root"))]).unwrap();
        for depth in 0..3_000 {
            child(&store, &format!("s{}", depth + 1), &format!("s{depth}"), depth, 0);
        }
        assert_eq!(draw(&store, u32::MAX).len(), 3_001);
    }
}
