//! A holder that is stopped, overtaken and goes on; one that is killed; takers that race; programs that send while others run; a clock that goes back.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use greenroom::{
    Delegate, Runtime, Turn, TurnEnd,
    actors::host::NewRoot,
    session::{clock::Clock, event::Body},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::{
    audit,
    cli::{Desk, Kind, Said},
    senders,
};

/// A child whose command hangs in its first attempt, and answers in the next unless that is to hang too.
const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Go."

[vars]
dir = { path = "." }

[agents.editor]
behavior = "script"
turns = [[
  { delegate = { agent = "worker", as = "w", description = "works", prompt = "work" } },
  { await = "children" },
  { say = "{reports}" },
]]

[agents.worker]
behavior = "command"
answer = "text"
timeout = "10m"
env = { DIR = "{dir}" }
command = ["sh", "-c", '''
echo $$ >"$DIR/pid-$GREENROOM_ATTEMPT"
if [ "$GREENROOM_ATTEMPT" = 1 ] || [ -e "$DIR/hang" ]; then sleep 600 & echo $! >"$DIR/child"; wait; echo "too late" >"$DIR/late"; fi
echo "attempt $GREENROOM_ATTEMPT"
''']
"#;

const BOUND: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("story.toml", PROGRAM);
    desk
}

