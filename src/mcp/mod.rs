//! The MCP server: durable background agents for any coding agent that speaks the Model Context Protocol on stdio.
//!
//! The client is the parent of the subagents. Who it is, is said once, by the id of a root session, and by no argument of a tool: [`Server::open`] brings that root up, creating it on
//! first use, takes up what is left to do below it, and [`Server::serve`] offers six tools: `subagent`, `send_message`, `list_agents`, `wait`, `read_log`, and `interrupt`. What they
//! have accepted is on disk, so that another server over the same store and root goes on where this one was killed.
//!
//! A root that is created here is played by [`CLIENT`], which takes the notes of its subagents and does nothing else: the client itself is the one who thinks.
//!
//! ```
//! use std::{io, path::Path};
//! use greenroom::{mcp::{Options, Server}, program::Program, wire::Limits};
//! use tokio::io::AsyncReadExt;
//! # tokio_test::block_on(async {
//! let text = r#"
//! run = { root = "editor" }
//! agents.editor = { behavior = "script", turns = [] }
//! agents.clerk = { behavior = "script", turns = [[{ say = "It rains." }]] }
//! "#;
//! let program = Program::parse(text, "desk.toml", Path::new("/desk"))?;
//! let server = Server::open(Options::new("memory:".parse()?, "my-project".parse()?, "/desk").program(program)).await?;
//! let input: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"me\",\"version\":\"1\"}}}
//! {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}
//! {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"list_agents\"}}\n";
//! let (output, mut client) = tokio::io::duplex(1 << 16);
//! server.serve(input, output, Limits::default()).await?; // until the client's end
//! let mut said = String::new();
//! client.read_to_string(&mut said).await?;
//! assert!(said.contains("(no subagents)"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod answer;
mod arguments;
mod call;
mod desk;
mod error;
mod handler;
mod options;
mod read_log;
mod reports;
mod server;
mod specs;
mod start;
mod transport;
mod wait;

pub use error::McpError;
pub use options::Options;
pub use server::Server;

/// The agent that plays a root which a server has created: it takes its notes and does nothing.
///
/// ```
/// assert_eq!(greenroom::mcp::CLIENT, "(client)");
/// ```
pub const CLIENT: &str = "(client)";
