//! SIGKILL at any moment: the same table, every accepted message served exactly once, no command run twice without a turn that says so.
//!
//! Everything is judged from outside: the table by comparison, the store in plain SQL or plain lines, and what the commands did by a side file that they write themselves.

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::audit;

/// A folder with the files to be reviewed, the program, and the store.
struct Desk {
    folder: TempDir,
    kind: Kind,
}

/// Where the sessions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Jsonl,
}

/// The review of `examples/review.toml` with commands that write down each of their runs.
const PROGRAM: &str = r#"
[run]
root = "editor"
label = "a review under fire"
prompt = "Review {dir}."
max_live = 8

[vars]
dir = { path = "files" }
side = { path = "side" }

[agents.editor]
behavior = "script"
turns = [[
  { for_each = { dir = "{dir}", files = "*", steps = [
    { delegate = { agent = "measure", description = "{file}", prompt = "count", params = { file = "{file}" } } },
  ] } },
  { await = "children" },
  { for_each = { children = "all", steps = [ { send = { to = "{child}", message = "longest" } } ] } },
  { await = "children" },
  { say = "{reports}" },
]]

[agents.measure]
behavior = "command"
answer = "text"
timeout = "30s"
env = { SIDE = "{side}", DIR = "{dir}", FILE = "{params.file}" }
command = ["sh", "-c", '''
printf '%s %s %s\n' "$GREENROOM_SESSION" "$GREENROOM_TURN" "$GREENROOM_ATTEMPT" >>"$SIDE"
sleep 0.05
case $GREENROOM_MESSAGE in
count) wc -l <"$DIR/$FILE" ;;
*) awk 'length > length(longest) { longest = $0 } END { print longest }' <"$DIR/$FILE" ;;
esac
''']
"#;

