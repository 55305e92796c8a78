//! Reporting to the parent.

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use greenroom_actors::{
    Host, Registration, Turn,
    setup::{Installation, Setup, SetupError},
};
use greenroom_session::descriptor::Mode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Tool, ToolCall, ToolError, ToolLoadError, ToolOutput, schema_of};
use crate::model::ToolSpec;

/// `report`: reports to the parent.
///
/// Continuable children alone have it, whatever else they are allowed; for roots, for one-shot children, whose last words are their answer, and for callers that are no agents it is
/// unknown. It comes to a child with its Activation: one that lives while the tool is added gets it when it next begins to live. Removed, it is gone at once.
///
/// ```
/// use greenroom::{Delegate, Runtime, Turn, TurnEnd, tool::{ReportTool, Tools, run_call}};
/// # tokio_test::block_on(async {
/// let tools = Tools::default();
/// let own = tools.clone();
/// let runtime = Runtime::builder()
///     .closure("editor", |turn: Turn| async move {
///         turn.delegate(Delegate::new("reporter", "collect facts", "Go.")).await?;
///         turn.await_children().await?;
///         turn.say(turn.notes().first().map(|note| greenroom::session::message::text_of(&note.content)).unwrap_or_default())?;
///         Ok(TurnEnd::Completed)
///     })
///     .closure("reporter", move |turn: Turn| {
///         let tools = own.clone();
///         async move {
///             assert_eq!(tools.specs(&turn).len(), 1);
///             run_call(&tools, Some(&turn), "call-1", "report", r#"{"output": "It rains."}"#).await.map_err(|error| greenroom::TurnError::new(error.code(), error.text()))?;
///             Ok(TurnEnd::Completed)
///         }
///     })
///     .open("memory:")
///     .await?;
/// tools.add(&runtime.host(), ReportTool::new())?;
/// let root = runtime.root("editor", "a desk").await?;
/// root.send("What is it like outside?").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("It rains."));
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct ReportTool {
    quiet: bool,
    /// What gives it to children; dropped with the tool, it takes it away.
    given: Option<Registration>,
}

const NAME: &str = "report";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What the agent that started you is to know.
    output: String,
}

/// What a child that may report has installed.
struct Reporting;

struct Given(bool);

impl Installation for Given {
    fn gives(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        if self.0 { vec![Arc::new(Reporting)] } else { Vec::new() }
    }
}

impl ReportTool {
    /// Makes the tool. A report wakes a parent that has nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has reports wait until the parent works again for another reason.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }
}

impl Tool for ReportTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description: "Reports to the agent that started you. You go on working: a report does not end your turn, and you may report as often as there is something to say, or not at \
                          all. If the call fails, the report may have arrived all the same."
                .into(),
            schema: schema_of::<Arguments>(),
        }
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_for(&self, turn: Option<&Turn>) -> bool {
        turn.is_some_and(|turn| turn.installed::<Reporting>().is_some())
    }

    fn outlives_allow_list(&self) -> bool {
        true
    }

    fn load(&mut self, host: &Host) -> Result<(), ToolLoadError> {
        self.given = Some(host.register_setup(|setup: &Setup| {
            let is_continuable = setup.descriptor.as_ref().is_some_and(|descriptor| descriptor.mode == Mode::Continuable);
            Ok::<Box<dyn Installation>, SetupError>(Box::new(Given(is_continuable && setup.header.is_subagent())))
        }));
        Ok(())
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let turn = call.turn(NAME)?;
            let Arguments { output } = call.parse()?;
            let id = turn.report_as(output, self.quiet, call.id).await?;
            Ok(ToolOutput::text(format!("report delivered as message {id}")).value(json!({ "messageId": id })))
        })
    }
}
