//! `greenroom completions`: what a shell needs to complete words.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use super::{args::CommandLine, failure::Failure, terminal::Terminal};

/// Write the completions of a shell.
///
/// Looks at no store. Completes verbs, flags and file names; ids it does not know.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  greenroom completions bash > ~/.local/share/bash-completion/completions/greenroom\n  greenroom completions zsh > \"${fpath[1]}/_greenroom\"\n  \
                  greenroom completions fish > ~/.config/fish/completions/greenroom.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsArgs {
    /// Writes.
    pub(crate) fn execute(&self, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "greenroom", &mut script);
        let script = String::from_utf8_lossy(&script);
        if terminal.is_json() {
            return terminal.json(&json!({"shell": self.shell.to_string(), "script": script}));
        }
        terminal.line(script.trim_end())
    }
}
