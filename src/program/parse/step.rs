//! The steps of a script.

use toml::de::DeValue;

use super::agent::{choice, each};
use super::document::{Names, known_agent, optional};
use super::report::{Report, Value, quoted};
use super::similar::did_you_mean;
use super::table::Fields;
use super::text::{Each, Scope, duration, filled, folder, glob, label, params, template, varies};
use crate::program::error::Position;
use crate::program::step::{Delegate, Provider, Step};
use crate::program::template::Template;

/// How deep steps may stand in steps. The TOML reader stops earlier at its own limit of 80 levels
/// of values, unless some other crate of the build takes that limit away.
const DEEPEST_STEP: usize = 64;
const MOST_TIMES: u32 = 1_000_000;

const KINDS: [&str; 12] = ["say", "memo", "delegate", "send", "list", "report", "sleep", "fail", "panic", "repeat", "for_each", "await"];

/// Reads the turns of one agent.
pub(super) struct Script<'r, 't> {
    report: &'r mut Report<'t>,
    names: &'r Names,
    /// The aliases so far that are the same in every round, with their places.
    aliases: Vec<(Template, Position)>,
}

/// Where a list of steps stands.
#[derive(Clone, Copy)]
struct Place {
    each: Option<Each>,
    /// Whether some `repeat` around it runs it twice or more.
    again: bool,
    depth: usize,
}

impl<'r, 't> Script<'r, 't> {
    pub(super) fn new(report: &'r mut Report<'t>, names: &'r Names) -> Self {
        Self { report, names, aliases: Vec::new() }
    }

    /// Reads the lists of steps, one per message.
    pub(super) fn turns(mut self, value: &Value<'_>) -> Option<Vec<Vec<Step>>> {
        let place = Place { each: None, again: false, depth: 1 };
        let turns = self.report.array(value, "an array of lists of steps")?;
        let turns: Vec<_> = turns.iter().map(|turn| self.steps(turn, place)).collect();
        turns.into_iter().collect()
    }

    fn steps(&mut self, value: &Value<'_>, place: Place) -> Option<Vec<Step>> {
        let steps = self.report.array(value, "an array of steps")?;
        if place.depth > DEEPEST_STEP {
            let message = format!("expected at most {DEEPEST_STEP} levels of steps, found more");
            self.report.add(value.span().start, message);
            return None;
        }
        let steps: Vec<_> = steps.iter().map(|step| self.step(step, place)).collect();
        steps.into_iter().collect()
    }

    fn step(&mut self, value: &Value<'_>, place: Place) -> Option<Step> {
        let table = self.report.table(value, "a step, such as { say = \"...\" }")?;
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut first: Option<&str> = None;
        let mut step = None;
        let mut fine = true;
        for (key, value) in entries {
            let kind = key.get_ref().as_ref();
            let at = key.span().start;
            if !KINDS.contains(&kind) {
                let guess = did_you_mean(kind, KINDS);
                let known = KINDS.join("`, `");
                let kind = kind.escape_debug();
                self.report.add(at, format!("expected a kind of step, one of `{known}`, found `{kind}`{guess}"));
                fine = false;
                continue;
            }
            if let Some(first) = first {
                self.report.add(at, format!("expected one kind of step per table, found `{kind}` beside `{first}`"));
                fine = false;
            } else {
                first = Some(kind);
            }
            step = self.kind(kind, value, place);
        }
        if table.is_empty() {
            self.report.wrong(value, "one kind of step in the table");
        }
        step.filter(|_| fine)
    }

