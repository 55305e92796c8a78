//! The engine: from a program and options to a report.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use greenroom_actors::{Host, Occurrence, host::NewRoot};
use greenroom_session::{
    event::{Body, RootOpened, TurnEnd},
    id::SessionId,
    message::text_of,
    store::{LoadError, Reader, Store, StoreError},
    text::label_from,
};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{News, Observer, Progress, Prompt, RunError, RunOptions, RunReport, Stuck, tally::Tally};
use crate::{
    agent::{Guards, Stage, cast},
    program::{AgentSpec, Bindings, Program},
    runtime::Runtime,
    seeded,
    signals::Signals,
};

/// How long a root that has nothing to do may take to settle.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Characters of the prompt that make the label of a root whose program names none.
const LABEL_CHARS: usize = 60;

/// Plays a program until the root and everything below it has nothing to do.
///
/// # Errors
/// [`RunError`]. A turn that failed is no error but in the report.
///
/// # Cancel safety
/// What was accepted stays accepted; a later run with the same root goes on with it.
pub async fn run(program: &Program, options: &RunOptions, observer: &dyn Observer) -> Result<RunReport, RunError> {
    let url = options.store.clone();
    let store = tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| StoreError::Io(Box::new(error)))??;
    run_over(program, options, store, observer).await
}

/// Plays a program as [`run`] does, over a store that is open. It is closed at the end.
///
/// # Errors
/// [`RunError`], as [`run`].
///
/// # Cancel safety
/// As for [`run`].
pub async fn run_over(program: &Program, options: &RunOptions, store: Arc<dyn Store>, observer: &dyn Observer) -> Result<RunReport, RunError> {
    let started = Instant::now();
    let mut signals = Signals::new(options.heed_signals);
    refuse_seed(program, options)?;
    let known = match &options.root {
        Some(root) => {
            let root = root.clone();
            Some(reading(&store, move |reader| Known::find(reader, &root)).await?)
        }
        None => None,
    };
    let plan = Plan::make(program, options, known)?;
    let stage = Stage { bindings: plan.bindings.clone(), base_dir: program.base_dir.clone(), guards: Guards::of(&options.store) };
    let stage = Arc::new(stage);
    let mut builder = cast(program, &plan.opened.agent, &stage, Runtime::builder())?;
    if let Some(seed) = options.seed {
        builder = builder.seed(seed);
    }
    builder = builder.max_live(program.run.max_live).max_depth(program.run.max_depth);
    if let Some(limit) = program.run.inbox_limit {
        builder = builder.inbox_limit(limit as u64);
    }
    let runtime = builder.start(store.clone()).await?;

    let playing = Play { host: runtime.host(), store, plan: &plan, program, observer };
    let result = tokio::select! {
        result = Box::pin(playing.play()) => result,
        () = timeout(options.timeout) => Err(RunError::TimedOut(options.timeout.unwrap_or_default())),
        signal = signals.next() => {
            observer.observe(News::Ending { signal });
            Err(RunError::Signalled(signal))
        }
    };
    let result = tokio::select! {
        () = runtime.shutdown() => result,
        // Asked twice: what is under way is left to the next run.
        signal = signals.next() => Err(RunError::Signalled(signal)),
    };
    stage.guards.remove();
    let mut report = result?;
    report.wall_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    report.store = options.store.to_string();
    Ok(report)
}

