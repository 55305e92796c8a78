//! Finding one-shot runs again.

use greenroom_session::id::SessionId;

use super::{Cause, Host};
use crate::{error::RunError, one_shot::OneShotRun};

impl Host {
    /// Finds the run of a one-shot child again, whether it has ended or not, and whichever process it was started in. Costs the length of the child's log.
    ///
    /// # Errors
    /// [`RunError::NotFound`], [`RunError::NotResumable`] if it is no one-shot child or its log is damaged, [`RunError::NotStarted`] if it was never asked
    /// anything, and [`RunError::Read`] if the store failed.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn run_of(&self, child: &SessionId) -> Result<OneShotRun, RunError> {
        OneShotRun::find(&self.services(), child, Cause::Host).await
    }
}
