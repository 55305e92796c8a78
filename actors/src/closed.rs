//! What is closed: the sessions below which nothing new is accepted and nobody is started, and what was let in before.
//!
//! Whoever is about to have something accepted, or to begin an epoch, is let in here, in one step with the look whether it may, and counts as on its way until its
//! pass is dropped. So whoever closes something knows everybody who came before: nobody slips through between a look and what follows from it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use greenroom_session::{
    id::{Epoch, SessionId},
    store::{LoadError, Reader},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{lineage::Lineage, live::LiveView, services::Services};

/// What is closed in one generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// How many things are closed, so that it costs next to nothing to see that nothing is.
    count: AtomicUsize,
    /// Changes whenever something is closed.
    news: watch::Sender<u64>,
    /// Told when somebody who was on the way has arrived.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    closings: HashMap<SessionId, Vec<Closing>>,
    /// By number, the oldest first.
    passes: BTreeMap<u64, On>,
    next: u64,
    /// How many wait for arrivals, so that whoever arrives while nobody does need not tell of it.
    awaiting: usize,
}

/// Something that is closed until its owner's epoch ends.
#[derive(Debug, Clone)]
struct Closing {
    /// Closed is the session itself with all below it; else only what is below.
    whole: bool,
    owner: SessionId,
    epoch: Epoch,
    /// Held by every drain of it that is under way.
    drains: Arc<()>,
}

impl Closing {
    fn is_of(&self, owner: &SessionId, epoch: Epoch) -> bool {
        self.owner == *owner && self.epoch == epoch
    }

    /// Tells whether what was there has ended, as far as anybody has asked for that.
    fn is_done(&self) -> bool {
        Arc::strong_count(&self.drains) == 1
    }
}

/// A drain of what was closed for it. Dropped when what was there has ended and what was let in before has arrived; until then it stays closed, also when another
/// drain of the same is over.
#[derive(Debug, Clone)]
pub(crate) struct Underway(#[expect(dead_code, reason = "held, to be counted")] Vec<Arc<()>>);

/// Somebody on the way.
#[derive(Debug)]
struct On {
    session: SessionId,
    /// `None` where nobody had to look.
    lineage: Option<Lineage>,
    /// Told of a closing, for starts.
    start: Option<CancellationToken>,
}

/// A session, or what is below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(crate) session: SessionId,
    pub(crate) whole: bool,
}

/// Some of these.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scopes(HashMap<SessionId, bool>);

impl Scopes {
    /// Tells whether a session is in one of them.
    pub(crate) fn cover(&self, session: &SessionId, lineage: &Lineage) -> bool {
        self.0.get(session) == Some(&true) || lineage.ids().any(|above| self.0.contains_key(above))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        let mut all = HashMap::new();
        for Scope { session, whole } in scopes {
            *all.entry(session).or_default() |= whole;
        }
        Self(all)
    }
}

/// Why somebody was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    /// It is closed there.
    Closed,
    /// Something is closed, and it is not known whether it is there.
    Unknown,
}

/// The right to be on the way. Dropped on arrival.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    closed: Cow<'a, Closed>,
    number: u64,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut inner = self.closed.lock();
        let on = inner.passes.remove(&self.number);
        // Who waits was counted before the look that found this on its way.
        let is_awaited = inner.awaiting > 0;
        drop(inner);
        // What it was is dropped when others may be let in again.
        drop(on);
        if is_awaited {
            self.closed.0.arrived.notify_waiters();
        }
    }
}

/// What was on its way when something was closed.
#[derive(Debug)]
pub(crate) struct Arrivals {
    closed: Closed,
    numbers: Vec<u64>,
}

/// Somebody who waits for arrivals.
struct Awaiting<'a>(&'a Closed);

impl<'a> Awaiting<'a> {
    fn begin(closed: &'a Closed) -> Self {
        closed.lock().awaiting += 1;
        Self(closed)
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.lock().awaiting -= 1;
    }
}

impl Arrivals {
    /// Waits until all of it has come to its end.
    pub(crate) async fn ended(&self) {
        let _awaiting = Awaiting::begin(&self.closed);
        loop {
            let mut arrived = std::pin::pin!(self.closed.0.arrived.notified());
            // Heard from before the look on.
            arrived.as_mut().enable();
            if self.left().is_empty() {
                return;
            }
            arrived.await;
        }
    }

    /// Returns for whom some of it is still on its way.
    pub(crate) fn left(&self) -> Vec<SessionId> {
        let inner = self.closed.lock();
        self.numbers.iter().filter_map(|number| inner.passes.get(number)).map(|on| on.session.clone()).collect()
    }
}

