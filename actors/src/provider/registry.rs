//! Which providers are registered.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use greenroom_session::{descriptor::Mode, event::Event, fork, text::check_label};
use tokio_util::sync::CancellationToken;

use super::{
    Capabilities, FORK, Prepare, PrepareError, Provider, SPAWN,
    builtin::{Fork, Spawn},
};
use crate::{
    delegate::Delegate,
    error::{ProviderError, StartError},
};

/// The providers of one system, in the order of their registration. They outlast a generation of actors.
#[derive(Debug, Clone)]
pub(crate) struct Providers(Arc<Mutex<Vec<Arc<Registered>>>>);

impl Default for Providers {
    fn default() -> Self {
        let builtin = vec![Registered::new(SPAWN, Spawn), Registered::new(FORK, Fork)];
        Self(Arc::new(Mutex::new(builtin)))
    }
}

impl Providers {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Registered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, name: &str, provider: impl Provider) -> Result<Arc<Registered>, ProviderError> {
        check_label(name)?;
        // What a provider does must not meet a lock of ours.
        let registered = Registered::new(name, provider);
        let mut all = self.lock();
        if all.iter().any(|other| *other.name == *name) {
            drop(all);
            return Err(ProviderError::Duplicate(name.to_owned()));
        }
        all.push(registered.clone());
        Ok(registered)
    }

    /// Takes a provider out: no start asks it any more, and those that wait for it fail.
    pub(crate) fn remove(&self, registered: &Arc<Registered>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, registered));
        registered.removed.cancel();
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Registered>> {
        self.lock().iter().find(|registered| *registered.name == *name).cloned()
    }

    /// Returns those that are registered now.
    pub(crate) fn all(&self) -> Vec<Arc<Registered>> {
        self.lock().clone()
    }
}

/// A provider under its name.
pub(crate) struct Registered {
    pub(crate) name: Arc<str>,
    pub(crate) capabilities: Capabilities,
    /// Cancelled when it is removed.
    pub(crate) removed: CancellationToken,
    provider: Box<dyn Provider>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("name", &self.name).field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Registered {
    fn new(name: &str, provider: impl Provider) -> Arc<Self> {
        Arc::new(Self { name: name.into(), capabilities: provider.capabilities(), removed: CancellationToken::new(), provider: Box::new(provider) })
    }

    /// Refuses a delegation that asks for more than the provider can do.
    pub(crate) fn check(&self, delegate: &Delegate, mode: Mode) -> Result<(), StartError> {
        let can = &self.capabilities;
        let wanted = [
            ("continuable children", mode == Mode::Continuable, can.continuable),
            ("one-shot children", mode == Mode::OneShot, can.one_shot),
            ("a depth limit", delegate.max_depth.is_some(), can.depth_limit),
            ("a tool filter", delegate.tool_filter.is_some(), can.tool_filter),
            ("a persona", delegate.persona.is_some(), can.persona),
            ("a model route", delegate.model.is_some(), can.model),
        ];
        match wanted.into_iter().find(|(_, wants, can)| *wants && !can) {
            Some((capability, ..)) => Err(StartError::UnsupportedCapability { provider: self.name.to_string(), capability }),
            None => Ok(()),
        }
    }

    /// Has it prepare a child, and looks at what it hands over as far as no store does.
    pub(crate) async fn prepare(&self, prepare: Prepare) -> Result<Vec<Event>, PrepareError> {
        let prepared = AssertUnwindSafe(async { self.provider.prepare(prepare).await }).catch_unwind().await;
        let inherited = prepared.unwrap_or_else(|panic| Err(PrepareError::of_panic(&*panic)))?.inherited;
        if !inherited.is_empty() && !self.capabilities.inherits {
            return Err(PrepareError::new("INVALID_PREFIX", "it hands events over, and said that its children inherit none"));
        }
        match fork::cut(&inherited, None) {
            Ok(_) => Ok(inherited),
            Err(error) => Err(invalid_prefix(error)),
        }
    }
}

/// Makes the error of a provider that handed over what no child can begin with.
pub(crate) fn invalid_prefix(reason: impl fmt::Display) -> PrepareError {
    PrepareError::new("INVALID_PREFIX", format!("what it hands over is no beginning of a log: {reason}"))
}
