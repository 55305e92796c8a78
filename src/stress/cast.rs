//! The agents that play a plan.

use std::{sync::Arc, time::Duration};

use greenroom_actors::{Delegate, Turn, TurnEnd, TurnError};
use serde_json::{Value, json};

use super::plan::{Deed, Name, Plan, Request};
use crate::runtime::{Runtime, RuntimeBuilder};

/// The behaviour of the root.
pub(super) const ROOT: &str = "stress-root";
/// The behaviour of the agents that are sent to.
pub(super) const AGENT: &str = "stress-agent";
/// The behaviour of children that agents start while they are sent to.
const HELPER: &str = "stress-helper";
/// The code of a failure that is planned.
const PLANNED: &str = "PLANNED";
/// How long a turn waits whose sender is about to interrupt it.
const LINGER: Duration = Duration::from_millis(4);
/// How long a send within a turn waits: the run's own bound is what ends it.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the alias of an agent among its siblings.
pub(super) fn alias(agent: u32) -> String {
    format!("a{agent}")
}

/// Registers the behaviours that play a plan.
pub(super) fn cast(plan: &Arc<Plan>) -> RuntimeBuilder {
    let (root, agent) = (Stage::of(plan), Stage::of(plan));
    Runtime::builder()
        .closure(ROOT, move |turn| play_root(turn, root.clone()))
        .closure(AGENT, move |turn| play_agent(turn, agent.clone()))
        .closure(HELPER, play_helper)
        .send_patience(PATIENCE)
        // Whoever kills the process does so whatever a message does, so no message is to blame for it.
        .max_attempts(u32::MAX)
}

/// What every agent knows.
#[derive(Debug, Clone)]
struct Stage {
    plan: Arc<Plan>,
    parents: Arc<[Option<u32>]>,
}

impl Stage {
    fn of(plan: &Arc<Plan>) -> Self {
        Self { plan: plan.clone(), parents: plan.parents().into() }
    }

    fn children(&self, of: Option<u32>) -> impl Iterator<Item = u32> {
        (0..).zip(self.parents.iter()).filter(move |(_, parent)| **parent == of).map(|(agent, _)| agent)
    }

    /// Starts the children that the plan gives to an agent, or to the root.
    async fn lay_out(&self, turn: &Turn, of: Option<u32>) -> Result<(), TurnError> {
        for agent in self.children(of) {
            let child = Delegate::new(AGENT, format!("agent {agent}"), "Begin.").alias(alias(agent)).params(json!({ "agent": agent })).key(alias(agent));
            turn.delegate(child).await?;
        }
        Ok(())
    }
}

async fn play_root(turn: Turn, stage: Stage) -> Result<TurnEnd, TurnError> {
    // A turn that reports and notices have opened has no message.
    if turn.message().is_some() {
        stage.lay_out(&turn, None).await?;
    }
    Ok(TurnEnd::Completed)
}

async fn play_helper(turn: Turn) -> Result<TurnEnd, TurnError> {
    if turn.message().is_some() {
        turn.report("helped", false).await?;
    }
    Ok(TurnEnd::Completed)
}

async fn play_agent(turn: Turn, stage: Stage) -> Result<TurnEnd, TurnError> {
    if turn.message().is_none() {
        return Ok(TurnEnd::Completed);
    }
    let agent = turn.params().as_ref().and_then(|params| params.get("agent")).and_then(Value::as_u64).and_then(|agent| u32::try_from(agent).ok());
    let Some(name) = Name::read(turn.message_id().as_str()).filter(|name| stage.plan.has(*name)) else {
        // The first message of all, or what the parent has sent: laying out twice is laying out once.
        if turn.text() == "Begin." {
            stage.lay_out(&turn, agent).await?;
        }
        turn.say("well")?;
        return Ok(TurnEnd::Completed);
    };
    let (id, post) = (name.id(), stage.plan.post(name));
    if post.next == Some(Request::Interrupt) {
        tokio::time::sleep(LINGER).await;
    }
    match post.deed {
        Deed::Say => turn.say(id)?,
        Deed::Memo => {
            turn.memo(id.as_str())?;
            turn.say(id)?;
        }
        Deed::Report { quiet } => drop(turn.report(id, quiet).await?),
        Deed::Yield => {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        Deed::Steps => {
            for step in 1..=3 {
                turn.step().await?;
                turn.say(format!("{id}, step {step}"))?;
            }
        }
        Deed::Send => match stage.children(agent).nth(usize::try_from(name.number % 2).unwrap_or(0)) {
            Some(child) => {
                let child = turn.child_by_alias(&alias(child)).await?.ok_or_else(|| TurnError::new("STRESS_FAILED", "a child is not there"))?;
                turn.send_message(&child, format!("from {id}")).await?;
            }
            None => turn.say(id)?,
        },
        Deed::Delegate => drop(turn.delegate(Delegate::new(HELPER, format!("helper of {id}"), "Help.")).await?),
        Deed::Fail => return Err(TurnError::new(PLANNED, format!("{id} is planned to fail"))),
    }
    Ok(TurnEnd::Completed)
}
