//! The flags that every verb takes, and the verbs.

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{list, log, run, send, show, tree};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "greenroom",
    version,
    about = "Durable agents: run them, list them, read them, send to them",
    after_help = "Example:\n  greenroom run examples/review.toml\n  greenroom list",
    disable_help_subcommand = true,
    max_term_width = 110
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
    /// The store: `sqlite:PATH`, or `memory:` for a run that leaves nothing behind.
    ///
    /// Without it, and without `GREENROOM_STORE`, the store is `greenroom/greenroom.db` in the user's data folder.
    #[arg(long, global = true, value_name = "URL", env = "GREENROOM_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Write the result as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more on stderr; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Which diagnostics go to stderr: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `greenroom=debug`.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// When to use colours. `auto` asks the terminal and `NO_COLOR`.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal that wants them.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
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
}