impl Desk {
    fn new(kind: Kind, files: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("files")).unwrap();
        for n in 0..files {
            let lines: Vec<String> = (0..=n).map(|line| format!("line {line} of file {n} {}\n", "x".repeat(line))).collect();
            let lines = lines.concat();
            std::fs::write(folder.path().join(format!("files/file-{n:03}.txt")), lines).unwrap();
        }
        std::fs::write(folder.path().join("review.toml"), PROGRAM).unwrap();
        Self { folder, kind }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
        command
            .arg("--store")
            .arg(format!("{}:{}", if self.kind == Kind::Sqlite { "sqlite" } else { "jsonl" }, self.path("desk.db").display()))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, root: Option<&str>) -> Command {
        let mut command = self.command();
        command.args(["run", "review.toml"]);
        if let Some(root) = root {
            command.args(["--root", root]);
        }
        command
    }

    /// Returns the root, if one was created.
    fn root(&self) -> Option<String> {
        let born = match self.kind {
            Kind::Sqlite => self.path("desk.db"),
            Kind::Jsonl => self.path("desk.db/_greenroom.json"),
        };
        if !born.exists() {
            return None;
        }
        let output = self.command().args(["list", "--json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        list["entries"].as_array().unwrap().first().map(|entry| entry["id"].as_str().unwrap().to_owned())
    }

    /// Starts a run and kills it a time after it has written so many events; false if it had ended by then.
    fn run_and_kill_after_events(&self, events: i64, after: Duration) -> bool {
        let mut child = self.run(self.root().as_deref()).spawn().unwrap();
        while self.newest_event() < events {
            if ends_within(&mut child, Duration::from_millis(1)) {
                return false;
            }
        }
        Self::kill(child, after)
    }

    /// Starts a run and kills it a time after its commands have given so many answers, those of every turn that an earlier kill cut off among them; false if
    /// it had ended by then.
    ///
    /// Without that, a message that happens to be cut off three times in a row would be a poison message, which is not served for ever.
    fn run_and_kill_after_answers(&self, answers: i64, after: Duration) -> bool {
        let since = self.newest_event();
        let mut child = self.run(self.root().as_deref()).spawn().unwrap();
        while self.answers_after(since) < answers || self.cut_off_before(since) > 0 {
            if ends_within(&mut child, Duration::from_millis(2)) {
                return false;
            }
        }
        Self::kill(child, after)
    }

    fn ask(&self, query: &str, argument: i64) -> Option<i64> {
        let db = rusqlite::Connection::open_with_flags(self.path("desk.db"), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        db.query_row(query, [argument], |row| row.get(0)).ok()
    }

    fn newest_event(&self) -> i64 {
        if self.kind == Kind::Jsonl {
            let files = if self.path("desk.db/_root").exists() { audit::jsonl_files(&self.path("desk.db")) } else { Vec::new() };
            let events = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().lines().filter(|line| line.starts_with("{\"seq\":")).count();
            return files.into_iter().map(events).sum::<usize>().try_into().unwrap();
        }
        self.ask("SELECT coalesce(max(rowid), ?1) FROM event", 0).unwrap_or(0)
    }

    fn answers_after(&self, event: i64) -> i64 {
        self.ask("SELECT count(*) FROM event WHERE rowid > ?1 AND body ->> '$.type' = 'answer/recorded'", event).unwrap_or(0)
    }

    /// Counts the children's messages whose turn was begun before this event and whose answer is not there yet.
    fn cut_off_before(&self, event: i64) -> i64 {
        let query = "SELECT count(*) FROM event e JOIN session s ON s.sid = e.sid
            WHERE s.parent_id IS NOT NULL AND e.rowid <= ?1 AND e.body ->> '$.type' = 'turn/start' AND NOT EXISTS (
                SELECT 1 FROM event a WHERE a.sid = e.sid AND a.body ->> '$.type' = 'answer/recorded' AND a.body ->> '$.data.message' = e.body ->> '$.data.message')";
        self.ask(query, event).unwrap_or(1)
    }

    fn kill(mut child: Child, after: Duration) -> bool {
        if ends_within(&mut child, after) {
            return false;
        }
        child.kill().unwrap();
        // It may have come to its end by itself just before.
        child.wait().unwrap().signal() == Some(9)
    }

    fn finish(&self) -> Output {
        let output = self.run(self.root().as_deref()).output().unwrap();
        assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Checks the whole store and the side file.
    fn audit(&self, children: usize) {
        let sessions = match self.kind {
            Kind::Sqlite => audit::read(&self.path("desk.db")),
            Kind::Jsonl => audit::read_jsonl(&self.path("desk.db")),
        };
        assert_eq!(sessions.iter().filter(|session| session.parent.is_none()).count(), 1);
        assert_eq!(sessions.iter().filter(|session| session.parent.is_some()).count(), children, "a child was started twice, or not at all");
        for session in &sessions {
            session.check_finished();
            if session.parent.is_some() {
                assert_eq!(session.ends(), [Some("completed".into()), Some("completed".into())], "{}", session.id);
            }
        }
        audit::check_invocations(&sessions, &audit::invocations(&self.path("side")));
    }
}

/// Waits for a process, at most so long. The moment of a kill need not be exact, so a coarse look is enough.
fn ends_within(child: &mut Child, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    false
}

fn table(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const FILES: usize = 12;

/// Runs an undisturbed review and returns its table and how many events it wrote.
fn undisturbed(kind: Kind, files: usize) -> (String, i64) {
    let desk = Desk::new(kind, files);
    let output = desk.finish();
    desk.audit(files);
    assert_eq!(audit::invocations(&desk.path("side")).len(), 2 * files);
    let locks: Vec<_> = std::fs::read_dir(desk.path("desk.db-guards")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(locks.is_empty(), "lock files are left: {locks:?}");
    (table(&output), desk.newest_event())
}

#[test]
fn fifty_reviews_killed_once_each_end_in_the_same_table() {
    killed_once_each(Kind::Sqlite, 50);
}

#[test]
fn twenty_reviews_over_json_lines_killed_once_each_end_in_the_same_table() {
    killed_once_each(Kind::Jsonl, 20);
}

fn killed_once_each(kind: Kind, kills: u32) {
    let (expected, events) = undisturbed(kind, FILES);
    assert_eq!(expected.lines().count(), FILES, "{expected}");
    let mut killed = 0;
    for n in 0..kills {
        // Moments are told by what a run has written, so that they are spread over all of it, however fast the machine is at the time.
        let mut moment = events * i64::from(n) / i64::from(kills);
        let mut after = Duration::from_millis(u64::from(n * 7 % 40));
        let desk = loop {
            let desk = Desk::new(kind, FILES);
            if desk.run_and_kill_after_events(moment, after) {
                break desk;
            }
            // A kill after the end of a run would show nothing. On a busy machine even one that is to come at once may come too late.
            after /= 2;
            moment = (moment - i64::from(after < Duration::from_millis(1))).max(0);
        };
        killed += 1;
        let output = desk.finish();
        assert_eq!(table(&output), expected, "killed at {n} of {kills}");
        desk.audit(FILES);
    }
    assert_eq!(killed, kills, "every kill met a running review");
}

#[test]
fn a_review_killed_twenty_times_ends_in_the_same_table() {
    const KILLS: u32 = 20;
    const MANY: usize = 320;
    let (expected, _) = undisturbed(Kind::Sqlite, MANY);
    let mut killed = 0;
    while killed < KILLS {
        let desk = Desk::new(Kind::Sqlite, MANY);
        // As many answers as turns run at once: whoever was cut off is served before the next kill. A busy machine looks seldom, and the review may
        // be over before all kills have come: another review takes those that are left.
        while killed < KILLS && desk.run_and_kill_after_answers(8, Duration::from_millis(u64::from(killed * 7 % 40))) {
            killed += 1;
        }
        assert_eq!(table(&desk.finish()), expected, "after kill {killed}");
        desk.audit(MANY);
    }
}

/// A command that kills the runtime itself, named by a file that the test writes.
const POISON: &str = r#"
[run]
root = "editor"
prompt = "Go."
# One turn at a time: a turn that is merely under way when the process is killed would be cut off as often.
max_live = 1

[vars]
dir = { path = "." }

[agents.editor]
behavior = "script"
turns = [[
  { delegate = { agent = "poison", description = "kills", prompt = "kill" } },
  { delegate = { agent = "healthy", description = "lives", prompt = "live" } },
  { await = "children" },
  { say = "{reports}" },
]]

[agents.poison]
behavior = "command"
answer = "text"
env = { DIR = "{dir}" }
command = ["sh", "-c", 'printf "%s %s %s\n" "$GREENROOM_SESSION" "$GREENROOM_TURN" "$GREENROOM_ATTEMPT" >>"$DIR/side"; kill -9 "$(cat "$DIR/pid")"; exec sleep 60']

[agents.healthy]
behavior = "command"
answer = "text"
command = ["sh", "-c", "echo well"]
"#;

#[test]
fn a_message_that_kills_the_runtime_stops_after_three_attempts() {
    let desk = Desk::new(Kind::Sqlite, 0);
    std::fs::write(desk.path("review.toml"), POISON).unwrap();
    let mut crashes = 0;
    let output = loop {
        let mut command = desk.run(desk.root().as_deref());
        // The command must find whom to kill before it is run: the shell writes down its own id and becomes the runtime.
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("echo $$ >pid; exec \"$@\"").arg("sh").arg(command.get_program()).args(command.get_args());
        shell.current_dir(desk.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        drop(std::mem::replace(&mut command, shell));
        let output = command.output().unwrap();
        if output.status.code().is_some() {
            break output;
        }
        crashes += 1;
        assert!(crashes <= 3, "the message was served more than three times");
    };
    assert_eq!(crashes, 3);
    assert!(output.status.success(), "the run goes on without the poisoned child: {}", String::from_utf8_lossy(&output.stderr));
    let said = table(&output);
    assert!(said.contains("ATTEMPTS_EXHAUSTED") && said.contains("well"), "{said}");
    let sessions = audit::read(&desk.path("desk.db"));
    for session in &sessions {
        session.check_finished();
    }
    audit::check_invocations(&sessions, &audit::invocations(&desk.path("side")));
    assert_eq!(audit::invocations(&desk.path("side")).len(), 3);
    // The guard of the last crash has its own pace: nobody waits for the lock of a message that is not served again.
    let until = Instant::now() + Duration::from_secs(60);
    while holds_side(&desk.path("side")) {
        assert!(Instant::now() < until, "a process is left behind");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Tells whether any process still runs in the folder of the side file.
fn holds_side(side: &Path) -> bool {
    let folder = side.parent().unwrap().canonicalize().unwrap();
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok()).any(|cwd| cwd == folder)
}
