//! Functions as tools.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use greenroom_actors::Turn;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Tool, ToolCall, ToolError, ToolMode, ToolOutput, schema_of};
use crate::model::ToolSpec;

/// Who calls a function.
///
/// ```
/// use greenroom::tool::{Caller, ToolOutput, function};
/// # let _ =
/// function("ticket", "Draws a ticket.", |_: serde_json::Map<String, serde_json::Value>, caller: Caller| async move {
///     // The same when a crash has the call repeated: a name for what must happen once.
///     Ok(ToolOutput::text(format!("ticket {}", caller.id)))
/// })
/// .repeatable();
/// ```
#[derive(Debug, Clone)]
pub struct Caller {
    /// The turn that calls; `None` for a caller that is no agent.
    pub turn: Option<Turn>,
    /// The call's id: unique in the session, and the same when the call is repeated.
    pub id: String,
}

impl Caller {
    /// Returns a token that is cancelled with the turn; never, if no agent calls. A function that does not heed it is dropped after a grace.
    pub fn cancelled(&self) -> CancellationToken {
        self.turn.as_ref().map_or_else(CancellationToken::new, Turn::cancelled)
    }
}

type Body = dyn Fn(Value, Caller) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A function as a tool. See [`function`].
///
/// ```
/// use greenroom::tool::{FunctionTool, Tool, ToolOutput, function};
/// let tool: FunctionTool = function("noon", "Tells the hour.", |_: serde_json::Map<String, serde_json::Value>, _| async { Ok(ToolOutput::text("12")) });
/// assert!(!tool.is_repeatable() && tool.repeatable().is_repeatable());
/// ```
pub struct FunctionTool {
    spec: ToolSpec,
    mode: ToolMode,
    repeatable: bool,
    body: Arc<Body>,
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("name", &self.spec.name).field("mode", &self.mode).field("repeatable", &self.repeatable).finish_non_exhaustive()
    }
}

/// Makes a tool of an asynchronous function. Its first argument is a type whose fields, with their comments, are what the model is told of the arguments.
///
/// ```
/// use greenroom::{Runtime, tool::{ToolError, Tools, function, run_call}};
/// /// Where, and how long.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Outlook {
///     /// The name of a city.
///     city: String,
///     /// How many days; 1 if it is left out.
///     days: Option<u8>,
/// }
/// # tokio_test::block_on(async {
/// # let runtime = Runtime::builder().open("memory:").await?;
/// let weather = function("weather", "Tells what the weather will be like.", |outlook: Outlook, _| async move {
///     match outlook.city.as_str() {
///         "Delft" => Ok(format!("rain for {} days", outlook.days.unwrap_or(1))),
///         other => Err(ToolError::new("NO_CITY", format!("nobody knows of {other}"))),
///     }
/// });
/// let tools = Tools::default();
/// tools.add(&runtime.host(), weather)?;
/// assert_eq!(run_call(&tools, None, "call-1", "weather", r#"{"city": "Delft", "days": 3}"#).await?.text, "rain for 3 days");
/// let error = run_call(&tools, None, "call-2", "weather", r#"{"city": 7}"#).await.unwrap_err();
/// assert_eq!(error.text(), "Error: invalid arguments: `/city` must be string, not number");
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub fn function<A, F, Fut, R>(name: impl Into<String>, description: impl Into<String>, body: F) -> FunctionTool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, Caller) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    let body = Arc::new(body);
    let body = move |arguments: Value, caller: Caller| -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let body = body.clone();
        Box::pin(async move {
            let arguments = A::deserialize(&arguments).map_err(|error| ToolError::invalid_args(error.to_string()))?;
            body(arguments, caller).await.map(Into::into)
        })
    };
    let spec = ToolSpec { name: name.into(), description: description.into(), schema: schema_of::<A>() };
    FunctionTool { spec, mode: ToolMode::Parallel, repeatable: false, body: Arc::new(body) }
}

impl FunctionTool {
    /// Says that a call may be made again when a crash has left it unknown what it has done.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Says that a call runs alone.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.mode = ToolMode::Exclusive;
        self
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn mode(&self, _arguments: &Value) -> ToolMode {
        self.mode
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        (self.body)(call.arguments, Caller { turn: call.turn.cloned(), id: call.id.to_owned() })
    }
}
