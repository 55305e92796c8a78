//! Scripted agents: a list of steps per message.

use std::{borrow::Cow, future::Future, pin::Pin, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture};
use greenroom_actors::{
    Behavior, Turn, TurnEnd, TurnError,
    catalog::Entry,
    error::{DeliverError, StartError},
};
use greenroom_session::{
    descriptor::Mode,
    id::SessionId,
    text::{Escaped, label_from},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Stage,
    command::{child, param},
    reports::{self, Failure},
    voice::Voice,
};
use crate::program::{self, Delegate, Provider, Step, Template, ValueTemplate, list_files};

/// Plays the list of steps that the rank of a message chooses.
///
/// After the last list it says "done". A turn that notes opened plays nothing.
///
/// Every step is a step boundary, at which notes join; so is every step inside of a `repeat`. A `for_each` is one step with all that is in it. The files or
/// children that it goes through are recorded before its first round, and a later attempt reads them from the log. Within a `for_each` a delegate or a
/// message that is refused costs its round and not the turn: it is noted in the log and in the rows of `{reports}` of the same turn.
///
/// ```
/// use std::path::Path;
/// use greenroom::{program::Program, run::{News, Prompt, RunOptions, run}};
/// # tokio_test::block_on(async {
/// let text = r#"
/// run = { root = "clerk", prompt = "Begin." }
/// agents.clerk = { behavior = "script", turns = [[{ say = "one" }, { repeat = { times = 2, steps = [{ say = "and again" }] } }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/"))?;
/// let report = run(&program, &RunOptions::new("memory:".parse()?, "/"), &|_: News<'_>| {}).await?;
/// assert_eq!((report.turns, report.answer.as_deref()), (1, Some("and again")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct ScriptAgent {
    spec: Arc<program::ScriptAgent>,
    stage: Arc<Stage>,
}

impl ScriptAgent {
    /// Makes one from its part of a program.
    pub fn new(spec: Arc<program::ScriptAgent>, stage: Arc<Stage>) -> Self {
        Self { spec, stage }
    }
}

impl Behavior for ScriptAgent {
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        Box::pin(async move {
            let Some(rank) = turn.rank() else { return Ok(TurnEnd::Completed) };
            let voice = Voice::new(&turn);
            let mut player = Player { turn: &turn, stage: &self.stage, voice, failures: Vec::new() };
            match self.spec.turns.get(rank) {
                Some(steps) => player.steps(steps, "", None).await?,
                None => player.voice.say(&turn, "done".to_owned())?,
            }
            Ok(TurnEnd::Completed)
        })
    }
}

/// What one round of a `for_each` is about. The lists are recorded in this form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Item {
    Child {
        child: SessionId,
        label: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        params: Option<Value>,
    },
    File(String),
}

/// Plays one turn.
struct Player<'a> {
    turn: &'a Turn,
    stage: &'a Stage,
    voice: Voice,
    failures: Vec<Failure>,
}

type Played<'f> = Pin<Box<dyn Future<Output = Result<(), TurnError>> + Send + 'f>>;

