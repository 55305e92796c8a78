//! The reader: files and their names, and nothing that it writes.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    ops::ControlFlow,
    sync::Arc,
};

use super::{
    check,
    held::Epochs,
    index::Index,
    mend,
    place::Place,
    scan::{Scanned, See},
    siblings::{Sibling, span},
    view::{Kept, Remembered, Scan, View, Whole},
    whole,
};
use crate::{
    check::{Checked, Class, Finding, Place as CheckPlace, lineage},
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Described, Description, Summary, Verdict},
    message::InboxRecord,
    place::{folder_of, name_of},
    repair::Quarantine,
    store::{ExportError, Lease, LoadError, Log, Member, MessageState, Reader, StoreError, Traced, reader::apart},
};

/// Reads a folder of JSON Lines. Changes nothing in it, whoever else has it open.
///
/// ```
/// use greenroom_session::store::{Reader, Store, jsonl::{JsonlReader, JsonlStore, open_reader}};
/// let folder = tempfile::tempdir()?;
/// JsonlStore::open(folder.path())?.close()?;
/// let mut reader: JsonlReader = open_reader(folder.path())?;
/// assert!(reader.children(None, None, 10)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonlReader {
    view: Arc<View>,
    /// The aliases that a check has met so far, and whose they are.
    aliases: HashMap<(SessionId, String), SessionId>,
}

impl JsonlReader {
    pub(super) fn new(view: Arc<View>) -> Self {
        Self { view, aliases: HashMap::new() }
    }

    fn place(&self, id: &SessionId) -> Result<Place, LoadError> {
        match self.view.locate(id)? {
            Some(place) => Ok(place),
            None if self.view.is_removed(id).map_err(StoreError::from)? => Err(LoadError::Removed(id.clone())),
            None => Err(LoadError::NotFound(id.clone())),
        }
    }

    fn scan(&self, id: &SessionId, see: &mut See<'_>) -> Result<Scan, LoadError> {
        let place = self.place(id)?;
        self.view.scan(&place, see).map_err(StoreError::from)?.ok_or_else(|| LoadError::NotFound(id.clone()))?
    }

    fn whole(&self, id: &SessionId, see: &mut See<'_>) -> Result<Whole, LoadError> {
        match self.scan(id, see)? {
            Scan::Whole(whole) => Ok(*whole),
            // Nothing stops it.
            Scan::Stopped => Err(LoadError::NotFound(id.clone())),
        }
    }

    fn scanned(&self, id: &SessionId) -> Result<Scanned, LoadError> {
        Ok(self.whole(id, &mut |_| ControlFlow::Continue(()))?.scanned)
    }

    /// Reads the headers of one family in order, or those of roots and orphans; the logs, too, if they are wanted.
    fn siblings(&self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize, with_log: bool) -> io::Result<Vec<Arc<Kept>>> {
        let Some(parent) = parent else {
            let (order, kept) = self.order(self.view.names(Index::topmost)?, false)?;
            return self.page(&order, &kept, after, limit, with_log);
        };
        let folder = folder_of(Some(parent));
        if let Some(found) = self.page_as_before(&folder, after, limit, with_log)? {
            return Ok(found);
        }
        let (version, places) = self.view.folders(&[&folder], |index| (index.version(&folder), index.folder(&folder)))?;
        // Of a page, it takes the headers to tell which logs are wanted.
        let at_once = with_log && after.is_none() && limit >= places.len();
        let (order, kept) = self.order(places, at_once)?;
        let found = self.page(&order, &kept, after, limit, with_log && !at_once)?;
        // The time of one that cannot be read may yet come to light.
        if let Some(version) = version
            && kept.iter().all(|kept| kept.header.is_ok())
        {
            self.view.orders.put(folder, version, order);
        }
        Ok(found)
    }

