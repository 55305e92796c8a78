//! The `greenroom` program: durable agents from the command line.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main::main()
}