impl Player<'_> {
    /// Plays steps in order. `place` names them within the list; `item` is there within a `for_each`.
    fn steps<'f>(&'f mut self, steps: &'f [Step], place: &'f str, item: Option<&'f Item>) -> Played<'f> {
        Box::pin(async move {
            for (index, step) in steps.iter().enumerate() {
                self.check()?;
                let place = format!("{place}{index}");
                if let Step::Repeat { times, steps } = step {
                    for round in 0..*times {
                        self.steps(steps, &format!("{place}.{round}."), item).await?;
                    }
                } else {
                    if item.is_none() {
                        self.turn.step().await?;
                    }
                    self.step(step, &place, item).await?;
                }
            }
            Ok(())
        })
    }

    fn check(&self) -> Result<(), TurnError> {
        if self.turn.cancelled().is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    async fn step(&mut self, step: &Step, place: &str, item: Option<&Item>) -> Result<(), TurnError> {
        let turn = self.turn;
        match step {
            Step::Say(text) => {
                let wanted = text.names().any(|(name, _)| name == "reports");
                let reports = if wanted { Some(reports::table(turn, &self.failures).await?) } else { None };
                let text = text.render(&|name| match (name, &reports) {
                    ("reports", Some(reports)) => Some(Cow::Borrowed(reports.as_str())),
                    _ => self.value(name, item),
                });
                self.voice.say(turn, text)
            }
            Step::Memo(text) => turn.memo(self.render(text, item)),
            Step::Delegate(delegate) => {
                let missed = self.delegate(delegate, item).await?;
                self.failures.extend(missed);
                Ok(())
            }
            Step::Send { to, message } => {
                let missed = self.send(to, message, item).await?;
                self.failures.extend(missed);
                Ok(())
            }
            Step::List => turn.memo(listing(turn.list_agents().await?)),
            Step::Report { text, quiet } => turn.report(self.render(text, item), *quiet).await.map(|_| ()).map_err(Into::into),
            Step::Sleep(duration) => {
                tokio::select! {
                    () = tokio::time::sleep(*duration) => Ok(()),
                    () = turn.cancelled().cancelled_owned() => Err(cancelled()),
                }
            }
            Step::Fail { code, message } => Err(TurnError::new(code.as_deref().unwrap_or("SCRIPT_FAILED"), self.render(message, item))),
            // A panic that was asked for: the hook, which would print it, is left out.
            Step::Panic(message) => std::panic::resume_unwind(Box::new(self.render(message, item))),
            Step::AwaitChildren => turn.await_children().await,
            // Its rounds are played by the caller, as steps of their own.
            Step::Repeat { .. } => Ok(()),
            Step::ForEachFile { dir, files, steps } => {
                let items = match self.recorded(place)? {
                    Some(items) => items,
                    None => self.files(place, dir.as_ref(), files).await?,
                };
                self.rounds(&items, steps, place).await
            }
            Step::ForEachChild { steps } => {
                let items = match self.recorded(place)? {
                    Some(items) => items,
                    None => self.children(place, steps).await?,
                };
                self.rounds(&items, steps, place).await
            }
        }
    }

    async fn rounds(&mut self, items: &[Item], steps: &[Step], place: &str) -> Result<(), TurnError> {
        if steps.iter().all(is_apart) {
            return self.rounds_at_once(items, steps).await;
        }
        for (round, item) in items.iter().enumerate() {
            self.steps(steps, &format!("{place}.{round}."), Some(item)).await?;
        }
        Ok(())
    }

    /// Plays rounds that cannot meet, many at a time: each waits for the disk, and a disk takes many at once.
    async fn rounds_at_once(&mut self, items: &[Item], steps: &[Step]) -> Result<(), TurnError> {
        let rounds: Vec<_> = items.iter().map(|item| self.round_apart(item, steps).boxed()).collect();
        let failures: Vec<Vec<Failure>> = futures::stream::iter(rounds).buffered(AT_ONCE).try_collect().await?;
        self.failures.extend(failures.into_iter().flatten());
        Ok(())
    }

    async fn round_apart(&self, item: &Item, steps: &[Step]) -> Result<Vec<Failure>, TurnError> {
        let mut failures = Vec::new();
        for step in steps {
            self.check()?;
            match step {
                Step::Delegate(delegate) => failures.extend(self.delegate(delegate, Some(item)).await?),
                Step::Send { to, message } => failures.extend(self.send(to, message, Some(item)).await?),
                Step::Memo(text) => self.turn.memo(self.render(text, Some(item)))?,
                _ => {}
            }
        }
        Ok(failures)
    }

    fn recorded(&self, place: &str) -> Result<Option<Vec<Item>>, TurnError> {
        let Some(text) = self.turn.recorded(&key(place)) else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| TurnError::new("RECORD_INVALID", format!("the recorded list cannot be read: {error}")))
    }

    async fn record(&self, place: &str, items: &[Item]) -> Result<(), TurnError> {
        let text = serde_json::to_string(items).map_err(|error| TurnError::new("RECORD_INVALID", error.to_string()))?;
        self.turn.record(key(place), text).await
    }

    async fn files(&self, place: &str, dir: Option<&Template>, globs: &[Template]) -> Result<Vec<Item>, TurnError> {
        let dir = dir.map_or_else(|| self.stage.base_dir.clone(), |dir| self.stage.base_dir.join(self.render(dir, None)));
        let globs: Vec<String> = globs.iter().map(|glob| glob.render(&|name| self.stage.bindings.glob_value(name))).collect();
        let listed = tokio::task::spawn_blocking(move || list_files(&dir, &globs)).await;
        let listing =
            listed.map_err(|error| TurnError::new("FILES_UNREADABLE", error.to_string()))?.map_err(|error| TurnError::new(error.code(), error.to_string()))?;
        if listing.not_utf8 > 0 {
            self.turn.memo(format!("{} files were left out: their names are not UTF-8", listing.not_utf8))?;
        }
        if !listing.unreadable.is_empty() {
            self.turn.memo(left_out(&listing.unreadable))?;
        }
        let items: Vec<Item> = listing.files.into_iter().map(Item::File).collect();
        self.record(place, &items).await?;
        Ok(items)
    }

    async fn children(&self, place: &str, steps: &[Step]) -> Result<Vec<Item>, TurnError> {
        let (ids, labels): (Vec<SessionId>, Vec<String>) = self
            .turn
            .list_agents()
            .await?
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Child(listed) if listed.mode == Mode::Continuable => Some((listed.id, listed.label.unwrap_or_default())),
                _ => None,
            })
            .unzip();
        let params = if uses_params(steps) { self.turn.params_of(&ids).await? } else { vec![None; ids.len()] };
        let items: Vec<Item> = ids.into_iter().zip(labels).zip(params).map(|((child, label), params)| Item::Child { child, label, params }).collect();
        self.record(place, &items).await?;
        Ok(items)
    }

    /// Starts a child. Within a `for_each` a refusal is returned and not an error.
    async fn delegate(&self, wanted: &Delegate, item: Option<&Item>) -> Result<Option<Failure>, TurnError> {
        let label = label_from(&self.render(&wanted.description, item));
        let mut delegate = greenroom_actors::Delegate::new(&wanted.agent, &label, self.render(&wanted.prompt, item));
        delegate.alias = wanted.alias.as_ref().map(|alias| label_from(&self.render(alias, item)));
        delegate.params = wanted.params.as_ref().map(|params| params.render(&|name| self.value(name, item)));
        if wanted.provider == Provider::Fork {
            "fork".clone_into(&mut delegate.provider);
        }
        let done = if wanted.background {
            match self.turn.delegate(delegate).await {
                Ok(_) => Ok(()),
                Err(StartError::Draining) => return self.wait_for_the_end().await,
                Err(error @ (StartError::Unauthorized(_) | StartError::Read(_) | StartError::Write(_))) => return Err(error.into()),
                Err(error) => Err(error.into()),
            }
        } else {
            match self.turn.delegate_and_wait(delegate).await {
                Ok(answer) => self.turn.memo(format!("{label}: {answer}")),
                Err(error) if error.code == "DRAINING" => return self.wait_for_the_end().await,
                Err(error) => Err(error),
            }
        };
        match done {
            Err(error) if item.is_some() => self.missed(None, label, error).map(Some),
            done => done.map(|()| None),
        }
    }

    /// Sends a child its next message. Within a `for_each` a refusal is returned and not an error.
    async fn send(&self, to: &Template, message: &Template, item: Option<&Item>) -> Result<Option<Failure>, TurnError> {
        let to = self.render(to, item);
        let child = match item {
            Some(Item::Child { child, .. }) if child.as_str() == to => child.clone(),
            _ => child(self.turn, &to).await?,
        };
        match self.turn.send_message(&child, self.render(message, item)).await {
            Ok(_) => Ok(None),
            Err(error @ (DeliverError::Busy { .. } | DeliverError::NotResumable { .. } | DeliverError::Message(_))) if item.is_some() => {
                self.missed(Some(child), to, error.into()).map(Some)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that a round did not do what it was for.
    fn missed(&self, child: Option<SessionId>, label: String, error: TurnError) -> Result<Failure, TurnError> {
        self.check()?;
        self.turn.memo(format!("{label} failed: {error}"))?;
        Ok(Failure { child, label, code: error.code })
    }

    /// Waits to be cut off by a shutdown that has begun, so that the turn ends as disposed and is served again.
    async fn wait_for_the_end<T>(&self) -> Result<T, TurnError> {
        self.turn.cancelled().cancelled().await;
        Err(cancelled())
    }

    fn render(&self, template: &Template, item: Option<&Item>) -> String {
        template.render(&|name| self.value(name, item))
    }

    fn value<'v>(&'v self, name: &str, item: Option<&'v Item>) -> Option<Cow<'v, str>> {
        match (name, item) {
            ("file", Some(Item::File(file))) => Some(Cow::Borrowed(file)),
            ("child", Some(Item::Child { child, .. })) => Some(Cow::Borrowed(child.as_str())),
            ("label", Some(Item::Child { label, .. })) => Some(Cow::Borrowed(label)),
            (name, Some(Item::Child { params, .. })) if name.starts_with("params.") => {
                param(params.as_ref(), name.strip_prefix("params.").unwrap_or(name)).map(Cow::Owned)
            }
            (name, _) => self.stage.bindings.get(name).map(Cow::Borrowed),
        }
    }
}

/// Rounds of a `for_each` that may be under way at once.
const AT_ONCE: usize = 64;

/// Tells whether a step does the same in whatever order rounds are played: it starts a child of its own, or writes to the round's child.
///
/// Keys of effects do not tell the order either: those that could be mistaken for one another are of the same kind, to the same target, with the same content.
fn is_apart(step: &Step) -> bool {
    match step {
        Step::Delegate(delegate) => delegate.background,
        Step::Send { to, .. } => to.source() == "{child}",
        Step::Memo(_) => true,
        _ => false,
    }
}

/// Folders that a memo names.
const NAMED: usize = 10;

/// Says which folders a list lacks.
fn left_out(folders: &[String]) -> String {
    let named = folders.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if folders.len() > NAMED { format!(" and {} more", folders.len() - NAMED) } else { String::new() };
    format!("left out, because they cannot be read: {named}{more}")
}

/// Names the recorded list of a step.
fn key(place: &str) -> String {
    format!("for_each {place}")
}

fn cancelled() -> TurnError {
    TurnError::new("CANCELLED", "the turn was cancelled")
}

/// Writes a listing as the tool for it does.
fn listing(entries: Vec<Entry>) -> String {
    let lines: Vec<String> = entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Root(listed) | Entry::Child(listed) => (listed.mode == Mode::Continuable).then(|| {
                let label = listed.label.unwrap_or_default();
                format!("{} [{}] — {}", Escaped(listed.id.as_str()), listed.status.as_str(), Escaped(&label))
            }),
            Entry::Diagnostic { id, reason } => Some(format!("{} [diagnostic: {}]", Escaped(id.as_str()), reason.as_str())),
        })
        .collect();
    if lines.is_empty() { "(no subagents)".to_owned() } else { lines.join("\n") }
}