async fn timeout(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

async fn reading<T, E>(store: &Arc<dyn Store>, read: impl FnOnce(&mut dyn Reader) -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    let store = store.clone();
    let read = tokio::task::spawn_blocking(move || read(&mut *store.reader()?)).await;
    read.unwrap_or_else(|error| Err(StoreError::Io(Box::new(error)).into()))
}

fn refuse_seed(program: &Program, options: &RunOptions) -> Result<(), RunError> {
    if options.seed.is_none() {
        return Ok(());
    }
    if let Some((agent, _)) = program.agents.iter().find(|(_, spec)| !matches!(spec, AgentSpec::Script(_))) {
        return Err(RunError::SeedRefused { agent: agent.clone() });
    }
    if seeded::is_possible() { Ok(()) } else { Err(RunError::SeedUnavailable) }
}

/// A root that exists.
struct Known {
    id: SessionId,
    opened: RootOpened,
    has_had_message: bool,
    tally: Tally,
}

impl Known {
    fn find(reader: &mut dyn Reader, root: &SessionId) -> Result<Self, RunError> {
        let Some(header) = reader.header(root)? else {
            return Err(if reader.is_removed(root)? { RunError::Load(LoadError::Removed(root.clone())) } else { RunError::NotFound(root.clone()) });
        };
        if header.parent.is_some() {
            return Err(RunError::NotARoot(root.clone()));
        }
        let first = reader.events(root, 0, 1)?.pop().map(|event| event.body);
        let Some(Body::RootOpened(opened)) = first else { return Err(RunError::NotARoot(root.clone())) };
        let tally = Tally::of(reader, root)?;
        if tally.is_held(root) {
            return Err(RunError::NotActivated(root.clone()));
        }
        let has_had_message = tally.has_had_message(root);
        Ok(Self { id: root.clone(), opened, has_had_message, tally })
    }
}

/// What the run is going to do; everything that can be refused is refused before it.
struct Plan {
    root: Option<SessionId>,
    opened: RootOpened,
    bindings: Bindings,
    prompt: Option<String>,
    changed: Option<String>,
    before: Tally,
}

impl Plan {
    fn make(program: &Program, options: &RunOptions, known: Option<Known>) -> Result<Self, RunError> {
        let bindings = bind(program, options, known.as_ref().map(|known| &known.opened.vars))?;
        let lookup = |name: &str| bindings.get(name).map(Into::into);
        let prompt = match &options.prompt {
            Prompt::Text(text) => Some(text.clone()),
            Prompt::Nothing => None,
            Prompt::FromProgram if known.as_ref().is_some_and(|known| known.has_had_message) => None,
            Prompt::FromProgram => Some(program.run.prompt.as_ref().ok_or(RunError::NoPrompt)?.render(&lookup)),
        };
        if let Some(Known { id, opened, tally, .. }) = known {
            if let Some(asked) = options.seed.filter(|seed| opened.seed != Some(*seed)) {
                return Err(RunError::SeedFixed { stored: opened.seed, asked });
            }
            if !program.agents.contains_key(&opened.agent) {
                return Err(RunError::AgentUnknown { root: id, agent: opened.agent, file: program.file_name.clone() });
            }
            let changed = opened.program_sha256.clone().filter(|digest| *digest != program.sha256);
            return Ok(Self { root: Some(id), opened, bindings, prompt, changed, before: tally });
        }
        let label = match (&program.run.label, &prompt) {
            (Some(label), _) => label_from(&label.render(&lookup)),
            (None, Some(prompt)) => label_from(&prompt.chars().take(LABEL_CHARS).collect::<String>()),
            (None, None) => String::new(),
        };
        let opened = RootOpened {
            label: if label.is_empty() { program.run.root.clone() } else { label },
            agent: program.run.root.clone(),
            program_sha256: Some(program.sha256.clone()),
            vars: bindings.values.clone(),
            seed: options.seed,
            params: None,
            model: None,
        };
        Ok(Self { root: None, opened, bindings, prompt, changed: None, before: Tally::default() })
    }
}

/// Binds the variables. A root keeps those that it was opened with; one that is new to the program has the program's value.
fn bind(program: &Program, options: &RunOptions, stored: Option<&BTreeMap<String, String>>) -> Result<Bindings, RunError> {
    let mut bindings = program.bind(&options.sets, &options.cwd)?;
    for (name, value) in &mut bindings.values {
        let Some(stored) = stored.and_then(|stored| stored.get(name)) else { continue };
        if value != stored && options.sets.iter().any(|(set, _)| set == name) {
            return Err(RunError::VarFixed { name: name.clone(), stored: stored.clone(), asked: value.clone() });
        }
        value.clone_from(stored);
    }
    program.check_globs(&bindings)?;
    Ok(bindings)
}

/// One play, from the opening of the root to its settling.
struct Play<'a> {
    host: Host,
    store: Arc<dyn Store>,
    plan: &'a Plan,
    program: &'a Program,
    observer: &'a dyn Observer,
}

