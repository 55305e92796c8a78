//! The steps of a scripted agent.
//!
//! A step is data: what it does, and when it is a step boundary, is the script behaviour's part.

use std::time::Duration;

use super::template::Template;
use super::value::ValueTemplate;

/// One step of a script.
///
/// ```
/// use std::{path::Path, time::Duration};
/// use greenroom::program::{AgentSpec, Program, Step};
/// let text = r#"
/// run = { root = "clerk" }
/// agents.clerk = { behavior = "script", turns = [[{ sleep = "1.5s" }, { await = "children" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Script(clerk) = &program.agents["clerk"] else { panic!("a script") };
/// assert_eq!(clerk.turns[0], [Step::Sleep(Duration::from_millis(1_500)), Step::AwaitChildren]);
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Says something as the agent's own answer; `{reports}` is known only here.
    Say(Template),
    /// Notes something in the log alone.
    Memo(Template),
    /// Starts a child.
    Delegate(Delegate),
    /// Sends a child its next message.
    Send {
        /// An alias (`as`) or a session id.
        to: Template,
        /// The message.
        message: Template,
    },
    /// Lists the own children.
    List,
    /// Reports to the parent.
    Report {
        /// The report.
        text: Template,
        /// Whether the report leaves a settled parent asleep.
        quiet: bool,
    },
    /// Waits, in virtual time under a seed.
    Sleep(Duration),
    /// Ends the turn as failed.
    Fail {
        /// The error code in `UPPER_SNAKE`, when the program names one.
        code: Option<String>,
        /// The reason.
        message: Template,
    },
    /// Panics, to see that a panic harms only its own turn.
    Panic(Template),
    /// Runs steps again and again.
    Repeat {
        /// How often; 0 to 1,000,000.
        times: u32,
        /// What is run.
        steps: Vec<Step>,
    },
    /// Runs steps once per file, with `{file}`.
    ForEachFile {
        /// The folder that the globs, and `{file}`, are relative to; `None` is the program
        /// file's.
        dir: Option<Template>,
        /// Globs; at least one. Render each with [`Bindings::glob_value`], so that a path with
        /// brackets in its name stays a path.
        ///
        /// [`Bindings::glob_value`]: super::Bindings::glob_value
        files: Vec<Template>,
        /// What is run; holds no other `for_each`.
        steps: Vec<Step>,
    },
    /// Runs steps once per child, with `{child}`, `{label}` and `{params.NAME}`.
    ForEachChild {
        /// What is run; holds no other `for_each`.
        steps: Vec<Step>,
    },
    /// Waits until no child is in a turn or runnable.
    AwaitChildren,
}

/// What a `delegate` step starts.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, Program, Provider, Step};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ delegate = { agent = "reporter", description = "collect facts", prompt = "Where are we?" } }]] }
/// agents.reporter = { behavior = "script", turns = [[{ report = "in Ghent" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Script(editor) = &program.agents["editor"] else { panic!("a script") };
/// let Step::Delegate(delegate) = &editor.turns[0][0] else { panic!("a delegation") };
/// assert_eq!((delegate.agent.as_str(), delegate.provider, delegate.background), ("reporter", Provider::Spawn, true));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Delegate {
    /// An agent of this program.
    pub agent: String,
    /// The name (`as`) that later steps send to; unique per parent.
    pub alias: Option<Template>,
    /// The child's label.
    pub description: Template,
    /// The child's first message.
    pub prompt: Template,
    /// Whether the script goes on at once (the default) or waits for the result.
    pub background: bool,
    /// How the child's log begins.
    pub provider: Provider,
    /// JSON that the child's behaviour sees.
    pub params: Option<ValueTemplate>,
}

/// How a child's log begins.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{AgentSpec, Program, Provider, Step};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ delegate = { agent = "editor", description = "a draft", prompt = "Go on.", provider = "fork" } }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let AgentSpec::Script(editor) = &program.agents["editor"] else { panic!("a script") };
/// assert!(matches!(&editor.turns[0][0], Step::Delegate(delegate) if delegate.provider == Provider::Fork));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Empty.
    #[default]
    Spawn,
    /// With a copy of the parent's surface.
    Fork,
}
