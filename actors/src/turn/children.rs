//! What a turn does with other sessions: delegating, sending, reporting, and waiting for children.

use greenroom_session::{
    id::{MessageId, SessionId},
    store::StoreError,
};
use serde_json::Value;

use super::Turn;
use crate::{
    behavior::TurnError,
    catalog::Entry,
    delegate::{Delegate, Delegated},
    error::{DeliverError, ListError, StartError},
    race::race_point,
    reach::params_of,
    wait::{Patience, wake_runnable_children, when_childless},
};

impl Turn {
    /// Delegates to a continuable background child and goes on. See [`Agent::start_continuable`](crate::Agent::start_continuable).
    ///
    /// # Errors
    /// [`StartError`], as [`Agent::start_continuable`](crate::Agent::start_continuable).
    ///
    /// # Cancel safety
    /// The child may exist; the same delegation again is the same acceptance.
    pub async fn delegate(&self, delegate: Delegate) -> Result<Delegated, StartError> {
        self.agent().start_continuable(delegate).await
    }

    /// Delegates to a one-shot child, gives the turn slot back, and waits for its answer.
    ///
    /// # Errors
    /// [`TurnError`] with the code of [`StartError`], `CANCELLED`, or the code with which the child failed.
    ///
    /// # Cancel safety
    /// The child goes on; the same delegation again waits for the same child.
    pub async fn delegate_and_wait(&self, delegate: Delegate) -> Result<String, TurnError> {
        self.check()?;
        let run = self.agent().start(delegate).await?;
        let aside = self.core.step_aside();
        let answer = tokio::select! {
            answer = run.answer() => answer,
            () = self.core.token().cancelled() => Err(TurnError::new("CANCELLED", "the turn was cancelled")),
        };
        aside.end().await;
        answer
    }

    /// Sends a child the message of its next turn. Waits, within bounds and without a turn slot, while its inbox is full. See [`Agent::followup`](crate::Agent::followup).
    ///
    /// # Errors
    /// [`DeliverError`], as [`Agent::followup`](crate::Agent::followup); `BUSY` once the bound on waiting is used up.
    ///
    /// # Cancel safety
    /// The message may have been accepted; the same send again is the same acceptance.
    pub async fn send_message(&self, child: &SessionId, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.agent().followup(child, text).await
    }

    /// Sends as [`Turn::send_message`]; `key` names the effect in place of its content: two sends to one child under one key within the turns of one message are one.
    ///
    /// # Errors
    /// As [`Turn::send_message`]; `MESSAGE_ID_CONFLICT` if the key was used with another text.
    ///
    /// # Cancel safety
    /// As [`Turn::send_message`].
    pub async fn send_message_as(&self, child: &SessionId, text: impl Into<String>, key: &str) -> Result<MessageId, DeliverError> {
        self.agent().followup_keyed(child, text.into(), key).await
    }

    /// Reports to the parent. `quiet` does not wake it. See [`Agent::report`](crate::Agent::report).
    ///
    /// # Errors
    /// [`DeliverError`]; in a root `UNAUTHORIZED`.
    ///
    /// # Cancel safety
    /// The report may have been accepted; the same report again is the same acceptance.
    pub async fn report(&self, text: impl Into<String>, quiet: bool) -> Result<MessageId, DeliverError> {
        self.agent().report(text, quiet).await
    }

    /// Reports as [`Turn::report`]; `key` names the effect in place of its content.
    ///
    /// # Errors
    /// As [`Turn::report`]; `MESSAGE_ID_CONFLICT` if the key was used with another text.
    ///
    /// # Cancel safety
    /// As [`Turn::report`].
    pub async fn report_as(&self, text: impl Into<String>, quiet: bool, key: &str) -> Result<MessageId, DeliverError> {
        self.agent().report_named(text.into(), quiet, Some(key)).await
    }

    /// Lists this agent's children without waking any. See [`Agent::list_children`](crate::Agent::list_children).
    ///
    /// # Errors
    /// [`ListError`], as [`Agent::list_children`](crate::Agent::list_children); a cancelled turn cancels the listing.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_agents(&self) -> Result<Vec<Entry>, ListError> {
        self.agent().list_children(self.core.token().clone()).await
    }

    /// Tells whether the runtime, or a drain of what is above, brings this turn to its end, so that its message is served again. Whoever is cancelled without that was
    /// interrupted, for good.
    pub fn is_cut_off(&self) -> bool {
        let view = &self.core.view;
        self.core.services.is_draining() || self.core.services.closed.covers(view.id(), &view.lineage)
    }

    /// Finds a child by the alias that it was created with.
    ///
    /// # Errors
    /// [`TurnError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn child_by_alias(&self, alias: &str) -> Result<Option<SessionId>, TurnError> {
        let (parent, alias) = (self.session().clone(), alias.to_owned());
        self.core.services.readers.read(move |reader| reader.alias(&parent, &alias)).await.map_err(|error| TurnError::new(error.code(), error.to_string()))
    }

    /// Returns what the behaviours of these children were given, in the same order; `None` for one without params and for one that cannot be read.
    ///
    /// Costs one small read per child.
    ///
    /// # Errors
    /// [`TurnError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn params_of(&self, children: &[SessionId]) -> Result<Vec<Option<Value>>, TurnError> {
        let children = children.to_vec();
        let read = self.core.services.readers.read(move |reader| {
            let mut params = Vec::with_capacity(children.len());
            for child in children {
                params.push(params_of(reader, child)?);
            }
            Ok::<_, StoreError>(params)
        });
        read.await.map_err(|error| TurnError::new(error.code(), error.to_string()))
    }

    /// Waits until no child is live or runnable, joining notes as they come. The turn slot is given back meanwhile.
    ///
    /// A child that waits for children of its own is live. A child that cannot run (its agent unknown, its log damaged) is not waited for.
    ///
    /// # Errors
    /// `TURN_ENDED`, `CANCELLED`, or the error of a write or a read.
    ///
    /// # Cancel safety
    /// Not cancel safe within a turn that goes on.
    pub async fn await_children(&self) -> Result<(), TurnError> {
        self.check()?;
        let aside = self.core.step_aside();
        let waited = self.wait_for_children().await;
        aside.end().await;
        waited
    }

    async fn wait_for_children(&self) -> Result<(), TurnError> {
        let mut patience = Patience::default();
        loop {
            let childless = when_childless(&self.core.services, self.session());
            tokio::pin!(childless);
            loop {
                tokio::select! {
                    biased;
                    () = self.core.token().cancelled() => return Err(TurnError::new("CANCELLED", "the turn was cancelled")),
                    () = &mut childless => break,
                    () = self.core.view.news.notified() => { self.join_notes().await?; }
                }
            }
            race_point!("childless-before-closed");
            if self.is_cut_off() {
                // The children were cut off, not done: this turn is about to be, too.
                self.core.token().cancelled().await;
                continue;
            }
            if !wake_runnable_children(&self.core.services, self.session(), &mut patience).await? {
                break;
            }
        }
        self.join_notes().await.map(|_| ())
    }
}
