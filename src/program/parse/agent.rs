//! One `[agents.NAME]` table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{Names, optional};
use super::report::{Report, Value, quoted};
use super::similar::did_you_mean;
use super::step::Script;
use super::table::Fields;
use super::text::{Scope, duration, template};
use crate::program::agent::{AgentSpec, AnswerFormat, CommandAgent, ModelAgent, ScriptAgent, Tool};
use crate::program::template::Template;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
const MOST_MODEL_STEPS: u32 = 10_000;

/// Reads an agent. Which keys it may have is not known without its behaviour: a mistake there
/// is the only one reported.
pub(super) fn agent(report: &mut Report<'_>, names: &Names, name: &str, value: &Value<'_>) -> Option<AgentSpec> {
    let mut fields = Fields::new(report, value, &format!("[agents.{}]", name.escape_debug()))?;
    let behavior = fields.need(report, "behavior")?;
    match choice(report, behavior, &["script", "command", "model"])? {
        "script" => script(report, names, fields).map(AgentSpec::Script),
        "command" => command(report, names, fields).map(AgentSpec::Command),
        _ => model(report, names, fields).map(AgentSpec::Model),
    }
}

/// Reads a string that must be one of a few.
pub(super) fn choice(report: &mut Report<'_>, value: &Value<'_>, choices: &[&'static str]) -> Option<&'static str> {
    let expected = match choices {
        [only] => format!("\"{only}\""),
        choices => format!("one of \"{}\"", choices.join("\", \"")),
    };
    let found = report.string(value, &expected)?;
    let chosen = choices.iter().find(|choice| **choice == found).copied();
    if chosen.is_none() {
        let guess = did_you_mean(found, choices.iter().copied());
        let found = quoted(found);
        report.add(value.span().start, format!("expected {expected}, found {found}{guess}"));
    }
    chosen
}

fn script(report: &mut Report<'_>, names: &Names, mut fields: Fields<'_, '_>) -> Option<ScriptAgent> {
    let turns = fields.need(report, "turns").and_then(|value| Script::new(report, names).turns(value));
    fields.finish(report);
    Some(ScriptAgent { turns: turns? })
}

fn command(report: &mut Report<'_>, names: &Names, mut fields: Fields<'_, '_>) -> Option<CommandAgent> {
    let command = fields.need(report, "command").and_then(|value| read_command(report, names, value));
    let timeout = fields.take("timeout").map_or(Some(DEFAULT_TIMEOUT), |value| {
        let timeout = duration(report, value)?;
        if timeout.is_zero() {
            report.wrong(value, "a timeout longer than zero");
            return None;
        }
        Some(timeout)
    });
    let env = fields.take("env").map_or_else(|| Some(BTreeMap::new()), |value| read_env(report, names, value));
    let env_pass = fields.take("env_pass").map_or_else(
        || Some(Vec::new()),
        |value| {
            each(report, value, "an array of names of variables", |report, item| {
                let name = report.string(item, ENV_NAME)?;
                env_name(report, item.span().start, name).then(|| name.to_owned())
            })
        },
    );
    let answer = fields.take("answer").map_or(Some(AnswerFormat::default()), |value| {
        Some(match choice(report, value, &["json", "text"])? {
            "text" => AnswerFormat::Text,
            _ => AnswerFormat::Json,
        })
    });
    fields.finish(report);
    Some(CommandAgent { command: command?, timeout: timeout?, env: env?, env_pass: env_pass?, answer: answer? })
}

fn read_command(report: &mut Report<'_>, names: &Names, value: &Value<'_>) -> Option<Vec<Template>> {
    let expected = "a program and its arguments, such as [\"sh\", \"report.sh\"]";
    let words = each(report, value, expected, |report, item| argument(report, names, item, "an argument that is a string"));
    let items = value.get_ref().as_array()?;
    let Some(first) = items.iter().next() else {
        report.wrong(value, expected);
        return None;
    };
    if first.get_ref().as_str() == Some("") {
        report.wrong(first, "the name of a program");
        return None;
    }
    words
}

/// Reads a template that goes to another program, for which no system call takes a NUL.
fn argument(report: &mut Report<'_>, names: &Names, value: &Value<'_>, expected: &str) -> Option<Template> {
    let template = template(report, value, expected, Scope::command(&names.vars))?;
    if let Some(at) = template.source().find('\0') {
        report.add_inside(value.span(), at, "expected text without NUL, found one");
        return None;
    }
    Some(template)
}

fn read_env(report: &mut Report<'_>, names: &Names, value: &Value<'_>) -> Option<BTreeMap<String, Template>> {
    let mut env = BTreeMap::new();
    let mut fine = true;
    for (key, value) in report.table(value, "a table of strings")? {
        let name = key.get_ref().as_ref();
        fine &= env_name(report, key.span().start, name);
        match argument(report, names, value, "a string") {
            Some(template) => {
                env.insert(name.to_owned(), template);
            }
            None => fine = false,
        }
    }
    fine.then_some(env)
}

const ENV_NAME: &str = "the name of an environment variable";

/// Checks the name of an environment variable. Those that the runtime sets itself are its own.
fn env_name(report: &mut Report<'_>, at: usize, name: &str) -> bool {
    let found = quoted(name);
    if name.is_empty() || name.contains(['=', '\0']) {
        report.add(at, format!("expected {ENV_NAME}, found {found}"));
        return false;
    }
    if name.starts_with("GREENROOM_") {
        report.add(at, format!("expected a variable that the runtime does not set itself, found {found}"));
        return false;
    }
    true
}

fn model(report: &mut Report<'_>, names: &Names, mut fields: Fields<'_, '_>) -> Option<ModelAgent> {
    let model = fields.need(report, "model").and_then(|value| report.name(value, "the name of a model"));
    let base_url = fields.take("base_url").map(|value| {
        let expected = "a URL that begins with http:// or https://";
        let url = report.name(value, expected)?;
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if host.is_none_or(str::is_empty) {
            report.wrong(value, expected);
            return None;
        }
        Some(url)
    });
    let api_key_env = fields.take("api_key_env").map(|value| {
        let name = report.string(value, ENV_NAME)?;
        env_name(report, value.span().start, name).then(|| name.to_owned())
    });
    let persona = fields.take("persona").map(|value| template(report, value, "a text", Scope::vars(&names.vars)));
    let tools = fields.take("tools").map_or_else(|| Some(Tool::ALL.to_vec()), |value| read_tools(report, value));
    let max_steps = fields.take("max_steps").map(|value| report.integer(value, 1..=MOST_MODEL_STEPS));
    fields.finish(report);
    Some(ModelAgent {
        model: model?,
        base_url: optional(base_url)?,
        api_key_env: optional(api_key_env)?,
        persona: optional(persona)?,
        tools: tools?,
        max_steps: optional(max_steps)?,
    })
}

fn read_tools(report: &mut Report<'_>, value: &Value<'_>) -> Option<Vec<Tool>> {
    let mut seen = Vec::new();
    each(report, value, "an array of tools", |report, item| {
        let name = choice(report, item, &Tool::ALL.map(Tool::name))?;
        if seen.contains(&name) {
            report.add(item.span().start, format!("expected each tool once, found \"{name}\" again"));
            return None;
        }
        seen.push(name);
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    })
}

/// Reads every item of an array, also after a mistake in one.
pub(super) fn each<'v, 'i, 't, T>(
    report: &mut Report<'t>,
    value: &'v Value<'i>,
    expected: &str,
    mut read: impl FnMut(&mut Report<'t>, &'v Value<'i>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = report.array(value, expected)?;
    let read: Vec<_> = items.iter().map(|item| read(report, item)).collect();
    read.into_iter().collect()
}
