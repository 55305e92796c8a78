//! The tools of one kind of agent.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use greenroom_actors::{Host, Turn};
use greenroom_session::descriptor::ToolFilter;
use serde_json::Value;

use super::{Tool, ToolLoadError, ToolMode, run::parse};
use crate::model::ToolSpec;

/// The tools of one kind of agent, in the order in which they were added. Clones are the same tools.
///
/// What is added or removed counts from the next look on; a call that is under way goes on.
///
/// ```
/// use greenroom::{Runtime, tool::{ReportTool, SendMessageTool, SubagentTool, Tools}};
/// # tokio_test::block_on(async {
/// let runtime = Runtime::builder().open("memory:").await?;
/// let tools = Tools::default();
/// tools.add(&runtime.host(), SubagentTool::default())?;
/// tools.add(&runtime.host(), SendMessageTool::new())?;
/// assert_eq!(tools.names(), ["subagent", "send_message"]);
/// assert_eq!(tools.add(&runtime.host(), SendMessageTool::new()).unwrap_err().code(), "TOOL_LOAD");
/// assert!(tools.remove("subagent"));
/// assert_eq!(tools.names(), ["send_message"]);
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Tools(Arc<RwLock<Vec<Loaded>>>);

#[derive(Clone)]
struct Loaded {
    name: String,
    tool: Arc<dyn Tool>,
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tools").field(&self.names()).finish()
    }
}

impl Tools {
    /// Adds a tool behind the others, if what it needs is there.
    ///
    /// # Errors
    /// [`ToolLoadError`]: its name is taken or is none, its schema describes no object, or it lacks what it needs.
    pub fn add(&self, host: &Host, mut tool: impl Tool) -> Result<(), ToolLoadError> {
        tool.load(host)?;
        let ToolSpec { name, schema, .. } = tool.spec();
        check_name(&name)?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(ToolLoadError::Schema { tool: name, reason: "its `type` is not \"object\"".into() });
        }
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if tools.iter().any(|loaded| loaded.name == name) {
            return Err(ToolLoadError::Duplicate(name));
        }
        tools.push(Loaded { name, tool: Arc::new(tool) });
        Ok(())
    }

    /// Removes a tool: no call finds it from here on. Returns false if there is none of this name.
    pub fn remove(&self, name: &str) -> bool {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed = tools.iter().position(|loaded| loaded.name == name).map(|at| tools.remove(at));
        // Whatever it does at its end may look here.
        drop(tools);
        removed.is_some()
    }

    /// Returns the names of all tools, in order.
    pub fn names(&self) -> Vec<String> {
        self.all().into_iter().map(|loaded| loaded.name).collect()
    }

    /// Returns a tool by its name, whoever may call it.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.all().into_iter().find(|loaded| loaded.name == name).map(|loaded| loaded.tool)
    }

    /// Returns what the model of a turn is told: the tools that are there for it and that its session may use, in the order in which they were added.
    pub fn specs(&self, turn: &Turn) -> Vec<ToolSpec> {
        self.there(Some(turn)).into_iter().map(|loaded| loaded.tool.spec()).collect()
    }

    /// Returns a tool that a caller may call.
    pub fn find(&self, turn: Option<&Turn>, name: &str) -> Option<Arc<dyn Tool>> {
        self.there(turn).into_iter().find(|loaded| loaded.name == name).map(|loaded| loaded.tool)
    }

    /// Returns whether a call may run beside others, by the text that the model gave as its arguments. A call that finds no tool may.
    pub fn mode(&self, turn: Option<&Turn>, name: &str, arguments: &str) -> ToolMode {
        self.find(turn, name).map_or(ToolMode::Parallel, |tool| tool.mode(&parse(arguments)))
    }

    /// Returns the names of those that a caller may call.
    pub(super) fn offered(&self, turn: Option<&Turn>) -> Vec<String> {
        self.there(turn).into_iter().map(|loaded| loaded.name).collect()
    }

    fn all(&self) -> Vec<Loaded> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn there(&self, turn: Option<&Turn>) -> Vec<Loaded> {
        let filter = turn.and_then(Turn::tool_filter);
        let mut tools = self.all();
        tools.retain(|Loaded { name, tool }| is_allowed(filter.as_ref(), name, tool.outlives_allow_list()) && tool.is_for(turn));
        tools
    }
}

fn is_allowed(filter: Option<&ToolFilter>, name: &str, outlives_allow_list: bool) -> bool {
    let Some(ToolFilter { allow, deny }) = filter else { return true };
    let names = |list: &Vec<String>| list.iter().any(|one| one == name);
    (outlives_allow_list || allow.as_ref().is_none_or(names)) && !deny.as_ref().is_some_and(names)
}

/// Models take no other names.
fn check_name(name: &str) -> Result<(), ToolLoadError> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if fits { Ok(()) } else { Err(ToolLoadError::Name(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_allows_what_it_names_and_takes_away_what_it_denies() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let filter = |allow: Option<&[&str]>, deny: Option<&[&str]>| ToolFilter { allow: allow.map(list), deny: deny.map(list) };
        for (filter, plain, reporting) in [
            (None, true, true),
            (Some(filter(Some(&[]), None)), false, true),
            (Some(filter(Some(&["it"]), None)), true, true),
            (Some(filter(Some(&["other"]), None)), false, true),
            (Some(filter(None, Some(&["other"]))), true, true),
            (Some(filter(None, Some(&["it"]))), false, false),
            (Some(filter(Some(&["it"]), Some(&["it"]))), false, false),
        ] {
            assert_eq!(is_allowed(filter.as_ref(), "it", false), plain, "{filter:?}");
            assert_eq!(is_allowed(filter.as_ref(), "it", true), reporting, "{filter:?}");
        }
    }

    #[test]
    fn names_that_no_model_takes_are_refused() {
        for (name, fits) in [("subagent", true), ("a-B_9", true), ("", false), ("a b", false), ("ä", false), (&"x".repeat(64), true), (&"x".repeat(65), false)]
        {
            assert_eq!(check_name(name).is_ok(), fits, "{name}");
        }
    }
}
