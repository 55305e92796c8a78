//! What is asked of a model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a model is told of a tool.
///
/// ```
/// use greenroom::model::ToolSpec;
/// let spec = ToolSpec { name: "noon".into(), description: "Tells the hour.".into(), schema: serde_json::json!({"type": "object", "properties": {}}) };
/// assert_eq!(spec.name, "noon");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}