fn start(desk: &Desk, words: &[&str]) -> Child {
    desk.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads a whole process id that a command has written.
fn pid(desk: &Desk, name: &str) -> Pid {
    until(name, || {
        let text = fs::read_to_string(desk.path(name)).ok().filter(|text| text.ends_with('\n'))?;
        Pid::from_raw(text.trim().parse().ok()?)
    })
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.contains(") Z ")
}

/// Starts a run and returns it once its command hangs, with the root.
fn hanging(desk: &Desk) -> (Child, Pid, Pid, String) {
    let holder = start(desk, &["run", "story.toml"]);
    let (leader, child) = (pid(desk, "pid-1"), pid(desk, "child"));
    let roots = desk.run(&["list", "--json"]).json();
    let root = roots["entries"][0]["id"].as_str().unwrap().to_owned();
    (holder, leader, child, root)
}

/// Every session's attempts, once everything is served.
fn attempts(desk: &Desk) -> Vec<Vec<u64>> {
    let sessions = audit::read(&desk.path("desk.db"));
    sessions.iter().for_each(audit::Audited::check_finished);
    let of = |session: &audit::Audited| session.of("turn/start").map(|(_, data)| data["attempt"].as_u64().unwrap()).collect();
    sessions.iter().map(of).collect()
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_is_refused_and_its_command_is_dead() {
    let desk = desk();
    let (holder, leader, child, root) = hanging(&desk);
    kill_process(Pid::from_child(&holder), Signal::STOP).unwrap();
    // It may be stopped in the middle of a write, which nobody can go on beside: then it is let go on for a moment.
    let held = until("the holder is stopped between two writes", || {
        let said = desk.run(&["run", "story.toml", "--root", &root]);
        if said.err.contains("STORE_LOCKED") {
            kill_process(Pid::from_child(&holder), Signal::CONT).unwrap();
            kill_process(Pid::from_child(&holder), Signal::STOP).unwrap();
            return None;
        }
        Some(said)
    });
    assert!(held.exit == 6 && held.err.contains("error[SESSION_HELD]"), "its lease goes on: {held:?}");
    // Its time is over, without anybody's waiting for it.
    let raw = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    raw.execute("UPDATE node SET expires_at = expires_at - 10001", []).unwrap();
    drop(raw);
    let taken = desk.run(&["run", "story.toml", "--root", &root]);
    assert_eq!((taken.exit, taken.out.split_whitespace().collect::<Vec<_>>().join(" ").as_str()), (0, "works attempt 2"), "{taken:?}");
    assert!(!lives(leader) && !lives(child), "the command of the stopped holder goes on");
    let after = audit::read(&desk.path("desk.db"));
    kill_process(Pid::from_child(&holder), Signal::CONT).unwrap();
    let said = Said::of(&holder.wait_with_output().unwrap());
    assert!(said.err.contains("code=\"FENCED\""), "its append is refused: {said:?}");
    assert!(!desk.path("late").exists());
    let now = audit::read(&desk.path("desk.db"));
    let events = |sessions: &[audit::Audited]| sessions.iter().map(|session| session.events.clone()).collect::<Vec<_>>();
    assert_eq!(events(&now), events(&after), "nothing of it was appended");
    assert_eq!(attempts(&desk), [vec![1, 2], vec![1, 2]]);
}

/// Starts a holder whose command has to wait for a lock that is held here, and stops it while it waits; none if it was quicker.
fn stopped_in_waiting(desk: &Desk, root: &str) -> Option<(Child, fs::File)> {
    let locks = || fs::read_dir(desk.path("desk.db-guards")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let [left] = &*locks() else { panic!("what the first has left: {:?}", locks()) };
    let held = fs::File::open(left).unwrap();
    until("the lock is free", || held.try_lock().ok());
    let mut holder = start(desk, &["run", "story.toml", "--root", root]);
    until("it waits, or has waited", || (locks().len() > 1 || desk.path("pid-2").exists()).then_some(()));
    until("it is stopped between two writes", || {
        kill_process(Pid::from_child(&holder), Signal::STOP).unwrap();
        let free = fs::File::open(desk.path("desk.db-lock")).unwrap().try_lock().is_ok();
        if !free {
            kill_process(Pid::from_child(&holder), Signal::CONT).unwrap();
        }
        free.then_some(())
    });
    if locks().len() > 1 && !desk.path("pid-2").exists() {
        return Some((holder, held));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    None
}

#[test]
fn a_holder_that_was_stopped_while_it_waited_to_run_a_command_does_no_harm_to_that_of_who_has_overtaken_it() {
    let (desk, root, mut stopped, held) = (0..5)
        .find_map(|_| {
            let desk = desk();
            let (mut first, leader, child, root) = hanging(&desk);
            first.kill().unwrap();
            first.wait().unwrap();
            until("its command is gone", || (!lives(leader) && !lives(child)).then_some(()));
            let (stopped, held) = stopped_in_waiting(&desk, &root)?;
            Some((desk, root, stopped, held))
        })
        .expect("never stopped in time");
    let raw = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    until("its time is over", || raw.execute("UPDATE node SET expires_at = expires_at - 10001", []).ok());
    drop((raw, held));
    desk.write("hang", "");
    let taker = start(&desk, &["run", "story.toml", "--root", &root]);
    let leader = pid(&desk, "pid-3");
    kill_process(Pid::from_child(&stopped), Signal::CONT).unwrap();
    let mut stderr = BufReader::new(stopped.stderr.take().unwrap()).lines();
    let fenced = stderr.find(|line| line.as_ref().unwrap().contains("code=\"FENCED\""));
    assert!(fenced.is_some(), "it goes on");
    assert!(lives(leader), "it has killed the command of who has overtaken it");
    assert!(!desk.path("pid-2").exists(), "it has run its own");
    // What hangs goes on, and both runs come to their end.
    kill_process(pid(&desk, "child"), Signal::KILL).unwrap();
    let done = Said::of(&taker.wait_with_output().unwrap());
    assert_eq!((done.exit, done.out.split_whitespace().collect::<Vec<_>>().join(" ").as_str()), (0, "works attempt 3"), "{done:?}");
    assert_eq!(stderr.filter(|line| line.as_ref().unwrap().contains("ERROR")).count(), 0);
    stopped.wait().unwrap();
}

#[test]
fn of_a_holder_that_is_killed_everything_is_taken_over_at_once_by_one_of_eight() {
    let desk = desk();
    let (mut holder, leader, child, root) = hanging(&desk);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let takers: Vec<Child> = (0..8).map(|_| start(&desk, &["run", "story.toml", "--root", &root])).collect();
    let said: Vec<Said> = takers.into_iter().map(|taker| Said::of(&taker.wait_with_output().unwrap())).collect();
    let done = said.iter().filter(|said| said.exit == 0).count();
    assert!(done >= 1, "{said:?}");
    // Exit 6 is that somebody else has it, or was just writing to it.
    assert!(said.iter().all(|said| matches!(said.exit, 0 | 6)), "{said:?}");
    until("its command is gone", || (!lives(leader) && !lives(child)).then_some(()));
    // One of them served what was cut off, the others nothing.
    assert_eq!(attempts(&desk), [vec![1, 2], vec![1, 2]]);
    assert!(pid(&desk, "pid-2") != leader && !desk.path("pid-3").exists());
}

/// A root with five children, all of whom serve whatever comes.
const FIVE: &str = r#"
[run]
root = "editor"
prompt = "Go."

[agents.editor]
behavior = "script"
turns = [[
  { delegate = { agent = "worker", description = "one", prompt = "begin" } },
  { delegate = { agent = "worker", description = "two", prompt = "begin" } },
  { delegate = { agent = "worker", description = "three", prompt = "begin" } },
  { delegate = { agent = "worker", description = "four", prompt = "begin" } },
  { delegate = { agent = "worker", description = "five", prompt = "begin" } },
  { await = "children" },
]]

[agents.worker]
behavior = "script"
turns = [[{ say = "begun" }]]
"#;

#[test]
fn programs_that_send_and_programs_that_run_at_once_over_one_file_lose_double_and_reorder_nothing() {
    const EACH: usize = 60;
    let desk = Desk::new();
    desk.write("five.toml", FIVE);
    let first = desk.run(&["run", "five.toml"]);
    assert_eq!(first.exit, 0, "{first:?}");
    let sessions = audit::read(&desk.path("desk.db"));
    let root = sessions.iter().find(|session| session.parent.is_none()).unwrap().id.clone();
    let children: Vec<String> = sessions.into_iter().filter(|session| session.parent.is_some()).map(|session| session.id).collect();
    assert_eq!(children.len(), 5);
    let done = AtomicBool::new(false);
    let run = ["run", "five.toml", "--root", &root];
    let ran: Vec<Said> = thread::scope(|scope| {
        let runners: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut said = Vec::new();
                    while !done.load(Ordering::Acquire) {
                        said.push(desk.run(&run));
                    }
                    said
                })
            })
            .collect();
        let senders = ["p1", "p2"].map(|sender| {
            let (desk, children) = (&desk, &children);
            scope.spawn(move || {
                for n in 0..EACH {
                    let sent = desk.run(&["send", &children[n % children.len()], &format!("{sender} {n}")]);
                    assert_eq!(sent.exit, 0, "{sender} {n}: {sent:?}");
                }
            })
        });
        let sent = senders.map(thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Release);
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        runners.into_iter().flat_map(|runner| runner.join().unwrap()).collect()
    });
    // One of them has it, and whoever comes second is told so.
    assert!(ran.iter().all(|said| said.exit == 0 || (said.exit == 6 && said.err.contains("error[SESSION_HELD]"))), "{ran:?}");
    let held = ran.iter().filter(|said| said.exit == 6).count();
    eprintln!("{} runs, {held} of which came second", ran.len());
    assert!(held > 0 && held < ran.len(), "nobody met anybody: {held} of {}", ran.len());
    let last = desk.run(&run);
    assert_eq!(last.exit, 0, "{last:?}");
    senders::check_order(&desk.path("desk.db"), 2 * EACH);
    audit::read(&desk.path("desk.db")).iter().for_each(audit::Audited::check_finished);
    let checked = desk.run(&["check"]);
    assert_eq!(checked.exit, 0, "{checked:?}");
}

