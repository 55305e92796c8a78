//! The main job over a thousand files, beside `xargs -P` running the very same commands.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use greenroom::program::{AgentSpec, Program};

use super::{
    measure::Outcome,
    table::{Row, Target},
};

/// The commands that run at once, as in the program file.
const AT_ONCE: &str = "16";

/// One review of `1,000 * scale` small files.
pub(crate) fn review(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of files")]
    let count = (1_000.0 * scale).max(10.0) as usize;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/review.toml");
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("files");
    fs::create_dir(&files)?;
    for n in 0..count {
        let mut text = String::new();
        for line in 0..(5 + n % 50) {
            writeln!(text, "line {line} of file {n}: actor log turn inbox {}", "epoch ".repeat(line % 9))?;
        }
        fs::write(files.join(format!("file-{n:04}.txt")), text)?;
    }
    let script = folder.path().join("measure.sh");
    fs::write(&script, command_of(&program)?)?;

    // In alternation, so that both meet the same machine.
    let (mut floor, mut ours) = (Duration::MAX, Duration::MAX);
    let mut said = String::new();
    for round in 0..2 {
        floor = floor.min(bare(&files, &script)?);
        let store = format!("sqlite:{}", folder.path().join(format!("{round}.db")).display());
        let began = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_greenroom"))
            .args(["--store", &store, "run"])
            .arg(&program)
            .arg("--set")
            .arg(format!("dir={}", files.display()))
            .output()?;
        ours = ours.min(began.elapsed());
        let rows = String::from_utf8_lossy(&output.stdout).lines().count();
        if !output.status.success() || rows != count {
            return Err(format!("{} rows of {count}: {}", rows, String::from_utf8_lossy(&output.stderr)).into());
        }
        said.clear();
        said.push_str(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default());
    }
    Ok(vec![Row {
        what: format!("review of {count} files, {} commands", 2 * count),
        ours: format!("{:.1} s", ours.as_secs_f64()),
        floor: format!("{:.1} s", floor.as_secs_f64()),
        ratio: ours.as_secs_f64() / floor.as_secs_f64(),
        target: Target::AtMost(3.0),
        note: said,
    }])
}

/// Runs both questions' commands over all files with `xargs`.
fn bare(files: &Path, script: &Path) -> Outcome<Duration> {
    let began = Instant::now();
    for question in ["How long is it, and which word is the most frequent?", "Which is its longest line?"] {
        let line = format!("ls {0} | sed 's|^|{0}/|' | xargs -P {AT_ONCE} -I{{}} env FILE={{}} sh {1}", files.display(), script.display());
        let status = Command::new("sh").args(["-c", &line]).env("LC_ALL", "C").env("GREENROOM_MESSAGE", question).stdout(Stdio::null()).status()?;
        if !status.success() {
            return Err("xargs failed".into());
        }
    }
    Ok(began.elapsed())
}

/// Returns the shell text that the program's children run.
fn command_of(program: &Path) -> Outcome<String> {
    let program = Program::load(program)?;
    let Some(AgentSpec::Command(agent)) = program.agents.get("measure") else { return Err("the review has no command".into()) };
    let script = agent.command.last().ok_or("the command is empty")?;
    Ok(script.render(&|_| None))
}
