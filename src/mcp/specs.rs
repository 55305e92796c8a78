//! What a model is told of the tools.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::arguments;
use crate::{
    model::ToolSpec,
    program::{AgentSpec, Program},
    tool::schema_of,
};

/// What the client's model is told of the server as a whole.
pub(super) const INSTRUCTIONS: &str = "Durable subagents that work in the background. What they are, what they were told and what they have done is on disk and outlives this \
     connection: after a restart `list_agents` shows them, and `send_message` goes on with them. Start one by `subagent`, with `run_in_background` where you do not need the answer at once; \
     `wait` waits for what it has said; `read_log` shows what it did; `interrupt` ends the turn that it is in. A result that is an error means that nothing was done, unless it says otherwise.";

/// Which agents a program has for subagents.
#[derive(Debug, Default)]
pub(super) struct Agents {
    /// Their names, in byte order.
    pub(super) names: Vec<String>,
    /// The one that is meant where none is named.
    pub(super) default: Option<String>,
}

impl Agents {
    /// All agents of a program. The one that plays its root when it is run is not meant unless it is named, or the only one.
    pub(super) fn of(program: &Program) -> Self {
        let playable = |spec: &AgentSpec| !matches!(spec, AgentSpec::Model(_));
        let names: Vec<String> = program.agents.iter().filter(|(_, spec)| playable(spec)).map(|(name, _)| name.clone()).collect();
        let mut others = names.iter().filter(|name| **name != program.run.root);
        let default = match (others.next(), others.next()) {
            (Some(only), None) => Some(only.clone()),
            (None, _) => names.first().cloned(),
            (Some(_), Some(_)) => None,
        };
        Self { names, default }
    }
}

/// Describes the tools.
pub(super) fn specs(agents: &Agents) -> Vec<ToolSpec> {
    vec![
        subagent(agents),
        tool::<arguments::SendMessage>(
            "send_message",
            "Sends a message to a subagent that you have started in the background. The message becomes the next turn of the subagent: it waits for the turn that is under way, which it \
             does not change, and brings a subagent back that has settled. It is on disk when the call returns. No answer is returned here: `wait` waits for it. If the call fails, the \
             message was not delivered.",
        ),
        ToolSpec {
            name: "list_agents".into(),
            description: "Lists the subagents that you have started in the background, the oldest first, each with its durable id and its label. `running` means that it is live now. \
                          `complete` means that it is only stored, which says nothing of success: a message by `send_message` opens another turn of the same conversation. The list is a \
                          snapshot and promises no delivery. A subagent that cannot be read is listed as a diagnostic with the reason."
                .into(),
            schema: json!({"type": "object", "properties": {}}),
        },
        tool::<arguments::Wait>(
            "wait",
            "Waits until a subagent, and whatever it has started, has nothing left to do, or until all of yours have. Returns what the subagent said last and what it has reported since the \
             last wait. If the time is over first, the answer is `still running, position n`: nothing is lost, and the same call again goes on waiting. The position is that of the end of \
             its log, where `read_log` may begin; without an id it is that of your own log, which grows when a subagent reports or settles. Many clients give a call up after 60 seconds: \
             wait for 30 or less, several times.",
        ),
        tool::<arguments::ReadLog>(
            "read_log",
            "Reads what a subagent has been told and has done: its events from a position on, each a line of JSON, a page at a time. The last text says where the next page begins, or that the \
             log ends here. Long texts are cut; the fewer events you ask for, the more of them is shown. Reading wakes nobody.",
        ),
        tool::<arguments::Interrupt>(
            "interrupt",
            "Ends the turn that a subagent is in, for good: its message is not served again. Messages that wait for it are served next. Whatever it has started goes on.",
        ),
    ]
}

fn tool<T: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    let mut schema = schema_of::<T>();
    for property in
        schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|properties| properties.values_mut()).filter_map(Value::as_object_mut)
    {
        // What serde would put there is no value that the model may give, and how wide the number is says less than its bounds.
        property.remove("default");
        property.remove("format");
    }
    ToolSpec { name: name.into(), description: description.into(), schema }
}

fn subagent(agents: &Agents) -> ToolSpec {
    let mut spec = tool::<arguments::Subagent>(
        "subagent",
        "Starts a subagent, another agent that works on a task of its own. It knows nothing of what was said here: your prompt is all that it has. The call waits until the subagent is done \
         and returns its final message. With `run_in_background` it returns the id of the subagent at once and you go on: it works in the background, keeps its history on disk, and takes \
         further messages under its id.",
    );
    if agents.names.is_empty() {
        spec.description.push_str(" There are no agents now, so every call fails: the server was started without a program file.");
        return spec;
    }
    let Some(schema) = spec.schema.as_object_mut() else { return spec };
    if agents.default.is_none()
        && let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
    {
        required.push(json!("agent"));
    }
    if let Some(agent) = schema.get_mut("properties").and_then(|properties| properties.get_mut("agent")).and_then(Value::as_object_mut) {
        agent.insert("enum".into(), json!(agents.names));
        if let Some(default) = &agents.default {
            agent.insert("description".into(), json!(format!("Which agent the subagent is; {default:?} if it is left out.")));
        }
    }
    spec
}