/// Tells whether any step needs what children were given, which costs a read per child.
fn uses_params(steps: &[Step]) -> bool {
    let named = |template: &Template| template.names().any(|(name, _)| name.starts_with("params."));
    steps.iter().any(|step| match step {
        Step::Say(text) | Step::Memo(text) | Step::Report { text, .. } | Step::Fail { message: text, .. } | Step::Panic(text) => named(text),
        Step::Send { to, message } => named(to) || named(message),
        Step::Delegate(delegate) => {
            [Some(&delegate.description), Some(&delegate.prompt), delegate.alias.as_ref()].into_iter().flatten().any(named)
                || delegate.params.as_ref().is_some_and(|params| value_uses_params(params, &named))
        }
        Step::Repeat { steps, .. } | Step::ForEachFile { steps, .. } | Step::ForEachChild { steps } => uses_params(steps),
        Step::List | Step::Sleep(_) | Step::AwaitChildren => false,
    })
}

fn value_uses_params(value: &ValueTemplate, named: &impl Fn(&Template) -> bool) -> bool {
    match value {
        ValueTemplate::Fixed(_) => false,
        ValueTemplate::Text(text) => named(text),
        ValueTemplate::List(items) => items.iter().any(|item| value_uses_params(item, named)),
        ValueTemplate::Table(entries) => entries.values().any(|value| value_uses_params(value, named)),
    }
}