impl Closed {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether anything is closed.
    pub(crate) fn is_any(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// Closes scopes until this epoch of `owner` ends, for a drain that is then under way. Starts that are on the way there are told.
    pub(crate) fn close(&self, scopes: &[Scope], owner: &SessionId, epoch: Epoch) -> Underway {
        let mut inner = self.lock();
        let mut drains = Vec::with_capacity(scopes.len());
        for Scope { session, whole } in scopes {
            let closings = inner.closings.entry(session.clone()).or_default();
            let known = closings.iter().find(|known| known.whole == *whole && known.is_of(owner, epoch)).map(|known| known.drains.clone());
            drains.push(known.unwrap_or_else(|| {
                let drains = Arc::default();
                closings.push(Closing { whole: *whole, owner: owner.clone(), epoch, drains: Arc::clone(&drains) });
                drains
            }));
        }
        self.0.count.store(inner.closings.len(), Ordering::Release);
        for on in inner.passes.values() {
            if let (Some(token), Some(lineage)) = (&on.start, &on.lineage)
                && inner.covers(&on.session, lineage)
            {
                token.cancel();
            }
        }
        drop(inner);
        self.0.news.send_modify(|version| *version += 1);
        Underway(drains)
    }

    /// Opens what this epoch of a session has closed.
    pub(crate) fn open(&self, owner: &SessionId, epoch: Epoch) {
        if self.is_any() {
            self.retain(|_, closing| !closing.is_of(owner, epoch));
        }
    }

    /// Opens a child that this epoch of its parent has closed, if no drain of it is under way.
    pub(crate) fn open_child(&self, parent: &SessionId, epoch: Epoch, child: &SessionId) {
        if self.is_any() {
            self.retain(|session, closing| session != child || !closing.whole || !closing.is_of(parent, epoch) || !closing.is_done());
        }
    }

    fn retain(&self, mut keep: impl FnMut(&SessionId, &Closing) -> bool) {
        let mut inner = self.lock();
        inner.closings.retain(|session, closings| {
            closings.retain(|closing| keep(session, closing));
            !closings.is_empty()
        });
        self.0.count.store(inner.closings.len(), Ordering::Release);
    }

    /// Tells whether a session is in what is closed.
    pub(crate) fn covers(&self, session: &SessionId, lineage: &Lineage) -> bool {
        self.is_any() && self.lock().covers(session, lineage)
    }

    /// Tells whether a child of a live session is closed.
    pub(crate) fn is_any_of(&self, parent: Option<&LiveView>, child: &SessionId) -> bool {
        parent.is_some_and(|parent| self.covers(child, &parent.below))
    }

    /// Tells whether everything below a session is closed.
    pub(crate) fn is_below(&self, root: &SessionId) -> bool {
        self.is_any() && self.lock().closings.contains_key(root)
    }

    /// Lets a message for a session in, or whatever else is accepted on its behalf.
    pub(crate) fn enter(&self, session: &SessionId, lineage: Option<&Lineage>) -> Result<Pass<'_>, Shut> {
        let number = self.let_in(On { session: session.clone(), lineage: lineage.cloned(), start: None })?;
        Ok(Pass { closed: Cow::Borrowed(self), number })
    }

    /// Lets the start of a session in. The token is cancelled when it is closed behind it.
    pub(crate) fn enter_start(&self, session: &SessionId, lineage: &Lineage) -> Result<(Pass<'static>, CancellationToken), Shut> {
        let token = CancellationToken::new();
        let on = On { session: session.clone(), lineage: Some(lineage.clone()), start: Some(token.clone()) };
        let number = self.let_in(on)?;
        Ok((Pass { closed: Cow::Owned(self.clone()), number }, token))
    }

    fn let_in(&self, on: On) -> Result<u64, Shut> {
        let mut inner = self.lock();
        if !inner.closings.is_empty() {
            match &on.lineage {
                None => return Err(Shut::Unknown),
                Some(lineage) if inner.covers(&on.session, lineage) => return Err(Shut::Closed),
                Some(_) => {}
            }
        }
        let number = inner.next;
        inner.next += 1;
        inner.passes.insert(number, on);
        Ok(number)
    }

    /// Returns the sessions in these scopes whose start is on its way.
    pub(crate) fn starting(&self, scopes: &Scopes) -> Vec<SessionId> {
        let inner = self.lock();
        let mut starting: Vec<_> = inner.passes.values().filter(|on| on.start.is_some() && on.is_bound_for(scopes)).map(|on| on.session.clone()).collect();
        // In an order that a seed repeats.
        starting.sort();
        starting
    }

    /// Forgets that a start is on its way, and returns its lineage if it was.
    pub(crate) fn forget_start(&self, session: &SessionId) -> Option<Lineage> {
        let mut inner = self.lock();
        let number = inner.passes.iter().find(|(_, on)| on.start.is_some() && on.session == *session).map(|(number, _)| *number)?;
        inner.passes.remove(&number)?.lineage
    }

    /// Returns what is on its way to be accepted in these scopes, or may be. What is let in from now on is not part of it.
    pub(crate) fn arrivals(&self, scopes: &Scopes) -> Arrivals {
        let inner = self.lock();
        let is_awaited = |on: &On| on.start.is_none() && on.is_bound_for(scopes);
        Arrivals { closed: self.clone(), numbers: inner.passes.iter().filter(|(_, on)| is_awaited(on)).map(|(number, _)| *number).collect() }
    }

