//! Playing a program file for a client.

use std::{path::Path, sync::Arc};

use greenroom_session::{store::StoreError, text::label_from};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{AcpError, Options, serve};
use crate::{
    agent::{Guards, Stage, cast},
    program::Program,
    run::RunError,
    runtime::Runtime,
    signals::Signals,
    store_url::StoreUrl,
};

/// Plays a program for a client until the client closes its end, and settles then: every turn under way ends as disposed and is served again by the next start.
///
/// SIGINT, SIGTERM and SIGHUP end it as the client does, with [`RunError::Signalled`]. `cwd` is the absolute folder that roots are shown in that no client has opened.
///
/// ```
/// use std::path::Path;
/// use greenroom::{acp, program::Program};
/// # tokio_test::block_on(async {
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ say = "hello" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n";
/// acp::play(&program, &"memory:".parse()?, Path::new("/stories"), &request[..], tokio::io::sink()).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// [`AcpError::Program`] if the program cannot be played, the store cannot be opened, or a signal came; and as [`serve`].
///
/// # Cancel safety
/// What was accepted stays accepted.
pub async fn play<R, W>(program: &Program, store: &StoreUrl, cwd: &Path, reader: R, writer: W) -> Result<(), AcpError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut signals = Signals::new(true);
    let bindings = program.bind(&[], cwd).map_err(RunError::from)?;
    program.check_globs(&bindings).map_err(RunError::from)?;
    let lookup = |name: &str| bindings.get(name).map(Into::into);
    let mut options = Options::new(&program.run.root);
    options.label = program.run.label.as_ref().map(|label| label_from(&label.render(&lookup)));
    options.program_sha256 = Some(program.sha256.clone());
    options.vars.clone_from(&bindings.values);
    options.cwd = cwd.to_owned();

    let stage = Arc::new(Stage { bindings, base_dir: program.base_dir.clone(), guards: Guards::of(store) });
    let mut builder = cast(program, &program.run.root, &stage, Runtime::builder()).map_err(RunError::from)?;
    builder = builder.max_live(program.run.max_live).max_depth(program.run.max_depth);
    if let Some(limit) = program.run.inbox_limit {
        builder = builder.inbox_limit(limit as u64);
    }
    let url = store.clone();
    let opened = tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| RunError::Store(StoreError::Io(Box::new(error))))?;
    let runtime = builder.start(opened.map_err(RunError::Store)?).await.map_err(RunError::from)?;

    let served = tokio::select! {
        served = serve(&runtime, options, reader, writer) => served,
        signal = signals.next() => Err(RunError::Signalled(signal).into()),
    };
    let served = tokio::select! {
        () = runtime.shutdown() => served,
        // Asked twice: what is under way is left to the next start.
        signal = signals.next() => Err(RunError::Signalled(signal).into()),
    };
    stage.guards.remove();
    served
}