/// A clock that goes back by a minute with every look.
#[derive(Debug)]
struct Backwards(AtomicU64);

impl Clock for Backwards {
    fn now_ms(&self) -> u64 {
        self.0.fetch_sub(60_000, Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_clock_that_goes_back_nobody_is_older_than_the_parent_and_no_lease_ends() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let clock = Arc::new(Backwards(AtomicU64::new(1_800_000_000_000)));
        let builder = Runtime::builder().clock(clock).closure("desk", |turn: Turn| async move {
            for n in 0..5 {
                turn.delegate(Delegate::new("clerk", format!("clerk {n}"), "work")).await?;
            }
            turn.await_children().await?;
            Ok(TurnEnd::Completed)
        });
        let clerk = |turn: Turn| async move {
            turn.report(turn.text(), true).await?;
            Ok(TurnEnd::Completed)
        };
        let runtime = builder.closure("clerk", clerk).open(&desk.url()).await.unwrap();
        let root = runtime.host().root(NewRoot::new("desk", "a desk")).await.unwrap();
        let id = root.agent().session().clone();
        runtime.host().send(&id, "Go.", None).await.unwrap();
        root.quiescent().await.unwrap();
        let children = runtime.list(Some(&id)).await.unwrap().entries;
        assert_eq!(children.len(), 5);
        for entry in &children {
            let turns = runtime.read_events(entry.id()).await.unwrap();
            assert!(turns.iter().filter(|event| matches!(event.body, Body::TurnEnd { .. })).count() == 1, "{turns:?}");
        }
        runtime.shutdown().await;
        let mut reader = desk.any_store().reader().unwrap();
        let born = reader.header(&id).unwrap().unwrap().created_at;
        let times: Vec<u64> = reader.children(Some(&id), None, 9).unwrap().iter().map(|child| child.created_at).collect();
        assert!(times.iter().all(|time| *time >= born), "nobody is older than the parent: {born} {times:?}");
        drop(reader);
        assert_eq!(desk.run(&["check"]).exit, 0);
    }
}
