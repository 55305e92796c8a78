//! The file as a whole: `[run]`, `[vars]`, `[agents]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::str;

use greenroom_session::limits::MAX_LABEL_CHARS;
use greenroom_session::text::check_label;
use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::agent::agent;
use super::report::{Report, Value, quoted, to_i64};
use super::similar::did_you_mean;
use super::table::Fields;
use super::text::{Scope, is_reserved, label, template};
use crate::program::agent::AgentSpec;
use crate::program::bindings::absolute_path;
use crate::program::error::ProgramErrors;
use crate::program::file::{Program, Run, Var};

const MOST_LIVE: u32 = 1_000_000;
const DEFAULT_LIVE: u32 = 64;
const DEEPEST: u32 = 1_000;
const DEFAULT_DEPTH: u32 = 3;
const MOST_WAITING: u32 = 1_000_000;

/// What the parts of a program may refer to. A name counts as known even when its own table has
/// mistakes, so that one mistake is not reported twice.
pub(super) struct Names {
    pub(super) vars: BTreeSet<String>,
    pub(super) agents: BTreeSet<String>,
}

/// Reads a program file, or finds all its mistakes.
pub(in crate::program) fn program(bytes: &[u8], file_name: &str, base_dir: &Path) -> Result<Program, ProgramErrors> {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(not_text(bytes, error.valid_up_to(), file_name)),
    };
    let mut report = Report::new(text, file_name);
    let parts = syntax(&mut report, text).and_then(|table| document(&mut report, &table, base_dir));
    let mistakes = report.into_mistakes();
    match parts {
        Some((run, vars, agents)) if mistakes.is_empty() => {
            Ok(Program { file_name: file_name.to_owned(), base_dir: base_dir.to_owned(), sha256: hexadecimal(&Sha256::digest(bytes)), run, vars, agents })
        }
        _ => Err(ProgramErrors::Invalid { mistakes }),
    }
}

/// Reports the first byte that is not UTF-8.
fn not_text(bytes: &[u8], valid_up_to: usize, file_name: &str) -> ProgramErrors {
    let (valid, rest) = bytes.split_at(valid_up_to);
    let text = str::from_utf8(valid).unwrap_or_default();
    let byte = rest.first().copied().unwrap_or_default();
    let mut report = Report::new(text, file_name);
    report.add(text.len(), format!("expected UTF-8 text, found the byte 0x{byte:02X}"));
    ProgramErrors::Invalid { mistakes: report.into_mistakes() }
}

/// Reads the TOML. The reader goes on after a mistake, and stumbles over what follows it on the
/// same line: only the first of a line is kept.
fn syntax<'t>(report: &mut Report<'_>, text: &'t str) -> Option<DeTable<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (at, error.message())
        })
        .collect();
    if errors.is_empty() {
        return Some(table.into_inner());
    }
    errors.sort_by_key(|(at, _)| *at);
    errors.dedup_by_key(|(at, _)| report.position(*at).line);
    for (at, message) in errors {
        let message = if message.contains("recurs") {
            "expected at most 80 levels of nested values, found more".to_owned()
        } else if lacks_value(text, at) {
            "expected a value after `=`, found none".to_owned()
        } else {
            format!("not valid TOML: {message}")
        };
        report.add(at, message);
    }
    None
}

/// Whether a key's value is missing at a byte; the reader takes that for a string without quotes.
fn lacks_value(text: &str, at: usize) -> bool {
    let Some((before, after)) = text.split_at_checked(at) else {
        return false;
    };
    let blank = [' ', '\t'];
    let ends = ['\r', '\n', '#', ',', ']', '}'];
    let after = after.trim_start_matches(blank);
    before.trim_end_matches(blank).ends_with('=') && (after.is_empty() || after.starts_with(ends))
}

type Parts = (Run, BTreeMap<String, Var>, BTreeMap<String, AgentSpec>);

fn document(report: &mut Report<'_>, table: &DeTable<'_>, base_dir: &Path) -> Option<Parts> {
    let mut fields = Fields::of(table, 0, "the program");
    let run = fields.need(report, "run");
    let vars = fields.take("vars");
    let agents = fields.need(report, "agents");
    fields.finish(report);

    let names = Names { vars: keys(vars), agents: keys(agents) };
    let vars = vars.map_or_else(|| Some(BTreeMap::new()), |vars| read_vars(report, vars, base_dir));
    let agents = agents.and_then(|agents| read_agents(report, &names, agents));
    let run = run.and_then(|run| read_run(report, &names, run));
    Some((run?, vars?, agents?))
}

fn keys(value: Option<&Value<'_>>) -> BTreeSet<String> {
    value.and_then(|value| value.get_ref().as_table()).into_iter().flat_map(DeTable::keys).map(|key| key.get_ref().to_string()).collect()
}

