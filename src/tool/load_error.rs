//! Why a tool was not loaded.

use thiserror::Error;

/// Why a tool was not loaded. Whatever was loaded before is as it was.
///
/// ```
/// use greenroom::{Runtime, tool::{ListAgentsTool, ToolLoadError, Tools}};
/// # tokio_test::block_on(async {
/// let runtime = Runtime::builder().without_query().open("memory:").await?;
/// let error = Tools::default().add(&runtime.host(), ListAgentsTool::new()).unwrap_err();
/// assert!(matches!(error, ToolLoadError::Needs { .. }));
/// assert_eq!(error.code(), "TOOL_LOAD");
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ToolLoadError {
    /// A tool of this name is loaded.
    #[error("a tool named {0:?} is loaded already")]
    Duplicate(String),
    /// No model takes a tool of this name.
    #[error("{0:?} is no name for a tool: 1 to 64 letters, digits, `_` and `-`")]
    Name(String),
    /// The schema describes no object of arguments.
    #[error("the schema of the tool {tool:?} is wrong: {reason}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong.
        reason: String,
    },
    /// The runtime lacks what the tool needs.
    #[error("the tool {tool:?} needs {need}")]
    Needs {
        /// The tool.
        tool: String,
        /// What it needs.
        need: String,
    },
    /// The tool is set up in a way that makes no sense.
    #[error("the tool {tool:?} cannot be: {reason}")]
    Config {
        /// The tool.
        tool: String,
        /// What is wrong.
        reason: String,
    },
}

impl ToolLoadError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "TOOL_LOAD"
    }
}
