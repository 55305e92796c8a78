//! Strings with a meaning: templates, labels, globs, durations, params.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use greenroom_session::limits::MAX_LABEL_CHARS;
use greenroom_session::text::is_unsafe;
use serde_json::Value as Json;
use toml::de::DeValue;

use super::report::{Report, Value, quoted, to_i64};
use super::similar::did_you_mean;
use crate::program::duration::parse_duration;
use crate::program::files::{FileSet, FilesError};
use crate::program::template::Template;
use crate::program::value::ValueTemplate;

/// How deep `params` may be nested; far below what a log's reader refuses.
const DEEPEST_PARAMS: usize = 64;

/// What a `for_each` goes through, and so which names it brings.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Each {
    File,
    Child,
}

/// The names that a template may use.
#[derive(Clone, Copy)]
pub(super) struct Scope<'n> {
    pub(super) vars: &'n BTreeSet<String>,
    pub(super) each: Option<Each>,
    pub(super) reports: bool,
    /// Whether `{params.NAME}` stands for what the agent itself was given.
    pub(super) own_params: bool,
}

impl<'n> Scope<'n> {
    /// The variables alone.
    pub(super) fn vars(vars: &'n BTreeSet<String>) -> Self {
        Self { vars, each: None, reports: false, own_params: false }
    }

    /// The variables, and what the agent was given.
    pub(super) fn command(vars: &'n BTreeSet<String>) -> Self {
        Self { own_params: true, ..Self::vars(vars) }
    }

    /// Says why a name cannot be used here, if so.
    fn objection(&self, name: &str) -> Option<String> {
        let only_in = match (name, self.each) {
            _ if self.vars.contains(name) => return None,
            ("reports", _) if self.reports => return None,
            ("file", Some(Each::File)) | ("child" | "label", Some(Each::Child)) => return None,
            (name, Some(Each::Child)) if is_param(name) => return None,
            (name, _) if self.own_params && is_param(name) => return None,
            ("reports", _) => Some("a `say` step"),
            ("file", _) => Some("the steps of a `for_each` with `files`"),
            ("child" | "label", _) => Some("the steps of a `for_each` with `children`"),
            (name, _) if is_param(name) => Some("the steps of a `for_each` with `children`, or a command agent"),
            _ => None,
        };
        let escape = format!("write `{{{{{name}}}}}` for the text `{{{name}}}`");
        Some(if let Some(place) = only_in {
            format!("expected `{{{name}}}` only in {place}, found it here; {escape}")
        } else {
            let guess = did_you_mean(name, self.vars.iter().map(String::as_str));
            format!("expected a variable of [vars], found `{{{name}}}`{guess}; {escape}")
        })
    }
}

/// Whether a name is only known inside some step, so that no variable may take it.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(name, "file" | "child" | "label" | "reports" | "params")
}

/// Whether a name brings something new in each round of a `for_each`.
pub(super) fn varies(name: &str) -> bool {
    matches!(name, "file" | "child" | "label") || is_param(name)
}

fn is_param(name: &str) -> bool {
    name.strip_prefix("params.").is_some_and(|path| path.split('.').all(|part| !part.is_empty()))
}

/// Reads a template, every name of which must be known.
pub(super) fn template(report: &mut Report<'_>, value: &Value<'_>, expected: &str, scope: Scope<'_>) -> Option<Template> {
    let template = Template::parse(report.string(value, expected)?);
    let mut fine = true;
    for (name, span) in template.names() {
        if let Some(objection) = scope.objection(name) {
            report.add_inside(value.span(), span.start, objection);
            fine = false;
        }
    }
    fine.then_some(template)
}

/// Reads a template that may not be empty as written.
pub(super) fn filled(report: &mut Report<'_>, value: &Value<'_>, expected: &str, scope: Scope<'_>) -> Option<Template> {
    let template = template(report, value, expected, scope)?;
    if template.source().is_empty() {
        report.wrong(value, expected);
        return None;
    }
    Some(template)
}

/// Reads a label. Only what the program itself writes is checked: a value that is filled in
/// later is escaped and shortened then.
pub(super) fn label(report: &mut Report<'_>, value: &Value<'_>, expected: &str, scope: Scope<'_>) -> Option<Template> {
    let template = filled(report, value, expected, scope)?;
    let mut fine = no_forbidden(report, value, template.source());
    let length: usize = template.texts().map(|text| text.chars().count()).sum();
    if length > MAX_LABEL_CHARS {
        report.add(value.span().start, format!("expected at most {MAX_LABEL_CHARS} characters, found {length}"));
        fine = false;
    }
    fine.then_some(template)
}

