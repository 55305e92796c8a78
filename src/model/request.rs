//! What is asked of a model.

use std::sync::Arc;

use greenroom_session::{descriptor::ModelRoute, event::SurfaceMessage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What a model is asked: who it is, what it may use, and all that was said.
///
/// ```
/// use greenroom::model::ModelRequest;
/// let request = ModelRequest { model: "small".into(), system: Some("You are brief.".into()), tools: Vec::new(), messages: Vec::new(), max_tokens: None };
/// assert_eq!(request.canonical(), r#"{"model":{"name":"small"},"system":"You are brief.","tools":[],"messages":[]}"#);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The model.
    pub model: ModelRoute,
    /// Who it is.
    pub system: Option<String>,
    /// What it may use, in order.
    pub tools: Vec<ToolSpec>,
    /// What was said, in order.
    pub messages: Vec<Arc<SurfaceMessage>>,
    /// How many tokens the answer may have.
    pub max_tokens: Option<u64>,
}

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

impl ModelRequest {
    /// Returns the request as one text that does not depend on ids, nor on the order of keys in memory: `model`, `max_tokens`, `system`, `tools`, `messages`, without what
    /// is absent, the keys of everything below in byte order.
    ///
    /// A later request of a session, put this way, goes on where an earlier one ended: they are the same up to the end of the earlier one's last message.
    pub fn canonical(&self) -> String {
        let messages = self.messages.iter().map(|message| json!({"content": message.content, "role": message.role}));
        let mut parts = vec![format!("\"model\":{}", sorted(&json!(self.model)))];
        parts.extend(self.max_tokens.map(|tokens| format!("\"max_tokens\":{tokens}")));
        parts.extend(self.system.as_ref().map(|system| format!("\"system\":{}", json!(system))));
        parts.push(format!("\"tools\":{}", sorted(&json!(self.tools))));
        parts.push(format!("\"messages\":{}", sorted(&messages.collect())));
        format!("{{{}}}", parts.join(","))
    }
}

/// Puts every object's keys in byte order, whatever order they have in memory. What is sorted here has no more levels than a schema.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(sorted).collect(),
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            let sorted: Map<String, Value> = keys.into_iter().filter_map(|key| fields.get(key).map(|value| (key.clone(), sorted(value)))).collect();
            Value::Object(sorted)
        }
        other => other.clone(),
    }
}