    /// Returns what changes when something is closed.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }
}

impl On {
    fn is_bound_for(&self, scopes: &Scopes) -> bool {
        self.lineage.as_ref().is_none_or(|lineage| scopes.cover(&self.session, lineage))
    }
}

impl Inner {
    fn covers(&self, session: &SessionId, lineage: &Lineage) -> bool {
        let is_whole = |closings: &Vec<Closing>| closings.iter().any(|closing| closing.whole);
        self.closings.get(session).is_some_and(is_whole) || lineage.ids().any(|above| self.closings.contains_key(above))
    }
}

/// Tells whether a session, live or not, is in what is closed. Where nothing is closed nothing is read, and what cannot be read is somebody else's trouble.
pub(crate) async fn is_closed(services: &Services, session: &SessionId) -> bool {
    if !services.closed.is_any() {
        return false;
    }
    match lineage_of(services, session).await {
        Ok(Some(lineage)) => services.closed.covers(session, &lineage),
        Ok(None) | Err(_) => false,
    }
}

/// Returns the lineage of a session, live or not; `None` if there is no such session.
pub(crate) async fn lineage_of(services: &Services, session: &SessionId) -> Result<Option<Lineage>, LoadError> {
    if let Some(view) = services.live.get(session) {
        return Ok(Some(view.lineage.clone()));
    }
    let (id, live) = (session.clone(), services.live.clone());
    let find = move |reader: &mut dyn Reader| match reader.header(&id)? {
        Some(header) => Ok::<_, LoadError>(Some(Lineage::find(reader, &live, &header)?)),
        None => Ok(None),
    };
    services.readers.read(find).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    fn below(session: &SessionId) -> Scope {
        Scope { session: session.clone(), whole: false }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_on_its_way_is_waited_for_also_when_the_closing_has_ended_and_what_comes_later_is_not() {
        let (closed, root, child) = (Closed::default(), id("root"), id("child"));
        let lineage = Lineage::default().of_child(&root);
        let first = closed.enter(&child, Some(&lineage)).unwrap();
        drop(closed.close(&[below(&root)], &root, 1));
        let arrivals = closed.arrivals(&[below(&root)].into_iter().collect());
        let mut ended = tokio_test::task::spawn(arrivals.ended());
        assert!(ended.poll().is_pending());
        closed.open(&root, 1);
        let later = closed.enter(&child, None).unwrap();
        assert!(ended.poll().is_pending());
        drop(first);
        assert!(ended.is_woken(), "nothing is closed any more, and somebody waits for all that");
        assert!(ended.poll().is_ready(), "what was let in after the closing is nothing that it has to wait for");
        drop(ended);
        assert_eq!(closed.lock().awaiting, 0);
        // Who gives up waiting is not counted any more, and leaves the others waiting.
        let both = closed.arrivals(&[Scope { session: child.clone(), whole: true }].into_iter().collect());
        let (mut given_up, mut stays) = (tokio_test::task::spawn(both.ended()), tokio_test::task::spawn(both.ended()));
        assert!(given_up.poll().is_pending() && stays.poll().is_pending());
        drop(given_up);
        drop(later);
        assert!(stays.is_woken() && stays.poll().is_ready());
        drop(stays);
        assert_eq!(closed.lock().awaiting, 0);
        assert!(closed.lock().passes.is_empty() && closed.lock().closings.is_empty());
    }

    #[test]
    fn a_child_stays_closed_until_the_last_drain_of_it_that_its_parent_began_is_over() {
        let (closed, parent, above, child) = (Closed::default(), id("parent"), id("above"), id("child"));
        let lineage = Lineage::default().of_child(&above).of_child(&parent);
        let whole = || Scope { session: child.clone(), whole: true };
        let may_enter = || {
            closed.open_child(&parent, 1, &child);
            closed.enter(&child, Some(&lineage)).is_ok()
        };
        // The same child twice in one call is one drain of it.
        let mut drains = vec![closed.close(&[whole(), whole()], &parent, 1), closed.close(&[whole()], &parent, 1), closed.close(&[whole()], &parent, 1)];
        for over in [1, 0, 0] {
            assert!(!may_enter());
            drop(drains.remove(over));
        }
        assert!(may_enter());
        // What others have closed, or an earlier epoch, is not the parent's to open.
        drop(closed.close(&[below(&above)], &above, 1));
        assert!(!may_enter());
        closed.open(&above, 1);
        drop(closed.close(&[whole()], &parent, 2));
        assert!(!may_enter());
        closed.open_child(&parent, 2, &child);
        assert!(may_enter());
        // A drain that outlives the epoch that has begun it keeps nothing closed, and is not taken for one of the next.
        let late = closed.close(&[whole()], &parent, 2);
        closed.open(&parent, 2);
        let next = closed.close(&[whole()], &parent, 1);
        drop(late);
        assert!(!may_enter());
        drop(next);
        assert!(may_enter() && !closed.is_any());
    }
}
