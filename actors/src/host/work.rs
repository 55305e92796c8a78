//! What is left to do: finding it, waking who has it, and waiting until nobody has any.

use greenroom_session::{
    id::SessionId,
    listing::Description,
    store::{Lease, LoadError, StoreError, Traced},
};
use tokio::sync::oneshot;

use super::Host;
use crate::{registry::RegistryMessage, wait::Patience};

impl Host {
    /// Wakes the sessions of a tree (of all trees if `None`) that have work and that no live process holds, and those of this process whose epoch broke off and could not
    /// be followed by another. Returns them in the order in which they
    /// are woken: those whose turn was cut off first, so that what keeps cutting turns off does not catch the same ones again.
    ///
    /// Starts are bounded by the configuration; what cannot run is reported by [`Occurrence::NotActivated`](crate::Occurrence::NotActivated).
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Some may have been woken.
    pub async fn recover(&self, root: Option<&SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let services = self.services();
        let root = root.cloned();
        let (live, played, own) = (services.live.clone(), services.played.clone(), services.store.owner().clone());
        let found = services
            .readers
            .read(move |reader| {
                let (mut found, mut unread) = (Vec::new(), Vec::new());
                let mut wanted = reader.runnable(root.as_ref(), usize::MAX)?;
                // Held by this process, with nobody behind it: no other looks after it.
                let broken_off = |lease: &Lease| lease.owner == own && !live.is_resident(&lease.session) && played.of(&lease.session).is_none();
                wanted.extend(reader.leases(root.as_ref())?.into_iter().filter(broken_off).map(|lease| lease.session));
                for id in wanted {
                    match reader.header(&id) {
                        // Nobody but a host plays a fork.
                        Ok(Some(header)) if header.is_fork() => {}
                        Ok(Some(header)) => found.push(Traced { id, created_at: header.created_at, header: Ok(header) }),
                        // Gone since.
                        Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => {}
                        // An outage is no word on a session.
                        Err(LoadError::Store(error)) => return Err(error),
                        // Its start says what is wrong with it.
                        Err(_) => unread.push(id),
                    }
                }
                let described = reader.describe(&found, false)?;
                let cut_off = |description: &Description| description.head.is_unfinished();
                let (first, then): (Vec<_>, Vec<_>) = found.into_iter().zip(described).partition(|(_, description)| description.as_ref().is_ok_and(cut_off));
                // With its parent, which does not settle before every child that was found has had its start.
                let with_parent = first.into_iter().chain(then).map(|(traced, _)| (traced.id, traced.header.ok().and_then(|header| header.parent.clone())));
                Ok::<_, StoreError>(with_parent.chain(unread.into_iter().map(|id| (id, None))).collect::<Vec<_>>())
            })
            .await?;
        for (session, parent) in &found {
            services.wake(session, parent.as_ref());
        }
        Ok(found.into_iter().map(|(session, _)| session).collect())
    }

    /// Returns the leases in a tree, in all trees if `None`: those of this process and of others, live or dead.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn leases(&self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let root = root.cloned();
        self.services().readers.read(move |reader| reader.leases(root.as_ref())).await
    }

    /// Waits until no session of the tree is in a turn, runnable, or held by another live process, and returns the sessions that have work and cannot run.
    /// A session that cannot be read may have work and counts as one of them.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing that a later call would not change.
    pub async fn quiescent(&self, root: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let mut patience = Patience::default();
        loop {
            let services = self.services();
            let (reply, quiet) = oneshot::channel();
            if services.registry.send_message(RegistryMessage::WhenQuiet { reply }).is_ok() {
                drop(quiet.await);
            }
            let own = services.store.owner().clone();
            let tree = root.clone();
            let (runnable, unread, elsewhere) = services
                .readers
                .read(move |reader| {
                    let mut runnable = reader.runnable(Some(&tree), usize::MAX)?;
                    let leases = reader.leases(Some(&tree))?;
                    let elsewhere = leases.iter().any(|lease| lease.alive && lease.owner != own);
                    // A kept root is held by this process, so it is not among the runnable ones.
                    runnable.extend(leases.into_iter().filter(|lease| lease.owner == own).map(|lease| lease.session));
                    let (mut with_heads, mut unread) = (Vec::new(), Vec::new());
                    for id in runnable {
                        match reader.header(&id) {
                            // Nobody but a host plays a fork, so nobody waits for what it has to do: notices of what is below it, or a turn that was cut off.
                            Ok(Some(header)) if header.is_fork() => {}
                            Ok(Some(header)) => with_heads.push(Traced { id, created_at: header.created_at, header: Ok(header) }),
                            Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => {}
                            Err(LoadError::Store(error)) => return Err(error),
                            Err(_) => unread.push(id),
                        }
                    }
                    let described = reader.describe(&with_heads, false)?;
                    let mut working = Vec::new();
                    for (traced, description) in with_heads.into_iter().zip(described) {
                        match description {
                            Ok(description) if description.head.has_work() || description.is_runnable() => {
                                let parent = traced.header.ok().and_then(|header| header.parent.clone());
                                working.push((traced.id, parent, description.head));
                            }
                            Ok(_) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => {}
                            // No other try reads it.
                            Err(_) => unread.push(traced.id),
                        }
                    }
                    Ok::<_, StoreError>((working, unread, elsewhere))
                })
                .await?;
            let mut stuck = unread;
            let mut woken = false;
            for (id, parent, head) in runnable {
                if services.played.of(&id).is_some() {
                    // Its turns are its host's affair; what waits in its inbox cannot run.
                    stuck.extend((head.pending_turns + head.pending_wakes > 0).then_some(id));
                } else if patience.tries(&id, &head) {
                    drop(services.registry.send_message(RegistryMessage::Wake { session: id, parent }));
                    woken = true;
                } else {
                    stuck.push(id);
                }
            }
            if elsewhere {
                tokio::time::sleep(services.config.poll_interval).await;
            } else if !woken {
                return Ok(stuck);
            }
        }
    }
}
