//! `greenroom acp`: plays a program for an editor, on stdin and stdout.

use std::path::PathBuf;

use clap::Args;
use greenroom::{
    acp::{self, AcpError},
    program::Program,
    run::RunError,
    store_url::StoreUrl,
};

use super::{codes::Exit, failure::Failure, run::current_folder};

/// Play a program for an editor that speaks the Agent Client Protocol, on stdin and stdout.
///
/// Each session of the editor is a root, played by the program's root agent and kept in the store; what is accepted is served, now or after the next start.
/// It ends when its stdin does. docs/acp.md has the configuration of editors.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom acp --program desk.toml --store sqlite:desk.db")]
pub(crate) struct AcpArgs {
    /// The program file.
    #[arg(long, value_name = "FILE.toml", env = "GREENROOM_PROGRAM", hide_env_values = true)]
    program: PathBuf,
}

impl AcpArgs {
    /// Speaks the protocol until stdin ends.
    pub(crate) fn execute(&self, url: &StoreUrl) -> Result<(), Failure> {
        let program = Program::load(&self.program)?;
        let cwd = current_folder()?;
        let made = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = made.map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no threads: {error}")))?;
        let played = runtime.block_on(acp::play(&program, url, &cwd, tokio::io::stdin(), tokio::io::stdout()));
        // A read of stdin cannot be taken back.
        runtime.shutdown_background();
        played.map_err(|error| {
            let exit = match &error {
                AcpError::Program(RunError::Signalled(1)) => Some(Exit::HungUp),
                AcpError::Program(RunError::Signalled(15)) => Some(Exit::Terminated),
                AcpError::Program(RunError::Signalled(_)) => Some(Exit::Interrupted),
                _ => None,
            };
            let failure = match error {
                AcpError::Program(error) => Failure::from(error),
                other => Failure::new(other.code(), other.to_string()),
            };
            exit.map_or(failure.clone(), |exit| failure.exit(exit))
        })
    }
}