impl Play<'_> {
    async fn play(&self) -> Result<RunReport, RunError> {
        let mut occurrences = self.host.subscribe();
        let root = match &self.plan.root {
            Some(root) => self.host.resume(root).await?,
            None => self.host.root(NewRoot { id: None, opened: self.plan.opened.clone(), cwd: None }).await?,
        };
        let id = root.id().clone();
        self.observer.observe(News::Opened { root: &id, resumed: self.plan.root.is_some() });
        if let Some(digest) = &self.plan.changed {
            self.observer.observe(News::ProgramChanged { opened_with: digest });
        }
        self.host.recover(Some(&id)).await?;
        if let Some(prompt) = &self.plan.prompt {
            self.host.send(&id, prompt, None).await.map_err(RunError::Prompt)?;
        }

        let mut watch = Watch::new(self.observer, &self.host, self.plan.before.children());
        let quiescent = self.host.quiescent(&id);
        tokio::pin!(quiescent);
        let stuck = loop {
            tokio::select! {
                stuck = &mut quiescent => break stuck?,
                occurrence = occurrences.recv() => match occurrence {
                    Ok(occurrence) => watch.take(&occurrence),
                    Err(RecvError::Lagged(_)) => {}
                    // The runtime is ending; what is left is told by the store.
                    Err(RecvError::Closed) => break (&mut quiescent).await?,
                },
            }
        };
        drop(root);
        // Let go of, a root that has nothing to do settles; the run should not take that from it by ending first.
        drop(tokio::time::timeout(SETTLE_PATIENCE, self.host.quiescent(&id)).await);
        loop {
            match occurrences.try_recv() {
                Ok(occurrence) => watch.take(&occurrence),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        self.report(&id, watch.stuck(stuck)).await
    }

    async fn report(&self, id: &SessionId, stuck: Vec<Stuck>) -> Result<RunReport, RunError> {
        let root = id.clone();
        let (fold, after) = reading(&self.store, move |reader| Ok::<_, LoadError>((reader.folded(&root)?, Tally::of(reader, &root)?))).await?;
        let added = after.since(&self.plan.before, id);
        tracing::debug!(root = %id, program = %self.program.file_name, "a run has come to its end");
        Ok(RunReport {
            root: id.clone(),
            answer: fold.last_said().map(|message| text_of(&message.content)),
            turns: added.turns,
            messages: added.messages,
            children: added.children,
            failed: added.failed,
            wall_ms: 0,
            store: String::new(),
            outcome: fold.outcome().cloned(),
            stuck,
        })
    }
}

/// Counts what happens and passes it on.
struct Watch<'a> {
    observer: &'a dyn Observer,
    host: &'a Host,
    progress: Progress,
    refused: HashMap<SessionId, (&'static str, String)>,
}

impl<'a> Watch<'a> {
    fn new(observer: &'a dyn Observer, host: &'a Host, children: u64) -> Self {
        Self { observer, host, progress: Progress { children, ..Progress::default() }, refused: HashMap::new() }
    }

    fn take(&mut self, occurrence: &Occurrence) {
        match occurrence {
            Occurrence::Created { .. } => self.progress.children += 1,
            Occurrence::TurnEnded { reason, .. } => {
                self.progress.turns += 1;
                self.progress.failed += u64::from(matches!(reason, TurnEnd::Error { .. } | TurnEnd::Aborted { .. }));
            }
            Occurrence::NotActivated { session, code, reason } => {
                self.refused.insert(session.clone(), (code, reason.clone()));
            }
            _ => {}
        }
        self.progress.live = self.host.live_count() as u64;
        self.observer.observe(News::Happened { occurrence, progress: self.progress });
    }

    fn stuck(&mut self, sessions: Vec<SessionId>) -> Vec<Stuck> {
        let refused = &mut self.refused;
        let stuck = sessions.into_iter().map(|session| {
            let (code, reason) = refused.remove(&session).unwrap_or(("NOT_RESUMABLE", "it has work and does not get on".to_owned()));
            Stuck { session, code, reason }
        });
        stuck.collect()
    }
}
