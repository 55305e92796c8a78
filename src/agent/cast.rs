//! Casting: the agents of a program become behaviours of a runtime.

use std::{collections::BTreeSet, sync::Arc};

use thiserror::Error;

use super::{CommandAgent, ScriptAgent, Stage};
use crate::{
    program::{AgentSpec, Program, Step},
    runtime::RuntimeBuilder,
};

/// Why a program cannot be played.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use greenroom::{Runtime, agent::{CastError, Guards, Stage, cast}, program::Program};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "model", model = "small" }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// # let stage = Stage { bindings: program.bind(&[], Path::new("/"))?, base_dir: program.base_dir.clone(), guards: Guards::temporary() };
/// let error = cast(&program, "editor", Arc::new(stage), Runtime::builder()).unwrap_err();
/// assert!(matches!(&error, CastError::Model { agent, .. } if agent == "editor"));
/// assert_eq!(error.code(), "AGENT_UNAVAILABLE");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CastError {
    /// An agent that would be needed is a language model.
    #[error("{file}: the agent {agent:?} is a model, and model agents are not available yet")]
    Model {
        /// The program file.
        file: String,
        /// The agent.
        agent: String,
    },
}

impl CastError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "AGENT_UNAVAILABLE"
    }
}

/// Registers every agent of a program under its name.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use greenroom::{Runtime, agent::{Guards, Stage, cast}, program::Program};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ say = "hello" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let bindings = program.bind(&[], Path::new("/"))?;
/// let stage = Stage { bindings, base_dir: program.base_dir.clone(), guards: Guards::temporary() };
/// let runtime = cast(&program, "editor", &Arc::new(stage), Runtime::builder())?.open("memory:").await?;
///
/// let root = runtime.root("editor", "story").await?;
/// root.send("go").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("hello"));
/// # runtime.shutdown().await;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`CastError::Model`] if `root`, or an agent that scripts delegate to from there, is a model. Models that only a command could name are left out:
/// that delegation fails as `AGENT_UNKNOWN`.
pub fn cast(program: &Program, root: &str, stage: &Arc<Stage>, mut builder: RuntimeBuilder) -> Result<RuntimeBuilder, CastError> {
    for agent in needed(program, root) {
        if let Some(AgentSpec::Model(_)) = program.agents.get(agent) {
            return Err(CastError::Model { file: program.file_name.clone(), agent: agent.to_owned() });
        }
    }
    for (name, spec) in &program.agents {
        builder = match spec {
            AgentSpec::Script(spec) => {
                let agent = ScriptAgent::new(Arc::new(spec.clone()), stage.clone());
                builder.behavior(name, move || agent.clone())
            }
            AgentSpec::Command(spec) => {
                let agent = CommandAgent::new(Arc::new(spec.clone()), stage.clone());
                builder.behavior(name, move || agent.clone())
            }
            AgentSpec::Model(_) => builder,
        };
    }
    Ok(builder)
}

/// Finds the agents that scripts reach from the root's.
fn needed<'p>(program: &'p Program, root: &'p str) -> BTreeSet<&'p str> {
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(agent) = open.pop() {
        if found.insert(agent)
            && let Some(AgentSpec::Script(script)) = program.agents.get(agent)
        {
            script.turns.iter().for_each(|steps| delegates(steps, &mut open));
        }
    }
    found
}

fn delegates<'p>(steps: &'p [Step], found: &mut Vec<&'p str>) {
    for step in steps {
        match step {
            Step::Delegate(delegate) => found.push(&delegate.agent),
            Step::Repeat { steps, .. } | Step::ForEachFile { steps, .. } | Step::ForEachChild { steps } => delegates(steps, found),
            _ => {}
        }
    }
}
