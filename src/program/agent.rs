//! The agents that a program names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::step::Step;
use super::template::Template;

/// One `[agents.NAME]` table, by its `behavior`.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, Program};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [] }
/// agents.clerk = { behavior = "command", command = ["sh", "clerk.sh"] }
/// "#;
/// let agents = Program::parse(text, "story.toml", Path::new("/stories"))?.agents;
/// assert!(matches!(agents["editor"], AgentSpec::Script(_)));
/// assert!(matches!(agents["clerk"], AgentSpec::Command(_)));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum AgentSpec {
    /// Plays lists of steps.
    Script(ScriptAgent),
    /// Runs a program per turn.
    Command(CommandAgent),
    /// Asks a language model.
    Model(ModelAgent),
}

/// A scripted agent.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, Program};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ say = "hello" }], [{ list = true }, { say = "again" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Script(editor) = &program.agents["editor"] else { panic!("a script") };
/// assert_eq!(editor.turns.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]); // steps for the first and the second message
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptAgent {
    /// One list of steps per message, chosen by the message's rank; may be empty.
    pub turns: Vec<Vec<Step>>,
}

/// An agent that is any program in any language.
///
/// ```
/// use std::{path::Path, time::Duration};
/// use greenroom::program::{AgentSpec, AnswerFormat, Program};
/// let text = r#"
/// run = { root = "clerk" }
/// agents.clerk = { behavior = "command", command = ["sh", "clerk.sh"], timeout = "30s", env_pass = ["LC_ALL"] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Command(clerk) = &program.agents["clerk"] else { panic!("a command") };
/// assert_eq!((clerk.timeout, clerk.answer), (Duration::from_secs(30), AnswerFormat::Json));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CommandAgent {
    /// The program and its arguments; at least one, and the first is not empty.
    pub command: Vec<Template>,
    /// How long a turn may take; longer than zero, 10 minutes unless given.
    pub timeout: Duration,
    /// Variables of its environment beside `PATH`, `HOME` and `LANG`. They win over `env_pass`.
    pub env: BTreeMap<String, Template>,
    /// Names that it inherits from the runtime's own environment.
    pub env_pass: Vec<String>,
    /// How its stdout is read.
    pub answer: AnswerFormat,
}

/// How a command's stdout is read.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, AnswerFormat, Program};
/// let text = r#"
/// run = { root = "clerk" }
/// agents.clerk = { behavior = "command", command = ["date"], answer = "text" }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// assert!(matches!(&program.agents["clerk"], AgentSpec::Command(clerk) if clerk.answer == AnswerFormat::Text));
/// assert_eq!(AnswerFormat::default(), AnswerFormat::Json);
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerFormat {
    /// One JSON object.
    #[default]
    Json,
    /// The whole of it is the answer and, in a child, the report.
    Text,
}

/// An agent that is a language model with tools.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, Program, Tool};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "model", model = "small", tools = ["report"] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Model(editor) = &program.agents["editor"] else { panic!("a model") };
/// assert_eq!((editor.model.as_str(), editor.tools.as_slice()), ("small", &[Tool::Report][..]));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAgent {
    /// The model's name at its provider.
    pub model: String,
    /// Where the provider listens, when not at its usual place; begins with `http://` or
    /// `https://`.
    pub base_url: Option<String>,
    /// The environment variable that holds the key; the key itself is never in the file.
    pub api_key_env: Option<String>,
    /// What the model is told that it is.
    pub persona: Option<Template>,
    /// The tools it may use, without repeats; all four unless given.
    pub tools: Vec<Tool>,
    /// How many model requests a turn may make, when limited; 1 to 10,000.
    pub max_steps: Option<u32>,
}

/// A tool of a model agent.
///
/// ```
/// use greenroom::program::Tool;
/// assert_eq!(Tool::ALL.map(Tool::name), ["subagent", "send_message", "list_agents", "report"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Starts a child.
    Subagent,
    /// Sends a child its next message.
    SendMessage,
    /// Lists the own children.
    ListAgents,
    /// Reports to the parent.
    Report,
}

impl Tool {
    /// Every tool, in the order of the contract.
    pub const ALL: [Self; 4] = [Self::Subagent, Self::SendMessage, Self::ListAgents, Self::Report];

    /// Returns the name by which programs and models know the tool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subagent => "subagent",
            Self::SendMessage => "send_message",
            Self::ListAgents => "list_agents",
            Self::Report => "report",
        }
    }
}
