//! What a host adds to every Activation.

use super::Host;
use crate::{registration::Registration, setup::SetupContribution};

impl Host {
    /// Registers a contribution to the set-up of sessions: it is applied to every Activation that starts from now on, after those that were registered before it.
    /// What lives already is left as it is, and so is what a host plays itself.
    ///
    /// When the registration is removed, or dropped, what the contribution has installed is released at once, in sessions that are live, too; a start under way
    /// fails with `ACTIVATION_SETUP_REVOKED` and is repeated without it. What cannot be released well is told by
    /// [`Occurrence::ReleaseFailed`](crate::Occurrence::ReleaseFailed).
    ///
    /// Contributions belong to this runtime and stand in no log: whoever resumes a session in another process registers them there.
    pub fn register_setup(&self, contribution: impl SetupContribution) -> Registration {
        let setups = self.services().setups.clone();
        let registered = setups.add(contribution);
        Registration::new(move || setups.remove(&registered))
    }
}