    /// Reads a page by the order that is remembered, if it is and still right.
    fn page_as_before(&self, folder: &str, after: Option<&Cursor>, limit: usize, with_log: bool) -> io::Result<Option<Vec<Arc<Kept>>>> {
        let version = self.view.folders(&[folder], |index| index.version(folder))?;
        let Some(order) = version.and_then(|version| self.view.orders.get(folder, version)) else { return Ok(None) };
        let mut found = Vec::new();
        for sibling in order.get(span(&order, after, limit)).unwrap_or_default() {
            match self.view.kept(&sibling.place, with_log)? {
                Some(kept) if kept.created_at() == sibling.created_at => found.push(kept),
                _ => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Puts files in the order of siblings by their headers; reads their logs, too, if they are wanted.
    fn order(&self, places: Vec<Place>, with_log: bool) -> io::Result<(Vec<Sibling>, Vec<Arc<Kept>>)> {
        let mut order = Vec::with_capacity(places.len());
        for place in places {
            if let Some(kept) = self.view.kept(&place, with_log)? {
                order.push((Sibling::of(place, &kept), kept));
            }
        }
        order.sort_unstable_by(|(a, _), (b, _)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(order.into_iter().unzip())
    }

    /// Takes those that come after a place, at most `limit`, and reads their logs if they are wanted.
    fn page(&self, order: &[Sibling], kept: &[Arc<Kept>], after: Option<&Cursor>, limit: usize, with_log: bool) -> io::Result<Vec<Arc<Kept>>> {
        let span = span(order, after, limit);
        if with_log {
            let page = order.get(span).unwrap_or_default().iter();
            return page.filter_map(|sibling| self.view.kept(&sibling.place, true).transpose()).collect();
        }
        Ok(kept.get(span).unwrap_or_default().to_vec())
    }

    fn has_subagent(&self, parent: &SessionId) -> io::Result<bool> {
        let folder = folder_of(Some(parent));
        for place in self.view.folders(&[&folder], |index| index.folder(&folder))? {
            if self.view.kept(&place, false)?.is_some_and(|kept| kept.is_subagent()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn described(&self, id: &SessionId, summary: Result<Summary, LoadError>, holder: Option<&(OwnerId, Epochs)>) -> Result<Description, LoadError> {
        let Summary { head, verdict } = summary?;
        let has_children = self.has_subagent(id).map_err(StoreError::from)?;
        Ok(Description { holder: holder_of(id, &head, holder), verdict, head, has_children })
    }

    fn row(&self, child: &Traced, holder: Option<&(OwnerId, Epochs)>) -> Result<Described, LoadError> {
        let place = place_of(child)?;
        match self.view.remembered(&place).map_err(StoreError::from)? {
            Remembered::Gone => Err(LoadError::NotFound(child.id.clone())),
            Remembered::Kept(kept) => self.told(&child.id, Some(&kept), holder),
            Remembered::Nothing => self.told(&child.id, None, holder),
        }
    }

    /// Says of a session what its file has told so far.
    fn told(&self, id: &SessionId, kept: Option<&Kept>, holder: Option<&(OwnerId, Epochs)>) -> Result<Described, LoadError> {
        let row = kept.filter(|kept| kept.tells_all()).map(|kept| kept.summary().cloned()).transpose()?;
        let has_children = self.has_subagent(id).map_err(StoreError::from)?;
        Ok(Described { holder: row.as_ref().and_then(|row| holder_of(id, &row.head, holder)), row, has_children })
    }

    fn summary(&self, child: &Traced, verify: bool) -> Result<Summary, LoadError> {
        let place = place_of(child)?;
        let missing = || LoadError::NotFound(child.id.clone());
        if verify {
            return match self.view.scan(&place, &mut |_| ControlFlow::Continue(())).map_err(StoreError::from)?.ok_or_else(missing)?? {
                Scan::Whole(whole) => Ok(Summary::of(&whole.scanned.fold)),
                Scan::Stopped => Err(missing()),
            };
        }
        let kept = self.view.kept(&place, true).map_err(StoreError::from)?.ok_or_else(missing)?;
        kept.summary().cloned()
    }
}

/// Returns where the file of a child lies.
fn place_of(child: &Traced) -> Result<Place, LoadError> {
    match &child.header {
        Ok(header) => Ok(Place::of(header.parent.as_ref(), &child.id)),
        Err(source) => Err(LoadError::Corrupt { session: child.id.clone(), place: "header".into(), source: source.clone() }),
    }
}

/// Returns who holds a session whose log says this head: whoever is alive, if the epoch that goes on is one that it began.
fn holder_of(id: &SessionId, head: &Head, holder: Option<&(OwnerId, Epochs)>) -> Option<OwnerId> {
    let began = |(_, epochs): &&(OwnerId, Epochs)| head.live && epochs.get(id).is_some_and(|begun| begun.contains(&head.epoch));
    holder.filter(began).map(|(owner, _)| owner.clone())
}

fn traced(kept: &Kept) -> Traced {
    Traced { id: kept.id.clone(), created_at: kept.created_at(), header: kept.header.clone() }
}

impl Reader for JsonlReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        let Some(place) = self.view.locate(id)? else { return Ok(None) };
        match self.view.kept(&place, false).map_err(StoreError::from)?.as_deref() {
            None => Ok(None),
            Some(Kept { header: Ok(header), .. }) => Ok(Some(header.clone())),
            Some(kept) => kept.summary().map(|_| None),
        }
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(self.view.is_removed(id)?)
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        whole::export(&self.whole(id, &mut |_| ControlFlow::Continue(()))?, false, line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        let mut events = Vec::new();
        let whole = self.whole(id, &mut |event| {
            events.push(event);
            ControlFlow::Continue(())
        })?;
        Ok(Log { events, fold: whole.scanned.fold })
    }

    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        Ok(match self.scan(id, &mut |event| see(&event))? {
            Scan::Whole(whole) => Some(whole.scanned.fold),
            Scan::Stopped => None,
        })
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let place = self.place(id)?;
        self.view.events(&place, from, limit).map_err(StoreError::from)?.ok_or_else(|| LoadError::NotFound(id.clone()))?
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        Ok(self.scanned(id)?.inbox.into_values().take(limit).collect())
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let scanned = self.scanned(id)?;
        Ok(scanned.orders.get(message).map(|order| if scanned.inbox.contains_key(order) { MessageState::Pending(*order) } else { MessageState::Taken(*order) }))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        Ok(self.siblings(parent, after, limit, false)?.iter().map(|kept| traced(kept)).collect())
    }

    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        let holder = self.view.holder()?;
        children.iter().map(|child| apart(self.row(child, holder.as_ref()))).collect()
    }

    fn family_rows(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
        let holder = self.view.holder()?;
        let found = self.siblings(parent, after, limit, false)?.into_iter();
        // What found a child has just looked at its file.
        found.map(|kept| Ok((traced(&kept), apart(self.told(&kept.id, Some(&kept), holder.as_ref()))?))).collect()
    }

    fn holder(&mut self, id: &SessionId, head: &Head) -> Result<Option<OwnerId>, StoreError> {
        // Of most it need not be asked who is alive.
        if !head.live {
            return Ok(None);
        }
        Ok(holder_of(id, head, self.view.holder()?.as_ref()))
    }

    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        let holder = self.view.holder()?;
        children.iter().map(|child| apart(self.described(&child.id, self.summary(child, verify), holder.as_ref()))).collect()
    }

    fn family(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize, verify: bool) -> Result<Vec<Member>, StoreError> {
        let holder = self.view.holder()?;
        let mut members = Vec::new();
        for kept in self.siblings(parent, after, limit, !verify)? {
            let child = traced(&kept);
            let summary = if verify { self.summary(&child, true) } else { kept.summary().cloned() };
            let described = apart(self.described(&kept.id, summary, holder.as_ref()))?;
            members.push((child, described));
        }
        Ok(members)
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut found = self.ids(|id| id.as_str().starts_with(prefix))?;
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        for sibling in self.siblings(Some(parent), None, usize::MAX, false)? {
            let Ok(header) = &sibling.header else { continue };
            if header.is_fork() {
                continue;
            }
            let kept = self.view.kept(&Place::of(Some(parent), &sibling.id), true)?;
            let named = |kept: &Arc<Kept>| matches!(kept.summary(), Ok(Summary { verdict: Verdict::Child { alias: Some(named), .. }, .. }) if named == alias);
            if kept.as_ref().is_some_and(named) {
                return Ok(Some(sibling.id.clone()));
            }
        }
        Ok(None)
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let holder = self.view.holder()?;
        let mut found = Vec::new();
        for (id, place) in self.inside(self.view.work()?, root)? {
            if found.len() == limit {
                break;
            }
            if !self.is_held(&id, place.as_ref(), holder.as_ref())? {
                found.push(id);
            }
        }
        Ok(found)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let holder = self.view.holder()?;
        let Some((owner, epochs)) = &holder else { return Ok(Vec::new()) };
        let sessions: BTreeSet<SessionId> = epochs.keys().cloned().collect();
        let mut leases = Vec::new();
        for (session, place) in self.inside(sessions, root)? {
            if self.is_held(&session, place.as_ref(), holder.as_ref())? {
                leases.push(Lease { session, owner: owner.clone(), alive: true });
            }
        }
        Ok(leases)
    }

    fn sessions(&mut self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut found = self.ids(|id| after.is_none_or(|after| id > after))?;
        // A session with files in two folders is named twice, so the page is cut when it is in order.
        if found.len() > 2 * limit {
            found.select_nth_unstable(2 * limit);
            found.truncate(2 * limit);
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    fn count(&mut self) -> Result<u64, StoreError> {
        Ok(self.view.names(|index| index.all().len())? as u64)
    }

    fn quarantine(&mut self, id: &SessionId) -> Result<Option<Quarantine>, StoreError> {
        for place in self.view.places(&name_of(id))? {
            if let Some(quarantine) = mend::quarantine(&self.view.dir, &place)? {
                return Ok(Some(quarantine));
            }
        }
        Ok(None)
    }

    fn check(&mut self, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
        let Some((files, mut findings)) = check::check(&self.view, id)? else { return Ok(None) };
        let header = match self.header(id) {
            Err(LoadError::Store(error)) => return Err(error),
            other => other.ok().flatten(),
        };
        if let Some(header) = header {
            // Headers stand at the beginning of files.
            findings.splice(0..0, lineage(&header, |id| self.header(id))?);
            let names_alias = files.iter().filter_map(|file| file.derived.as_ref()).find_map(|(_, verdict)| match verdict {
                Verdict::Child { alias, .. } => alias.clone(),
                Verdict::Root { .. } | Verdict::Plain | Verdict::Broken { .. } => None,
            });
            if let (Some(parent), Some(alias)) = (&header.parent, names_alias) {
                let other = self.aliases.entry((parent.clone(), alias)).or_insert_with(|| id.clone());
                if other != id {
                    findings.push(Finding::of(id, CheckPlace::Header, Class::DuplicateAlias, format!("{other} has the same alias")));
                }
            }
        }
        findings.into_iter().for_each(see);
        Ok(files.into_iter().reduce(|a, b| Checked { events: a.events + b.events, messages: a.messages + b.messages, ..a }))
    }

    fn check_store(&mut self, see: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.aliases.clear();
        Ok(check::check_store(&self.view, see)?)
    }
}

impl JsonlReader {
    /// Returns the ids of files, in no order.
    fn ids(&self, wanted: impl Fn(&SessionId) -> bool) -> Result<Vec<SessionId>, StoreError> {
        let mut found = Vec::new();
        for place in self.view.names(Index::all)? {
            let id = match place.id() {
                Some(id) => id,
                // A long id stands in the header only.
                None => match self.view.kept(&place, false)? {
                    Some(kept) if kept.header.is_ok() => kept.id.clone(),
                    _ => continue,
                },
            };
            if wanted(&id) {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Returns those of some sessions that lie in the tree of `root`, and where their files are.
    fn inside(&self, ids: BTreeSet<SessionId>, root: Option<&SessionId>) -> io::Result<Vec<(SessionId, Option<Place>)>> {
        let root = root.map(name_of);
        self.view.names(|index| {
            let named = ids.into_iter().map(|id| (name_of(&id), id));
            let inside = named.filter(|(stem, _)| root.as_ref().is_none_or(|root| index.in_tree(stem, root)));
            inside.map(|(stem, id)| (id, index.places(&stem).pop())).collect()
        })
    }

    /// Tells whether the log's open epoch is one that a live process began.
    fn is_held(&self, id: &SessionId, place: Option<&Place>, holder: Option<&(OwnerId, Epochs)>) -> io::Result<bool> {
        let (Some(begun), Some(place)) = (holder.and_then(|(_, epochs)| epochs.get(id)), place) else { return Ok(false) };
        let kept = self.view.kept(place, true)?;
        Ok(kept.is_some_and(|kept| kept.summary().is_ok_and(|summary| summary.head.live && begun.contains(&summary.head.epoch))))
    }
}