/// Reports the first character of a string that no label may hold.
fn no_forbidden(report: &mut Report<'_>, value: &Value<'_>, text: &str) -> bool {
    let Some((at, c)) = text.char_indices().find(|&(_, c)| is_unsafe(c)) else {
        return true;
    };
    report.add_inside(value.span(), at, format!("expected no control, line-separator or bidi-control character, found U+{:04X}", u32::from(c)));
    false
}

/// Reads the glob of a `for_each`.
pub(super) fn glob(report: &mut Report<'_>, value: &Value<'_>, scope: Scope<'_>) -> Option<Template> {
    let template = filled(report, value, "a glob, such as \"notes/*.md\"", scope)?;
    if !no_parent_folder(report, value, template.source()) {
        return None;
    }
    // What a name will bring is not known yet; a plain letter is the least it can do harm.
    let sample = template.render(&|_| Some("x".into()));
    let reason = match FileSet::new(Path::new("/"), &sample) {
        Ok(_) => return Some(template),
        Err(FilesError::BadGlob { reason, .. }) => format!(": {reason}"),
        Err(_) => " that names no file".to_owned(),
    };
    let found = quoted(template.source());
    report.add(value.span().start, format!("expected a valid glob, found {found}{reason}"));
    None
}

/// Reads the folder of a `for_each`.
pub(super) fn folder(report: &mut Report<'_>, value: &Value<'_>, scope: Scope<'_>) -> Option<Template> {
    let template = filled(report, value, "a folder, such as \"notes\"", scope)?;
    no_parent_folder(report, value, template.source()).then_some(template)
}

fn no_parent_folder(report: &mut Report<'_>, value: &Value<'_>, path: &str) -> bool {
    let mut at = 0;
    for part in path.split('/') {
        if part == ".." {
            report.add_inside(
                value.span(),
                at,
                "expected a path without `..`, found one; \
                 lead out of the folder with a variable { path = \"..\" }",
            );
            return false;
        }
        at += part.len() + 1;
    }
    true
}

/// Reads a duration.
pub(super) fn duration(report: &mut Report<'_>, value: &Value<'_>) -> Option<Duration> {
    let text = report.string(value, "a duration, such as \"30s\"")?;
    match parse_duration(text) {
        Ok(duration) => Some(duration),
        Err(error) => {
            report.add(value.span().start, format!("{error}, found {}", quoted(text)));
            None
        }
    }
}

/// Reads any TOML value as JSON. A date or time becomes its text.
pub(super) fn params(report: &mut Report<'_>, value: &Value<'_>, scope: Scope<'_>, depth: usize) -> Option<ValueTemplate> {
    if depth > DEEPEST_PARAMS {
        report.add(value.span().start, format!("expected at most {DEEPEST_PARAMS} levels of params, found more"));
        return None;
    }
    match value.get_ref() {
        DeValue::String(_) => template(report, value, "a string", scope).map(ValueTemplate::Text),
        DeValue::Integer(number) => {
            let number = to_i64(number);
            if number.is_none() {
                report.wrong(value, "an integer of at most 64 bits");
            }
            number.map(|number| ValueTemplate::Fixed(Json::from(number)))
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            if number.is_none() {
                report.wrong(value, "a number that JSON can hold");
            }
            number.map(|number| ValueTemplate::Fixed(Json::Number(number)))
        }
        DeValue::Boolean(truth) => Some(ValueTemplate::Fixed(Json::Bool(*truth))),
        DeValue::Datetime(time) => Some(ValueTemplate::Fixed(Json::String(time.to_string()))),
        DeValue::Array(items) => {
            let read: Vec<_> = items.iter().map(|item| params(report, item, scope, depth + 1)).collect();
            read.into_iter().collect::<Option<Vec<_>>>().map(ValueTemplate::List)
        }
        DeValue::Table(entries) => {
            let read: Vec<_> = entries
                .iter()
                .map(|(key, value)| {
                    let value = params(report, value, scope, depth + 1)?;
                    Some((key.get_ref().to_string(), value))
                })
                .collect();
            read.into_iter().collect::<Option<BTreeMap<_, _>>>().map(ValueTemplate::Table)
        }
    }
}
