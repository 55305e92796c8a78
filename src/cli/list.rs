//! `greenroom list`: the roots, or the children of one session.

use clap::Args;
use greenroom::{
    Entry, Listing,
    actors::{catalog::read_listing, query::Page},
    session::{listing::Cursor, store::Reader},
    store_url::StoreUrl,
};
use serde_json::json;

use super::{
    cursor,
    entry::{self, SCHEMA_VERSION},
    failure::Failure,
    session::resolve,
    store,
    terminal::Terminal,
};
use greenroom::SessionId;

/// List the root sessions, or the children of one session.
///
/// Wakes nobody and writes nothing. Oldest first. `running` means that a living process holds the session.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom list\n  greenroom list 7f3a --json")]
pub(crate) struct ListArgs {
    /// The session whose children to list, by its id or its beginning; without it the roots and orphans.
    #[arg(value_name = "PARENT")]
    parent: Option<String>,
    /// Show at most this many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Go on after the place that the page before ended with.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Show one-shot children too.
    #[arg(long)]
    all: bool,
    /// Read the logs instead of what is derived from them.
    #[arg(long)]
    verify: bool,
}

impl ListArgs {
    /// Lists.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let after = self.cursor.as_deref().map(cursor::read).transpose()?;
        let mut reader = store::reader(url)?;
        let parent = self.parent.as_deref().map(|text| resolve(&mut *reader, text)).transpose()?;
        let listing = self.read(&mut *reader, parent.as_ref(), after)?;
        let next_cursor = listing.next_cursor.as_ref().map(cursor::write);
        if terminal.is_json() {
            let entries: Vec<_> = listing.entries.iter().map(entry::json).collect();
            return terminal.json(&json!({"schema_version": SCHEMA_VERSION, "entries": entries, "next_cursor": next_cursor}));
        }
        if listing.entries.is_empty() {
            terminal.line(if parent.is_some() { "(no subagents)" } else { "(no sessions)" })?;
        }
        for entry in &listing.entries {
            terminal.line(entry::line(entry))?;
        }
        terminal.flush()?;
        if let Some(next) = next_cursor {
            terminal.remark(format_args!("more: --cursor {next}"));
        }
        Ok(())
    }

    /// Reads pages until there are as many entries as were asked for: what is left out does not count.
    fn read(&self, reader: &mut dyn Reader, parent: Option<&SessionId>, mut after: Option<Cursor>) -> Result<Listing, Failure> {
        let wanted = self.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let limit = wanted.map(|wanted| wanted - entries.len());
            let page = read_listing(reader, parent, &Page { after: after.take(), limit }, self.verify)?;
            entries.extend(page.entries.into_iter().filter(|entry| self.all || !entry::is_one_shot(entry)));
            if page.next_cursor.is_none() || wanted.is_none_or(|wanted| entries.len() >= wanted) {
                return Ok(Listing { entries, next_cursor: page.next_cursor });
            }
            after = page.next_cursor;
        }
    }
}
