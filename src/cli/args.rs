//! The flags that every verb takes, and the verbs.

use clap::{Args, Parser, Subcommand, ValueEnum};

#[cfg(feature = "mcp")]
use super::mcp;
use super::{check, completions, control, export, import, list, log, man, rm, run, send, show, stress, tree};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "greenroom",
    version,
    about = "Durable agents: run them, list them, read them, send to them",
    after_help = "Example:\n  greenroom run examples/review.toml\n  greenroom list",
    after_long_help = "Example:\n  greenroom run examples/review.toml\n  greenroom list\n\nExit codes:\n  0  done\n  1  failed\n  \
                       2  the arguments or the program file make no sense\n  3  a wait timed out\n  4  no such store, session or message\n  \
                       5  not allowed\n  6  held by another process\n  7  damaged data was found\n  129, 130, 143  ended by a signal",
    disable_help_subcommand = true
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags that may stand before or after the verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store: `sqlite:PATH`; `jsonl:DIR` for a file of JSON Lines per session and one writer at a time; `memory:` for a run that leaves nothing behind.
    ///
    /// Without it the store is `greenroom/greenroom.db` in the user's data folder.
    #[arg(long, global = true, value_name = "URL", env = "GREENROOM_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Write the result as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more on stderr; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Which diagnostics go to stderr: `error`, `warn`, `info`, `debug`, `trace`, or a filter.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// When to use colours. `auto` asks the terminal and `NO_COLOR`.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Verb {
    /// Tells whether stdout belongs to a protocol, so that nothing else may be written to it.
    pub(crate) fn speaks_a_protocol(&self) -> bool {
        match self {
            #[cfg(feature = "mcp")]
            Self::Mcp(_) => true,
            _ => false,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::RunArgs),
    List(list::ListArgs),
    Tree(tree::TreeArgs),
    Show(show::ShowArgs),
    Log(log::LogArgs),
    Send(send::SendArgs),
    Interrupt(control::InterruptArgs),
    Withdraw(control::WithdrawArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Check(check::CheckArgs),
    Rm(rm::RmArgs),
    Stress(stress::StressArgs),
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    /// Show the help of the program, or of a verb.
    #[command(hide = true, after_help = "Example:\n  greenroom help\n  greenroom help run")]
    Help {
        /// The verb.
        #[arg(value_name = "VERB")]
        verb: Option<String>,
    },
}
