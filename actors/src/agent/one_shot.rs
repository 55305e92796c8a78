//! Starting one-shot children, and finding their runs again.

use greenroom_session::id::SessionId;

use super::Agent;
use crate::{
    delegate::Delegate,
    error::{RunError, StartError},
    host::Cause,
    one_shot::OneShotRun,
};

impl Agent {
    /// Creates a one-shot child with its one message and returns once both are durable. It goes on by itself, whatever becomes of the run that is returned.
    ///
    /// Within a turn this is an effect, as [`Agent::start_continuable`] is: the same delegation on a later attempt is the same run. With
    /// [`Agent::cancellable`] a start is given up until it is accepted; what ends the run afterwards is [`OneShotRun::dispose`].
    ///
    /// # Errors
    /// [`StartError`]; nothing of the child exists then, unless the error is `INDETERMINATE`.
    ///
    /// # Cancel safety
    /// The child may exist. Within a turn the same delegation again is the same acceptance.
    pub async fn start(&self, delegate: Delegate) -> Result<OneShotRun, StartError> {
        let delegated = self.start_one_shot(delegate).await?;
        Ok(OneShotRun::new(&self.services, self.turn.as_ref(), delegated, Cause::Parent))
    }

    /// Finds the run of a direct one-shot child again, whether it has ended or not, and whichever process it was started in. Costs the length of the child's log.
    ///
    /// # Errors
    /// [`RunError::Unauthorized`] if this is not its parent, [`RunError::NotFound`], [`RunError::NotResumable`] if it is no one-shot child or its log is damaged,
    /// [`RunError::NotStarted`] if it was never asked anything, and [`RunError::Read`] if the store failed.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn run_of(&self, child: &SessionId) -> Result<OneShotRun, RunError> {
        let unauthorized = |reason| Err(RunError::Unauthorized { child: child.clone(), reason });
        let id = child.clone();
        let header = self.services.readers.read(move |reader| reader.header(&id)).await.map_err(|error| RunError::from_load(child, error))?;
        match header {
            None => return Err(RunError::NotFound(child.clone())),
            Some(header) if !header.is_subagent() || header.parent.as_ref() != Some(self.view.id()) => return unauthorized("it is not its parent"),
            Some(_) => {}
        }
        let run = OneShotRun::find(&self.services, child, Cause::Parent).await?;
        match self.over() {
            Some(over) => unauthorized(over),
            None => Ok(run.waited_for_by(self.turn.as_ref())),
        }
    }
}
