//! Who prepares children, beside those that are always there.

use super::Host;
use crate::{
    error::ProviderError,
    occurrence::Occurrence,
    provider::{Capabilities, Provider},
    registration::Registration,
};

impl Host {
    /// Registers a provider: delegations may name it from now on.
    ///
    /// When the registration is removed, or dropped, no start asks it any more, and one that waits for it fails with `NO_PROVIDER` and leaves nothing behind. Children
    /// that it has prepared are left as they are: nobody asks a provider to bring a child back.
    ///
    /// Providers belong to this runtime and stand in no log: a process that is to delegate to one registers it itself.
    ///
    /// # Errors
    /// [`ProviderError::Duplicate`] if one of this name is registered, [`ProviderError::Name`] if the name breaks the rule for labels.
    pub fn register_provider(&self, name: impl AsRef<str>, provider: impl Provider) -> Result<Registration, ProviderError> {
        let services = self.services();
        let registered = services.providers.add(name.as_ref(), provider)?;
        services.tell(|| Occurrence::ProviderAdded { name: registered.name.clone() });
        let (providers, occurrences) = (services.providers.clone(), services.occurrences.clone());
        Ok(Registration::new(move || {
            providers.remove(&registered);
            // Nobody listening is no mistake.
            drop(occurrences.send(Occurrence::ProviderRemoved { name: registered.name.clone() }));
        }))
    }

    /// Returns the names of the providers in the order of their registration, those that are always there first.
    pub fn providers(&self) -> Vec<String> {
        self.services().providers.all().iter().map(|registered| registered.name.to_string()).collect()
    }

    /// Returns what tells, whenever it is asked, what the provider of this name can do then. Unlike a host, it keeps nothing of the runtime from going.
    pub fn watch_provider(&self, name: &str) -> Box<dyn Fn() -> Option<Capabilities> + Send + Sync> {
        let (providers, name) = (self.services().providers.clone(), name.to_owned());
        Box::new(move || providers.get(&name).map(|registered| registered.capabilities))
    }

    /// Returns what a provider can do; `None` if none has this name.
    pub fn provider(&self, name: &str) -> Option<Capabilities> {
        self.services().providers.get(name).map(|registered| registered.capabilities)
    }
}
