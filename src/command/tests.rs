//! Commands run for real. Whether a process died is polled for, with a bound.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::ranked;
use super::run::{run_held, run_waiting};
use super::{CommandError, CommandOutput, CommandSpec, run};

/// Long enough that only a fault reaches it.
const BOUND: Duration = Duration::from_secs(30);

/// A folder of its own for each test, with the lock in a folder that does not exist yet.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Arc<Self> {
        Arc::new(Self { folder: TempDir::new().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lock(&self) -> PathBuf {
        self.path("locks/one")
    }

    fn spec(&self, argv: &[&str]) -> CommandSpec {
        CommandSpec::new(argv.iter().copied(), self.folder.path(), BOUND)
    }

    fn shell(&self, script: &str) -> CommandSpec {
        self.spec(&["sh", "-c", script])
    }

    async fn run(&self, spec: &CommandSpec, input: &[u8]) -> Result<CommandOutput, CommandError> {
        run(spec, input, &self.lock(), CancellationToken::new()).await
    }

    async fn stdout(&self, spec: &CommandSpec) -> String {
        String::from_utf8(self.run(spec, b"").await.unwrap().stdout).unwrap()
    }

    fn lock_is_free(&self) -> bool {
        match File::open(self.lock()) {
            Ok(file) => file.try_lock().is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Waits, because a program that another test is just starting holds copies of all
    /// descriptors until its `exec`.
    async fn lock_gets_free(&self) {
        until("the lock is free", || self.lock_is_free()).await;
    }

    /// Waits until a command has written a process id into a file.
    async fn pid(&self, name: &str) -> Pid {
        let mut found = None;
        until("a process id is written", || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            // Without its newline it may be half a number.
            found = text.ends_with('\n').then(|| parse_pid(&text));
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

fn parse_pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process lives. One that died and was not reaped by its adoptive parent does not.
fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.contains(") Z ")
}

async fn dies(pid: Pid) {
    until("the process dies", || !lives(pid)).await;
}

fn failed(result: Result<CommandOutput, CommandError>, code: &str) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    error.to_string()
}

#[tokio::test]
async fn what_a_stopped_runtime_has_left_is_ended_for_whoever_has_overtaken_it() {
    let stage = Stage::new();
    let lock = |epoch: u64| stage.path(&format!("locks/desk.{epoch}.lock"));
    let take = async |epoch| {
        let bounds = ranked::Bounds { wait: BOUND, evict: Duration::from_millis(20) };
        ranked::acquire::<CommandError, _>(&lock(epoch), bounds, &CancellationToken::new(), || async { Ok(()) }).await.unwrap()
    };
    // Nobody drives this run on: to everybody else its runtime is one that was stopped.
    let old = stage.shell("echo $$ >leader; sleep 600 & echo $! >child; wait");
    let mut stopped = Box::pin(run_held(&old, b"old", take(1).await, CancellationToken::new()));
    let (leader, child) = tokio::select! {
        done = &mut stopped => panic!("{done:?}"),
        pids = async { (stage.pid("leader").await, stage.pid("child").await) } => pids,
    };
    let done = run_held(&stage.shell("cat"), b"new", take(2).await, CancellationToken::new()).await.unwrap();
    assert_eq!(done.stdout, b"new");
    for pid in [leader, child] {
        dies(pid).await;
    }
    // What the old one does late touches nothing of the new one.
    let third = stage.shell("echo $$ >third; cat; sleep 600");
    let mut third = Box::pin(run_held(&third, b"third", take(2).await, CancellationToken::new()));
    let third_pid = tokio::select! {
        done = &mut third => panic!("{done:?}"),
        pid = stage.pid("third") => pid,
    };
    assert!(stopped.await.is_err());
    assert!(lives(third_pid) && lock(2).exists() && !lock(1).exists());
    drop(third);
    dies(third_pid).await;
}

#[tokio::test]
async fn a_command_reads_its_request_and_answers() {
    let stage = Stage::new();
    let spec = stage.shell("cat; echo noted >&2");
    let output = stage.run(&spec, b"hello \xff").await.unwrap();
    let expected = CommandOutput { stdout: b"hello \xff".to_vec(), stderr: "noted\n".to_owned() };
    assert_eq!(output, expected);
}

#[tokio::test]
async fn the_lock_file_is_private_and_goes_with_the_run() {
    let stage = Stage::new();
    let spec = stage.shell("wc -c; ls -ld locks locks/one | cut -c 1-10");
    for request in [&b"a longer request"[..], b"short"] {
        let output = stage.run(&spec, request).await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), [&*request.len().to_string(), "drwx------", "-rw-------"]);
        assert!(!stage.lock().exists());
    }
}

#[tokio::test]
async fn a_lock_that_is_a_link_or_a_pipe_is_neither_written_through_nor_waited_for() {
    let stage = Stage::new();
    fs::create_dir(stage.path("locks")).unwrap();
    fs::write(stage.path("precious"), "untouched").unwrap();
    std::os::unix::fs::symlink(stage.path("precious"), stage.lock()).unwrap();
    failed(stage.run(&stage.spec(&["true"]), b"").await, "COMMAND_IO");
    assert_eq!(fs::read_to_string(stage.path("precious")).unwrap(), "untouched");
    fs::remove_file(stage.lock()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, stage.lock(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    failed(stage.run(&stage.spec(&["true"]), b"").await, "COMMAND_IO");
}

#[tokio::test]
async fn a_run_that_fails_takes_its_lock_file_along_too() {
    let stage = Stage::new();
    failed(stage.run(&stage.shell("exit 3"), b"").await, "COMMAND_FAILED");
    assert!(!stage.lock().exists());
    failed(stage.run(&stage.spec(&["no-such-program"]), b"").await, "COMMAND_MISSING");
    assert!(!stage.lock().exists());
    let mut slow = stage.shell("sleep 1000 & wait");
    slow.timeout = Duration::from_millis(100);
    failed(stage.run(&slow, b"").await, "COMMAND_TIMEOUT");
    assert!(!stage.lock().exists());
}

#[tokio::test]
async fn a_child_that_left_with_the_lock_is_killed_and_does_not_keep_the_next_run_out() {
    let stage = Stage::new();
    let spec = stage.shell(
        "exec 3<&0; setsid sh -c 'echo $$ >pid; exec sleep 1000' <&3 >/dev/null 2>&1 &
         until [ -s pid ]; do :; done; echo done",
    );
    assert_eq!(stage.stdout(&spec).await, "done\n");
    assert!(!stage.lock().exists(), "nothing holds the lock any more");
    let escaped = stage.pid("pid").await;
    dies(escaped).await;
    let next = stage.spec(&["echo", "mine"]);
    let done = run_waiting(&next, b"", &stage.lock(), CancellationToken::new(), Duration::from_millis(20)).await;
    assert_eq!(done.unwrap().stdout, b"mine\n");
}

#[tokio::test]
async fn a_command_runs_in_its_folder() {
    let stage = Stage::new();
    let folder = stage.folder.path().canonicalize().unwrap();
    let stdout = stage.stdout(&stage.shell("pwd -P")).await;
    assert_eq!(stdout.trim_end(), folder.to_str().unwrap());
}

#[tokio::test]
async fn a_command_sees_only_the_named_environment() {
    let stage = Stage::new();
    let always = ["PATH", "HOME", "LANG"];
    let (passed, value) = env::vars().find(|(name, value)| !always.contains(&name.as_str()) && !value.contains('\n')).unwrap();
    let mut spec = stage.spec(&["env"]);
    spec.env_pass = vec![passed.clone(), "GREENROOM_NOT_SET".to_owned()];
    spec.env.insert("HOME".to_owned(), "/nowhere".to_owned());
    spec.env.insert("SET".to_owned(), "a b=c".to_owned());

    let mut expected = BTreeSet::from([format!("{passed}={value}"), "HOME=/nowhere".to_owned(), "SET=a b=c".to_owned()]);
    for name in ["PATH", "LANG"] {
        expected.extend(env::var(name).map(|value| format!("{name}={value}")));
    }
    let stdout = stage.stdout(&spec).await;
    let seen: BTreeSet<String> = stdout.lines().map(str::to_owned).collect();
    assert_eq!(seen, expected);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_inherits_no_other_descriptor() {
    let stage = Stage::new();
    let script = "ls /proc/$$/fd";
    // Whoever started the tests may have left descriptors open; every program inherits those.
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    let expected = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(stage.stdout(&stage.shell(script)).await, expected);
}

#[tokio::test]
async fn a_large_request_is_read_or_ignored() {
    let stage = Stage::new();
    let request = vec![b'x'; 16 * 1024 * 1024];
    let output = stage.run(&stage.spec(&["true"]), &request).await.unwrap();
    assert_eq!(output.stdout, b"");
    let output = stage.run(&stage.spec(&["wc", "-c"]), &request).await.unwrap();
    assert_eq!(output.stdout.trim_ascii(), b"16777216");
}

#[tokio::test]
async fn too_much_output_fails_the_run() {
    let stage = Stage::new();
    let flood = stage.shell("head -c 100000000 /dev/zero");
    let message = failed(stage.run(&flood, b"").await, "COMMAND_OUTPUT");
    let expected = "the command wrote more than 4194304 bytes to its standard output";
    assert_eq!(message, expected);

    let mut five = stage.spec(&["printf", "12345"]);
    five.max_stdout_bytes = 5;
    assert_eq!(stage.stdout(&five).await, "12345");
    five.max_stdout_bytes = 4;
    failed(stage.run(&five, b"").await, "COMMAND_OUTPUT");
}

#[tokio::test]
async fn any_amount_of_standard_error_is_survived() {
    let stage = Stage::new();
    let spec = stage.shell("head -c 100000000 /dev/zero | tr '\\0' x >&2; echo end >&2; echo fine");
    let output = stage.run(&spec, b"").await.unwrap();
    assert_eq!(output.stdout, b"fine\n");
    assert_eq!(output.stderr.len(), 4 * 1024 + 3);
    assert!(output.stderr.ends_with("xxend\n"));
}

#[tokio::test]
async fn a_failure_carries_status_and_standard_error() {
    let stage = Stage::new();
    let spec = stage.shell("printf 'no such \\033[2Jcity\\n' >&2; exit 7");
    let message = failed(stage.run(&spec, b"").await, "COMMAND_FAILED");
    let expected = "the command failed with exit status: 7: no such \\u{1b}[2Jcity";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn death_by_a_signal_is_a_failure() {
    let stage = Stage::new();
    for (script, signal) in [("kill -s TERM $$", 15), ("kill -s KILL 0", 9)] {
        match stage.run(&stage.shell(script), b"").await {
            Err(CommandError::Failed { status, .. }) => assert_eq!(status.signal(), Some(signal)),
            other => panic!("{other:?}"),
        }
        stage.lock_gets_free().await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_signals_its_group_keeps_its_guard() {
    let stage = Stage::new();
    // The guard needs a moment to be ready, which shows in the signals it ignores.
    let spec = stage.shell(
        "read -r _ _ _ _ group _ </proc/$$/stat
         until grep -q 'SigIgn:.*386a07' /proc/$group/status; do :; done
         trap '' TERM; kill -s TERM 0; echo survived; grep State /proc/$group/status",
    );
    let stdout = stage.stdout(&spec).await;
    assert!(stdout.starts_with("survived\nState:\tS"), "{stdout}");
}

#[tokio::test]
async fn a_command_that_ignores_signals_is_stopped_in_time() {
    let stage = Stage::new();
    let mut spec = stage.shell("trap '' TERM INT HUP; echo $$ >pid; echo slow >&2; sleep 1000 & wait");
    spec.timeout = Duration::from_millis(300);
    let message = failed(stage.run(&spec, b"").await, "COMMAND_TIMEOUT");
    assert_eq!(message, "the command was still running after 300ms: slow");
    let pid = stage.pid("pid").await;
    assert!(!lives(pid));
    stage.lock_gets_free().await;
}

#[tokio::test]
async fn children_left_behind_are_killed_and_hold_up_nothing() {
    let stage = Stage::new();
    let spec = stage.shell("sleep 1000 & echo $!; (sleep 1000 & echo $!); yes >&2 &");
    let stdout = stage.stdout(&spec).await;
    let pids: Vec<Pid> = stdout.lines().map(parse_pid).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        dies(pid).await;
    }
}

#[tokio::test]
async fn an_escaped_child_holds_up_nothing_either() {
    let stage = Stage::new();
    let spec = stage.shell(
        "setsid sh -c 'echo $$ >pid; exec sleep 1000' </dev/null &
         until [ -s pid ]; do :; done; echo done",
    );
    assert_eq!(stage.stdout(&spec).await, "done\n");
    // It let go of its standard input, and with it of the lock.
    stage.lock_gets_free().await;
    let escaped = stage.pid("pid").await;
    assert!(lives(escaped));
    rustix::process::kill_process(escaped, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn dropping_the_future_kills_the_group() {
    let stage = Stage::new();
    let task = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move {
            let spec = stage.shell("sleep 1000 & echo $! >child; echo $$ >pid; wait");
            stage.run(&spec, b"").await
        }
    });
    let (pid, child) = (stage.pid("pid").await, stage.pid("child").await);
    task.abort();
    dies(pid).await;
    dies(child).await;
    stage.lock_gets_free().await;
}

async fn cancelling(spec: impl FnOnce(&Stage) -> CommandSpec) {
    let stage = Stage::new();
    let (spec, lock) = (spec(&stage), stage.lock());
    let cancel = CancellationToken::new();
    let (result, pid) = tokio::join!(run(&spec, b"", &lock, cancel.clone()), async {
        let pid = stage.pid("pid").await;
        cancel.cancel();
        pid
    });
    failed(result, "CANCELLED");
    dies(pid).await;
    stage.lock_gets_free().await;
    failed(run(&spec, b"", &lock, cancel).await, "CANCELLED");
}

#[tokio::test]
async fn cancelling_kills_the_group() {
    cancelling(|stage| stage.shell("sleep 1000 & echo $! >pid; wait")).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn cancelling_kills_what_left_the_group() {
    let script = "sleep 1000 & echo $! >pid; wait";
    cancelling(|stage| stage.spec(&["timeout", "1000", "sh", "-c", script])).await;
    cancelling(|stage| stage.shell(&format!("timeout 1000 sh -c '{script}'; exit"))).await;
    cancelling(|stage| stage.shell("setsid sh -c 'echo $$ >pid; exec sleep 1000'; exit")).await;
}

#[tokio::test]
async fn a_group_that_stopped_itself_is_killed_in_time() {
    let stage = Stage::new();
    let mut spec = stage.shell("echo $$ >pid; kill -s STOP 0");
    spec.timeout = Duration::from_millis(300);
    failed(stage.run(&spec, b"").await, "COMMAND_TIMEOUT");
    assert!(!lives(stage.pid("pid").await));
    stage.lock_gets_free().await;
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let stage = Stage::new();
    fs::write(stage.path("plain"), "text").unwrap();
    for (name, text) in [("alien", "no binary"), ("orphan", "#!/no/such/interpreter\n")] {
        fs::write(stage.path(name), text).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(stage.path(name), mode).unwrap();
    }
    let cases = [
        ("no-such-program", "it is not in PATH"),
        ("./no-such-program", "does not exist"),
        ("./", "is not a file"),
        ("./plain", "is not executable"),
        ("./orphan", "the interpreter it asks for does not exist"),
        ("./alien", "it is neither a binary for this machine nor a script with a `#!` line"),
        ("", "no program is named"),
    ];
    for (program, reason) in cases {
        let message = failed(stage.run(&stage.spec(&[program]), b"").await, "COMMAND_MISSING");
        assert!(message.starts_with(&format!("cannot run `{program}`: ")), "{message}");
        assert!(message.ends_with(reason), "{message}");
        stage.lock_gets_free().await;
    }
    let nothing = stage.spec(&[]);
    failed(stage.run(&nothing, b"").await, "COMMAND_MISSING");
    let nowhere = CommandSpec::new(["true"], stage.path("gone"), BOUND);
    let message = failed(stage.run(&nowhere, b"").await, "COMMAND_IO");
    assert!(message.starts_with("cannot use the folder"), "{message}");
}

#[tokio::test]
async fn a_program_is_found_through_the_path_it_gets() {
    let stage = Stage::new();
    fs::create_dir(stage.path("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/echo", stage.path("bin/say")).unwrap();
    let mut spec = stage.spec(&["say", "hello"]);
    spec.env.insert("PATH".to_owned(), "/no/such/folder:bin".to_owned());
    assert_eq!(stage.stdout(&spec).await, "hello\n");
    assert_eq!(stage.stdout(&stage.spec(&["bin/say", "again"])).await, "again\n");
}

#[tokio::test]
async fn a_run_waits_for_the_one_before() {
    let stage = Stage::new();
    fs::create_dir(stage.path("locks")).unwrap();
    let held = File::create(stage.lock()).unwrap();
    held.lock().unwrap();
    let (spec, lock) = (stage.spec(&["echo", "mine"]), stage.lock());
    let within = |wait| run_waiting(&spec, b"", &lock, CancellationToken::new(), wait);

    let message = failed(within(Duration::from_millis(20)).await, "COMMAND_TIMEOUT");
    assert!(message.starts_with("an earlier run still holds"), "{message}");

    let mut waiting = Box::pin(within(BOUND));
    tokio::select! {
        biased;
        result = &mut waiting => panic!("did not wait: {result:?}"),
        () = sleep(Duration::from_millis(20)) => {}
    }
    drop(held);
    assert_eq!(waiting.await.unwrap().stdout, b"mine\n");
}

#[tokio::test]
async fn runs_with_one_lock_do_not_overlap() {
    let stage = Stage::new();
    // `mkdir` fails if the folder is there, that is, if another run is between the two lines.
    let spec = stage.shell("mkdir inside || exit 1; rmdir inside");
    let runs = (0..8).map(|_| stage.run(&spec, b""));
    for result in futures::future::join_all(runs).await {
        result.unwrap();
    }
}

const VICTIM: &str = "GREENROOM_TEST_VICTIM";

/// Not a test by itself: the runtime that the next test kills.
#[tokio::test]
async fn victim() {
    let Some(folder) = env::var_os(VICTIM) else {
        return;
    };
    let script = "sleep 1000 & echo $! >child; echo $$ >pid; wait";
    let mut spec = CommandSpec::new(["sh", "-c", script], &folder, BOUND * 10);
    if env::var_os("GREENROOM_TEST_REGROUP").is_some() {
        spec.argv.splice(..0, ["timeout".to_owned(), "1000".to_owned()]);
    }
    let lock = PathBuf::from(folder).join("locks/one");
    let result = run(&spec, b"", &lock, CancellationToken::new()).await;
    panic!("{result:?}");
}

async fn killing_the_runtime(regroup: bool) {
    let stage = Stage::new();
    let mut helper = Command::new(env::current_exe().unwrap());
    helper.args(["--exact", "command::tests::victim"]).env(VICTIM, stage.folder.path()).stdout(Stdio::null());
    if regroup {
        helper.env("GREENROOM_TEST_REGROUP", "1");
    }
    let mut helper = helper.spawn().unwrap();
    let (pid, child) = (stage.pid("pid").await, stage.pid("child").await);
    assert!(lives(pid) && lives(child) && !stage.lock_is_free());
    helper.kill().unwrap();
    helper.wait().unwrap();
    dies(pid).await;
    dies(child).await;
    stage.lock_gets_free().await;
    // What the killed run left in the lock file does not reach the next one.
    assert_eq!(stage.stdout(&stage.spec(&["cat"])).await, "");
}

#[tokio::test]
async fn killing_the_runtime_kills_the_group() {
    killing_the_runtime(false).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killing_the_runtime_kills_a_command_that_leads_its_own_group() {
    killing_the_runtime(true).await;
}

#[tokio::test]
async fn the_future_can_move_between_threads() {
    fn movable<F: Future + std::marker::Send>(future: F) -> F {
        future
    }
    let stage = Stage::new();
    let (spec, lock) = (stage.spec(&["true"]), stage.lock());
    movable(run(&spec, b"", &lock, CancellationToken::new())).await.unwrap();
}