    fn kind(&mut self, kind: &str, value: &Value<'_>, place: Place) -> Option<Step> {
        let scope = self.scope(place);
        match kind {
            "say" => {
                let scope = Scope { reports: true, ..scope };
                template(self.report, value, "a text", scope).map(Step::Say)
            }
            "memo" => template(self.report, value, "a text", scope).map(Step::Memo),
            "panic" => template(self.report, value, "a message", scope).map(Step::Panic),
            "sleep" => duration(self.report, value).map(Step::Sleep),
            "list" => {
                if value.get_ref().as_bool() == Some(true) {
                    return Some(Step::List);
                }
                self.report.wrong(value, "true");
                None
            }
            "await" => choice(self.report, value, &["children"]).map(|_| Step::AwaitChildren),
            "send" => self.send(value, scope),
            "report" => self.report_step(value, scope),
            "fail" => self.fail(value, scope),
            "delegate" => self.delegate(value, place).map(Step::Delegate),
            "repeat" => self.repeat(value, place),
            _ => self.for_each(value, place),
        }
    }

    fn scope(&self, place: Place) -> Scope<'r> {
        Scope { each: place.each, ..Scope::vars(&self.names.vars) }
    }

    fn send(&mut self, value: &Value<'_>, scope: Scope<'_>) -> Option<Step> {
        let mut fields = Fields::new(self.report, value, "`send`")?;
        let to = fields.need(self.report, "to").and_then(|value| filled(self.report, value, "an alias or a session's id", scope));
        let message = fields.need(self.report, "message").and_then(|value| template(self.report, value, "a message", scope));
        fields.finish(self.report);
        Some(Step::Send { to: to?, message: message? })
    }

    fn report_step(&mut self, value: &Value<'_>, scope: Scope<'_>) -> Option<Step> {
        let expected = "a text or { text = \"...\", quiet = true }";
        if !value.get_ref().is_table() {
            let text = template(self.report, value, expected, scope)?;
            return Some(Step::Report { text, quiet: false });
        }
        let mut fields = Fields::new(self.report, value, "`report`")?;
        let text = fields.need(self.report, "text").and_then(|value| template(self.report, value, "a text", scope));
        let quiet = fields.take("quiet").map_or(Some(false), |value| self.report.boolean(value));
        fields.finish(self.report);
        Some(Step::Report { text: text?, quiet: quiet? })
    }

    fn fail(&mut self, value: &Value<'_>, scope: Scope<'_>) -> Option<Step> {
        let expected = "a message or { code = \"...\", message = \"...\" }";
        if !value.get_ref().is_table() {
            let message = template(self.report, value, expected, scope)?;
            return Some(Step::Fail { code: None, message });
        }
        let mut fields = Fields::new(self.report, value, "`fail`")?;
        let code = fields.take("code").map(|value| self.error_code(value));
        let message = fields.need(self.report, "message").and_then(|value| template(self.report, value, "a message", scope));
        fields.finish(self.report);
        Some(Step::Fail { code: optional(code)?, message: message? })
    }

    fn error_code(&mut self, value: &Value<'_>) -> Option<String> {
        let expected = "an error code of capitals, digits and `_`, such as \"NO_SOURCE\"";
        let code = self.report.name(value, expected)?;
        let fits =
            code.starts_with(|c: char| c.is_ascii_uppercase()) && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if !fits {
            self.report.wrong(value, expected);
            return None;
        }
        Some(code)
    }

    fn delegate(&mut self, value: &Value<'_>, place: Place) -> Option<Delegate> {
        let scope = self.scope(place);
        let mut fields = Fields::new(self.report, value, "`delegate`")?;
        let agent = fields.need(self.report, "agent").and_then(|value| known_agent(self.report, self.names, value));
        let alias = fields.take("as").map(|value| self.alias(value, place));
        let description = fields.need(self.report, "description").and_then(|value| label(self.report, value, "a description", scope));
        let prompt = fields.need(self.report, "prompt").and_then(|value| template(self.report, value, "a prompt", scope));
        let background = fields.take("background").map_or(Some(true), |value| self.report.boolean(value));
        let provider = fields.take("provider").map_or(Some(Provider::default()), |value| {
            Some(match choice(self.report, value, &["spawn", "fork"])? {
                "fork" => Provider::Fork,
                _ => Provider::Spawn,
            })
        });
        let params = fields.take("params").map(|value| params(self.report, value, scope, 1));
        fields.finish(self.report);
        Some(Delegate {
            agent: agent?,
            alias: optional(alias)?,
            description: description?,
            prompt: prompt?,
            background: background?,
            provider: provider?,
            params: optional(params)?,
        })
    }

    /// Reads an alias. It names one child of its parent for ever: a second delegate that would
    /// surely take it again is a mistake here already, not a failed turn later.
    fn alias(&mut self, value: &Value<'_>, place: Place) -> Option<Template> {
        let alias = label(self.report, value, "an alias", self.scope(place))?;
        let at = value.span().start;
        let found = quoted(alias.source());
        if place.again {
            self.report.add(at, format!("expected no alias inside a `repeat`, found {found}, which names one child"));
            return None;
        }
        if alias.names().any(|(name, _)| varies(name)) {
            return Some(alias);
        }
        if let Some((_, first)) = self.aliases.iter().find(|(known, _)| *known == alias) {
            let Position { line, column } = *first;
            self.report.add(at, format!("expected an alias of its own, found {found} as at {line}:{column}"));
            return None;
        }
        self.aliases.push((alias.clone(), self.report.position(at)));
        Some(alias)
    }

    fn repeat(&mut self, value: &Value<'_>, place: Place) -> Option<Step> {
        let mut fields = Fields::new(self.report, value, "`repeat`")?;
        let times = fields.need(self.report, "times").and_then(|value| self.report.integer(value, 0..=MOST_TIMES));
        let inside = Place { again: place.again || times.is_some_and(|times| times > 1), depth: place.depth + 1, ..place };
        let steps = fields.need(self.report, "steps").and_then(|value| self.steps(value, inside));
        fields.finish(self.report);
        Some(Step::Repeat { times: times?, steps: steps? })
    }

    fn for_each(&mut self, value: &Value<'_>, place: Place) -> Option<Step> {
        let name = "`for_each`";
        let mut fields = Fields::new(self.report, value, name)?;
        let at = value.span().start;
        // A round of the outer one would need a recorded list of its own for the inner one.
        let nested = place.each.is_some();
        if nested {
            let message = "expected no `for_each` inside another, found one";
            self.report.add(at, message);
        }
        let files = fields.take("files");
        let children = fields.take("children");
        let over = match (files, children) {
            (Some(_), None) => Some(Each::File),
            (None, Some(_)) => Some(Each::Child),
            (Some(_), Some(second)) => {
                self.report.add(second.span().start, format!("expected either `files` or `children` in {name}, found both"));
                None
            }
            (None, None) => {
                self.report.add(at, format!("expected the key `files` or `children` in {name}, found neither"));
                None
            }
        };
        let scope = self.scope(place);
        let dir = if children.is_none() { fields.take("dir").map(|value| folder(self.report, value, scope)) } else { None };
        let files = files.map(|value| self.globs(value, scope));
        let children = children.map(|value| choice(self.report, value, &["all"]));
        let inside = Place { each: over.or(place.each), depth: place.depth + 1, ..place };
        let steps = fields.need(self.report, "steps");
        // Without knowing what it goes through, every name inside would be called unknown.
        let steps = over.and(steps).and_then(|value| self.steps(value, inside));
        fields.finish(self.report);
        if nested {
            return None;
        }
        match over? {
            Each::File => Some(Step::ForEachFile { dir: optional(dir)?, files: files??, steps: steps? }),
            Each::Child => {
                children??;
                Some(Step::ForEachChild { steps: steps? })
            }
        }
    }

    fn globs(&mut self, value: &Value<'_>, scope: Scope<'_>) -> Option<Vec<Template>> {
        let expected = "a glob or an array of globs";
        match value.get_ref() {
            DeValue::String(_) => Some(vec![glob(self.report, value, scope)?]),
            DeValue::Array(items) if items.is_empty() => {
                self.report.wrong(value, "at least one glob");
                None
            }
            _ => each(self.report, value, expected, |report, item| glob(report, item, scope)),
        }
    }
}
