//! From arguments to an exit code.

use std::{ffi::OsString, process::ExitCode};

use clap::{Command, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource};
use tracing_subscriber::EnvFilter;

use super::{
    args::{Color, CommandLine, Global, Verb},
    failure::Failure,
    store,
    terminal::Terminal,
};

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let parsed = CommandLine::command().try_get_matches_from(&arguments).and_then(|matches| Ok((CommandLine::from_arg_matches(&matches)?, matches)));
    let (line, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refused(&error, &arguments),
    };
    if let Verb::Help { verb } = &line.verb {
        return help(verb.as_deref(), &arguments);
    }
    let store_typed = matches.value_source("store") == Some(ValueSource::CommandLine);
    let mut line = line;
    #[cfg(feature = "acp")]
    if matches!(line.verb, Verb::Acp(_)) {
        // stdout is the protocol's.
        line.global.json = false;
    }
    let mut terminal = Terminal::new(&line.global);
    if line.verb.speaks_a_protocol() {
        terminal.leave_stdout();
    }
    let done = start_log(&line.global).and_then(|()| execute(&line, store_typed, &mut terminal)).and_then(|exit| terminal.flush().map(|()| exit));
    match done {
        Ok(exit) => exit,
        Err(failure) => {
            // What was written before the failure comes before it where both streams meet.
            drop(terminal.flush());
            failure.report(&mut terminal);
            failure.exit_code()
        }
    }
}

fn execute(line: &CommandLine, store_typed: bool, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    // What a shell asks for at its start must not depend on a store.
    match &line.verb {
        Verb::Completions(args) => return args.execute(terminal).map(|()| ExitCode::SUCCESS),
        Verb::Man(args) => return args.execute(terminal).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let url = store::url(line.global.store.as_deref())?;
    match &line.verb {
        Verb::Run(args) => args.execute(&url, terminal)?,
        Verb::List(args) => args.execute(&url, terminal)?,
        Verb::Tree(args) => args.execute(&url, terminal)?,
        Verb::Show(args) => args.execute(&url, terminal)?,
        Verb::Log(args) => args.execute(&url, terminal)?,
        Verb::Send(args) => args.execute(&url, terminal)?,
        Verb::Stress(args) => args.execute(store_typed.then_some(&url), terminal)?,
        Verb::Completions(_) | Verb::Man(_) | Verb::Help { .. } => {}
        #[cfg(feature = "mcp")]
        Verb::Mcp(args) => args.execute(&url)?,
        Verb::Interrupt(args) => args.execute(&url, terminal)?,
        Verb::Withdraw(args) => args.execute(&url, terminal)?,
        Verb::Export(args) => args.execute(&url, terminal)?,
        Verb::Import(args) => args.execute(&url, terminal)?,
        Verb::Rm(args) => args.execute(&url, terminal)?,
        #[cfg(feature = "acp")]
        Verb::Acp(args) => args.execute(&url)?,
        Verb::Check(args) => args.execute(&url, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn start_log(global: &Global) -> Result<(), Failure> {
    let level = global.log_level.as_deref().unwrap_or(match global.verbose {
        0 => "warn",
        1 => "warn,greenroom=info,greenroom_actors=info,greenroom_session=info",
        _ => "debug",
    });
    let filter = EnvFilter::try_new(level).map_err(|error| Failure::new("USAGE", format!("--log-level {level:?}: {error}")))?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let ansi = super::paint::Paint::of(global.color, terminal).is_on();
    // A second subscriber cannot be; nothing in this process sets another.
    drop(tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).with_target(false).try_init());
    Ok(())
}

/// Shows what `--help` shows, or that there is no such verb.
fn help(verb: Option<&str>, arguments: &[OsString]) -> ExitCode {
    let words = std::iter::once("greenroom").chain(verb).chain(["--help"]);
    CommandLine::command().try_get_matches_from(words).map_or_else(|shown| refused(&shown, arguments), |_| ExitCode::SUCCESS)
}

/// Takes clap's text apart: the first paragraph says what is wrong, the others what to do.
fn usage(text: &str) -> Failure {
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let failure = Failure::new("USAGE", paragraphs.next().unwrap_or_default());
    let help = paragraphs.map(|paragraph| paragraph.trim_start_matches("tip: ")).collect::<Vec<_>>().join("\n      ");
    // Clap counts it as typed where the environment names it.
    let help = help.replace(" --store <URL>", "");
    if help.is_empty() { failure } else { failure.help(help) }
}

/// Shows what clap has to say: the help that was asked for, or why the arguments make no sense.
fn refused(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let words = || arguments.iter().skip(1).take_while(|word| *word != "--");
    let json = words().any(|word| word == "--json");
    let global = Global { store: None, json, verbose: 0, log_level: None, color: Color::Auto };
    let mut terminal = Terminal::new(&global);
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let shown = terminal.line(error.render().to_string().trim_end()).and_then(|()| terminal.flush());
        return shown.map_or_else(|failure| failure.exit_code(), |()| ExitCode::SUCCESS);
    }
    let failure = if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
        terminal.remark(CommandLine::command().render_help().to_string().trim_end());
        terminal.remark("");
        Failure::new("USAGE", "no verb was given")
    } else {
        usage(&error.render().to_string())
    };
    // Whoever starts one of these reads a protocol there, also when the line that starts it is wrong.
    let command = CommandLine::command();
    let meant = words().find_map(|word| command.get_subcommands().map(Command::get_name).find(|verb| word == verb));
    if meant.is_some_and(|verb| ["acp", "mcp"].contains(&verb)) {
        terminal.leave_stdout();
    }
    failure.report(&mut terminal);
    failure.exit_code()
}
