//! `greenroom tree`: a forest of sessions.

use std::collections::HashSet;

use clap::Args;
use greenroom::{
    Entry, SessionId,
    actors::catalog::{read_entry, read_members},
    session::store::Reader,
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::{
    entry::{self, SCHEMA_VERSION},
    failure::Failure,
    layout::Layout,
    paint::{Paint, Role},
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
    /// Go at most this many levels below it; how many sessions are deeper is said where they would be.
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
}

impl TreeArgs {
    /// Draws.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let tops = match &self.root {
            None => drawn_below(&mut *reader, None)?,
            Some(text) => {
                let id = resolve(&mut *reader, text)?;
                match read_entry(&mut *reader, &id)? {
                    Some(entry) => vec![(None, entry)],
                    // A plain fork is listed nowhere, but it may have children that are.
                    None => drawn_below(&mut *reader, Some(&id))?,
                }
            }
        };
        let mut walk = Walk::new(&mut *reader, tops, self.depth.unwrap_or(u32::MAX), !terminal.is_json());
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
            for line in node.lines(terminal.paint(), terminal.layout()) {
                terminal.line(line)?;
            }
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
    /// What stands in the place of the rule on further lines of this session.
    indent: String,
    /// Whether somebody is drawn below it.
    has_below: bool,
    /// Sessions below it that are not drawn.
    cut: u64,
}

impl Node {
    /// Returns its lines: itself, and how many are cut off below it.
    fn lines(&self, paint: Paint, layout: Layout) -> Vec<String> {
        let aside = |text: &str| if text.is_empty() { String::new() } else { paint.show(Role::Aside, text).to_string() };
        let below = if self.has_below || self.cut > 0 { "│  " } else { "   " };
        let mut lines = layout.lines(&aside(&self.rule), &aside(&format!("{}{below}", self.indent)), &entry::glance(&self.entry, paint));
        if self.cut > 0 {
            lines.push(aside(&format!("{}└─ ({} more below)", self.indent, self.cut)));
        }
        lines
    }

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
    /// Whether what is too deep to be drawn is counted.
    counts: bool,
    /// Damaged headers can name each other as parents in a circle.
    seen: HashSet<SessionId>,
}

/// A session that is drawn, and its parent if the walk has come from there.
type Drawn = (Option<SessionId>, Entry);

/// Finds who is drawn below a session, or at the top. Who is listed nowhere, as a fork is, is not drawn: whoever is below it stands in its place.
fn drawn_below(reader: &mut dyn Reader, parent: Option<&SessionId>) -> Result<Vec<Drawn>, Failure> {
    let mut drawn = Vec::new();
    let mut passed = HashSet::new();
    let mut open = vec![(parent.cloned(), read_members(reader, parent)?.into_iter())];
    while let Some((parent, rest)) = open.last_mut() {
        match rest.next() {
            None => drop(open.pop()),
            Some((_, Some(entry))) => drawn.push((parent.clone(), entry)),
            Some((id, None)) if passed.insert(id.clone()) => {
                let below = read_members(reader, Some(&id))?.into_iter();
                open.push((Some(id), below));
            }
            Some((_, None)) => {}
        }
    }
    Ok(drawn)
}

struct Level {
    siblings: std::iter::Peekable<std::vec::IntoIter<Drawn>>,
    /// What stands before the lines of this level's own rule.
    indent: String,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a mut dyn Reader, tops: Vec<Drawn>, max_depth: u32, counts: bool) -> Self {
        let top = Level { siblings: tops.into_iter().peekable(), indent: String::new() };
        Self { reader, levels: vec![top], max_depth, counts, seen: HashSet::new() }
    }

    fn next(&mut self) -> Result<Option<Node>, Failure> {
        while let Some(level) = self.levels.last_mut() {
            let Some((parent, entry)) = level.siblings.next() else {
                self.levels.pop();
                continue;
            };
            if !self.seen.insert(entry.id().clone()) {
                continue;
            }
            let last = level.siblings.peek().is_none();
            let indent = level.indent.clone();
            let parent = match parent {
                Some(parent) => Some(parent),
                // At the top the walk has not come from the parent: an orphan names one, and so does the child that a user began with.
                None => self.reader.header(entry.id()).ok().flatten().and_then(|header| header.parent.clone()),
            };
            let depth = u32::try_from(self.levels.len()).unwrap_or(u32::MAX) - 1;
            let (branch, below) = match (depth, last) {
                (0, _) => ("", ""),
                (_, true) => ("└─ ", "   "),
                (_, false) => ("├─ ", "│  "),
            };
            let (rule, indent) = (format!("{indent}{branch}"), format!("{indent}{below}"));
            let (mut has_below, mut cut) = (false, 0);
            if depth < self.max_depth {
                let siblings = drawn_below(self.reader, Some(entry.id()))?;
                has_below = !siblings.is_empty();
                if has_below {
                    self.levels.push(Level { siblings: siblings.into_iter().peekable(), indent: indent.clone() });
                }
            } else if self.counts {
                cut = self.count_below(entry.id())?;
            }
            return Ok(Some(Node { entry, parent, depth, rule, indent, has_below, cut }));
        }
        Ok(None)
    }

    /// Counts the sessions below one, as they would be drawn.
    fn count_below(&mut self, top: &SessionId) -> Result<u64, Failure> {
        let (mut open, mut count) = (vec![top.clone()], 0);
        while let Some(parent) = open.pop() {
            for (_, entry) in drawn_below(self.reader, Some(&parent))? {
                if self.seen.insert(entry.id().clone()) {
                    count += 1;
                    open.push(entry.id().clone());
                }
            }
        }
        Ok(count)
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
        draw_in(store, depth, None)
    }

    fn draw_in(store: &MemoryStore, depth: u32, columns: Option<usize>) -> Vec<String> {
        let mut reader = store.reader().unwrap();
        let tops = drawn_below(&mut *reader, None).unwrap();
        let mut walk = Walk::new(&mut *reader, tops, depth, true);
        let mut lines = Vec::new();
        while let Some(node) = walk.next().unwrap() {
            lines.extend(node.lines(Paint::plain(), Layout::new(columns)));
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
        insta::assert_snapshot!(draw(&store, 1).join("\n"), @r#"
        root [complete] — the root · 0 turns
        ├─ one [complete] — the one · 0 turns
        │  └─ (1 more below)
        └─ two [complete] — the two · 0 turns
        "#);
        insta::assert_snapshot!(draw(&store, 0).join("\n"), @r#"
        root [complete] — the root · 0 turns
        └─ (3 more below)
        "#);
        insta::assert_snapshot!(draw_in(&store, 1, Some(30)).join("\n"), @r#"
        root [complete] — the root · 0
        │  turns
        ├─ one [complete] — the one ·
        │  │  0 turns
        │  └─ (1 more below)
        └─ two [complete] — the two ·
              0 turns
        "#);
    }

    #[test]
    fn a_lineage_of_three_thousand_levels_is_ordinary() {
        let store = MemoryStore::new();
        store.commit(&[Op::Create(Create::root(NewSession::root(id("s0")), "a", "the root"))]).unwrap();
        for depth in 0..3_000 {
            child(&store, &format!("s{}", depth + 1), &format!("s{depth}"), depth, 0);
        }
        assert_eq!(draw(&store, u32::MAX).len(), 3_001);
        assert_eq!(draw(&store, 10)[11].trim(), "└─ (2990 more below)");
    }
}
