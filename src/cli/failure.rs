//! A failure as the user sees it: a code, what happened, what to do.

use std::{borrow::Cow, error::Error, process::ExitCode};

use greenroom::{
    OpenError,
    actors::{
        error::{ActivateError, ControlError, DeliverError, ListError, QueryError, StartError, WriteError},
        host::RootError,
    },
    program::{BindError, ProgramErrors},
    run::RunError,
    session::{
        id::IdError,
        message::MessageError,
        repair::RepairError,
        store::{CommitError, LoadError, Refused, StoreError},
        text::{Escaped, EscapedLines},
        transfer::TransferError,
    },
    store_url::StoreUrlError,
    stress::StressError,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    codes::{self, Exit},
    paint::Role,
    terminal::Terminal,
};

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure(Box<Parts>);

#[derive(Debug, Clone, PartialEq)]
struct Parts {
    code: Cow<'static, str>,
    message: String,
    help: Option<String>,
    findings: Vec<String>,
    facts: Map<String, Value>,
    exit: Option<Exit>,
    /// Whether the facts are a result that says all that the findings say.
    answered: bool,
}

impl Failure {
    /// Makes a failure; the code's own help is shown with it.
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self(Box::new(Parts { code: code.into(), message: message.into(), help: None, findings: Vec::new(), facts: Map::new(), exit: None, answered: false }))
    }

    /// Says what to do in this case, in place of the code's own help.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Adds lines that are shown before the error itself.
    pub(crate) fn findings(mut self, findings: impl IntoIterator<Item = String>) -> Self {
        self.0.findings.extend(findings);
        self
    }

    /// Adds a key beside `error` in the JSON.
    pub(crate) fn fact(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.facts.insert(key.to_owned(), value.into());
        self
    }

    /// Ends the command with another exit than the code's own.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.0.exit = Some(exit);
        self
    }

    /// Gives the result, which is one although it is a failure: the keys of its JSON stand beside `error`, and the findings are for stderr alone.
    pub(crate) fn answered(mut self, result: &impl Serialize) -> Self {
        // What cannot be written as an object leaves the error, which is what a script looks for.
        if let Ok(Value::Object(result)) = serde_json::to_value(result) {
            self.0.facts.extend(result);
        }
        self.0.answered = true;
        self
    }

    /// Returns the exit code of the command.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.0.exit.unwrap_or_else(|| codes::find(&self.0.code).exit).into()
    }

    /// Shows it on stderr, and on stdout too where JSON was asked for.
    pub(crate) fn report(&self, terminal: &mut Terminal) {
        for finding in &self.0.findings {
            terminal.remark(Escaped(finding));
        }
        let paint = terminal.paint_err();
        let help = self.0.help.as_deref().unwrap_or_else(|| codes::find(&self.0.code).help);
        // A behaviour may fail with a code of its own.
        let error = format!("error[{}]", Escaped(&self.0.code));
        terminal.remark(format_args!("{}: {}", paint.show(Role::Bad, error), further_in(&self.0.message)));
        terminal.remark(format_args!("{}: {}", paint.show(Role::Heading, "help"), further_in(help)));
        if terminal.is_json() {
            let mut document = Map::new();
            document.insert("error".to_owned(), json!({"code": self.0.code, "message": self.0.message, "help": help}));
            document.extend(self.0.facts.clone());
            if !self.0.findings.is_empty() && !self.0.answered {
                document.insert("findings".to_owned(), json!(self.0.findings));
            }
            // The failure is what ends the command; that it cannot be written changes nothing.
            drop(terminal.json(&document));
            drop(terminal.flush());
        }
    }
}

/// Shows lines, all but the first of which stand further in: text of a store never looks like an error of its own.
fn further_in(text: &str) -> String {
    let mut shown = String::new();
    for (number, line) in EscapedLines(text).to_string().split('\n').enumerate() {
        if number > 0 {
            shown.push_str(if line.starts_with("  ") { "\n" } else { "\n  " });
        }
        shown.push_str(line);
    }
    shown
}

/// Shows an error with what caused it, unless its own text says that already.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

macro_rules! coded {
    ($($error:ty),* $(,)?) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.code(), chain(&error))
            }
        }
    )* };
}
#[cfg(feature = "mcp")]
coded!(greenroom::mcp::McpError);
coded!(
    ActivateError,
    BindError,
    CommitError,
    ControlError,
    DeliverError,
    IdError,
    LoadError,
    MessageError,
    OpenError,
    Refused,
    RepairError,
    RootError,
    RunError,
    StartError,
    StoreError,
    StressError,
    TransferError,
    WriteError,
);

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match &error {
            // What is wrong with the store is the same whatever was asked of it.
            QueryError::PersistenceFailed(cause) => Self::new(cause.code(), chain(&**cause)),
            _ => Self::new(error.code(), chain(&error)),
        }
    }
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Query(error) => error.into(),
            other => Self::new(other.code(), chain(&other)),
        }
    }
}

impl From<StoreUrlError> for Failure {
    fn from(error: StoreUrlError) -> Self {
        OpenError::from(error).into()
    }
}

impl From<ProgramErrors> for Failure {
    fn from(error: ProgramErrors) -> Self {
        let mistakes = error.mistakes();
        let message = match mistakes {
            [] => chain(&error),
            [one] => format!("{} has a mistake", one.file),
            [first, ..] => format!("{} has {} mistakes", first.file, mistakes.len()),
        };
        Self::new(error.code(), message).findings(mistakes.iter().map(ToString::to_string))
    }
}
