//! `greenroom mcp`: an MCP server on stdio.

use std::path::PathBuf;

use clap::Args;
use greenroom::{
    SessionId,
    mcp::{McpError, Options, Server},
    program::Program,
    store_url::StoreUrl,
    wire::Limits,
};

use super::{codes::Exit, failure::Failure, run};

/// Serve a coding agent over the Model Context Protocol, on stdin and stdout: durable background subagents for it.
///
/// The client is the parent of the subagents, under the id that --root names: the same id again is the same parent, also after a kill, and each project has
/// its own. `docs/mcp.md` says what a client is to be told, and what each tool does. Ends with its input.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom mcp --root my-project --program agents.toml")]
pub(crate) struct McpArgs {
    /// The root session whose subagents they are, by its whole id; it is created on first use.
    #[arg(long, value_name = "NAME")]
    root: String,
    /// The program file whose agents play the subagents. Without it there are none to start, and those that are there are listed and read only.
    #[arg(long, value_name = "FILE.toml")]
    program: Option<PathBuf>,
    /// Give one of the program's variables another value.
    #[arg(long, value_name = "NAME=VALUE", value_parser = run::parse_set)]
    set: Vec<(String, String)>,
}

impl McpArgs {
    /// Serves.
    pub(crate) fn execute(&self, url: &StoreUrl) -> Result<(), Failure> {
        let mut options = Options::new(url.clone(), SessionId::new(&self.root)?, run::current_folder()?);
        options.program = self.program.as_deref().map(Program::load).transpose()?;
        options.sets.clone_from(&self.set);
        options.heed_signals = true;
        let made = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = made.map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no threads: {error}")))?;
        let done = runtime.block_on(async {
            let server = Box::pin(Server::open(options)).await?;
            tracing::info!(root = %self.root, "the server is ready");
            Box::pin(server.serve(tokio::io::stdin(), tokio::io::stdout(), Limits::default())).await
        });
        // A read of stdin that waits for the client would hold up the end.
        runtime.shutdown_background();
        done.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: McpError) -> Failure {
        let exit = match &error {
            McpError::Signalled(1) => Some(Exit::HungUp),
            McpError::Signalled(15) => Some(Exit::Terminated),
            McpError::Signalled(_) => Some(Exit::Interrupted),
            _ => None,
        };
        let failure = Failure::from(error);
        match exit {
            Some(exit) => failure.exit(exit).help(format!("`greenroom mcp --root {}` goes on", self.root)),
            None => failure,
        }
    }
}