fn read_run(report: &mut Report<'_>, names: &Names, value: &Value<'_>) -> Option<Run> {
    let scope = Scope::vars(&names.vars);
    let mut fields = Fields::new(report, value, "[run]")?;
    let root = fields.need(report, "root").and_then(|root| known_agent(report, names, root));
    let label = fields.take("label").map(|value| label(report, value, "a label", scope));
    let prompt = fields.take("prompt").map(|value| template(report, value, "a prompt", scope));
    let max_live = fields.take("max_live").map_or(Some(DEFAULT_LIVE), |value| report.integer(value, 1..=MOST_LIVE));
    let max_depth = fields.take("max_depth").map_or(Some(DEFAULT_DEPTH), |value| report.integer(value, 0..=DEEPEST));
    let inbox_limit = fields.take("inbox_limit").map(|value| report.integer(value, 1..=MOST_WAITING));
    fields.finish(report);
    Some(Run {
        root: root?,
        label: optional(label)?,
        prompt: optional(prompt)?,
        max_live: max_live? as usize,
        max_depth: max_depth?,
        inbox_limit: optional(inbox_limit)?.map(|limit| limit as usize),
    })
}

/// Turns "given, perhaps with a mistake" into "no mistake, perhaps given".
#[expect(clippy::option_option, reason = "the outer layer is the mistake")]
pub(super) fn optional<T>(given: Option<Option<T>>) -> Option<Option<T>> {
    match given {
        None => Some(None),
        Some(None) => None,
        Some(read) => Some(read),
    }
}

/// Reads the name of an agent of this program.
pub(super) fn known_agent(report: &mut Report<'_>, names: &Names, value: &Value<'_>) -> Option<String> {
    let name = report.string(value, "the name of an agent")?;
    if names.agents.contains(name) {
        return Some(name.to_owned());
    }
    let known: Vec<_> = names.agents.iter().map(|name| quoted(name)).collect();
    let known = match known.as_slice() {
        [] => String::new(),
        known => format!(", one of {}", known.join(", ")),
    };
    let guess = did_you_mean(name, names.agents.iter().map(String::as_str));
    report.add(value.span().start, format!("expected an agent of this program{known}, found {}{guess}", quoted(name)));
    None
}

fn read_vars(report: &mut Report<'_>, value: &Value<'_>, base_dir: &Path) -> Option<BTreeMap<String, Var>> {
    let mut vars = BTreeMap::new();
    let mut fine = true;
    for (key, value) in report.table(value, "the table [vars]")? {
        let name = key.get_ref();
        let at = key.span().start;
        let mut characters = name.chars();
        let is_name = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            let found = quoted(name);
            report.add(at, format!("expected a name of letters, digits and `_`, found {found}"));
            fine = false;
        } else if is_reserved(name) {
            report.add(at, format!("expected another name, found `{name}`, which some steps bring along"));
            fine = false;
        }
        match read_var(report, name, value, base_dir) {
            Some(var) => {
                vars.insert(name.to_string(), var);
            }
            None => fine = false,
        }
    }
    fine.then_some(vars)
}

fn read_var(report: &mut Report<'_>, name: &str, value: &Value<'_>, base_dir: &Path) -> Option<Var> {
    let text = match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Integer(number) => to_i64(number).map(|number| number.to_string()),
        DeValue::Table(_) => {
            let mut fields = Fields::new(report, value, &format!("the variable `{name}`"))?;
            let path = fields.need(report, "path").and_then(|path| report.name(path, "a path that is not empty"));
            fields.finish(report);
            return path.map(|path| Var::Path(absolute_path(base_dir, Path::new(&path))));
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) => None,
    };
    if text.is_none() {
        report.wrong(value, "a string, an integer, true, false or { path = \"...\" }");
    }
    text.map(Var::Text)
}

fn read_agents(report: &mut Report<'_>, names: &Names, value: &Value<'_>) -> Option<BTreeMap<String, AgentSpec>> {
    let table = report.table(value, "the table [agents]")?;
    if table.is_empty() {
        report.wrong(value, "at least one table [agents.NAME]");
        return None;
    }
    let mut agents = BTreeMap::new();
    let mut fine = true;
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if check_label(name).is_err() {
            let found = quoted(name);
            report.add(
                key.span().start,
                format!(
                    "expected an agent's name of 1 to {MAX_LABEL_CHARS} characters without \
                     control characters, found {found}"
                ),
            );
            fine = false;
        }
        match agent(report, names, name, value) {
            Some(spec) => {
                agents.insert(name.to_owned(), spec);
            }
            None => fine = false,
        }
    }
    fine.then_some(agents)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
