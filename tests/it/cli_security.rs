//! What a hostile store, path or program cannot do: have a terminal obey it, reach another file, or learn what it was not given.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use greenroom::session::{
    descriptor::Descriptor,
    event::{Body, EpochEnd, Event, TurnEnd},
    header::NewSession,
    id::SessionId,
    message::{Message, Source},
    recover::begin_epoch,
    store::{Accept, Append, Claim, ClaimKind, Close, Create, Fence, Op, Open, Store},
};
use serde_json::json;

use crate::cli::{self, Desk, Kind, Said, commit, files_below, id};

/// Clears the screen, sets the title, links, turns the direction of writing, and goes on in a line of its own.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\u{1b}]8;;http://x/\u{1b}\\\u{9b}31m\u{202e}\u{2066}\r\nerror[FAKE]: not so\u{8}\u{7f}\u{85}\u{2028}\u{61c}end";

/// What no verb may write, on stdout or on stderr; `colored` lets the program's own colours through.
fn obeyed(text: &str, colored: bool) -> Vec<char> {
    let mut rest = text.to_owned();
    if colored {
        // Colours are ours: a few digits and an `m`.
        while let Some(at) = rest.find("\u{1b}[") {
            let digits = rest[at + 2..].find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(0);
            if !rest[at + 2 + digits..].starts_with('m') {
                break;
            }
            rest.replace_range(at..at + 3 + digits, "");
        }
    }
    let misleads = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    rest.chars().filter(misleads).collect()
}

fn evil_id(name: &str) -> SessionId {
    id(&format!("{name}{EVIL}"))
}

/// A store in which every text that can be hostile is.
fn hostile(store: &dyn Store) {
    let evil = |name: &str| format!("{name}{EVIL}");
    let (root, child) = (evil_id("root"), evil_id("child"));
    commit(store, Op::Create(Create::root(NewSession::root(root.clone()), evil("agent"), evil("label"))));
    let descriptor = serde_json::to_value(Descriptor::continuable("spawn", "label", "agent")).unwrap();
    let mut hostile = descriptor.clone();
    for key in ["label", "agent", "provider"] {
        hostile[key] = json!(evil(key));
    }
    hostile["alias"] = json!("alias\u{1b}[2J");
    let bodies = |data| [Body::Descriptor(data), Body::EndSeed {}].into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1)).collect();
    for (name, data) in [(child.clone(), hostile), (evil_id("broken"), json!({"version": 1, "mode": EVIL}))] {
        commit(store, Op::Create(Create { session: NewSession::child(name, root.clone(), 0), time: 1, events: bodies(data), message: None }));
    }
    for session in [&root, &child] {
        for n in 0..3 {
            let source = if n == 0 { Source::User } else { Source::Agent { name: evil("sender") } };
            let message = Message::turn(evil(&format!("m{n}")), evil("text"), source, 2).unwrap();
            commit(store, Op::Accept(Accept::new(session.clone(), message)));
        }
        let fold = store.reader().unwrap().folded(session).unwrap();
        let (epoch, events) = begin_epoch(&fold, 3, 3);
        commit(store, Op::Open(Open { session: session.clone(), epoch, events: events.into(), claim: Some(3) }));
        let fence = Fence { session: session.clone(), epoch };
        let next = || store.reader().unwrap().folded(session).unwrap().head().next_seq;
        let memo = Body::Memo { turn: 1, message: evil("m0").parse().unwrap(), key: Some(evil("key")), text: evil("memo") };
        let end = Body::TurnEnd { turn: 1, reason: TurnEnd::Error { code: evil("CODE"), message: evil("failed") } };
        let stranger = Body::decode("weather/changed", &serde_json::to_string(&json!({"wind": EVIL})).unwrap()).unwrap();
        let bodies = [memo, stranger, end].into_iter().zip(next()..);
        let events: Vec<Event> = bodies.map(|(body, seq)| Event { ignorable: matches!(body, Body::Opaque(_)), ..body.at(seq, 4) }).collect();
        commit(store, Op::Append(Append { fence: fence.clone(), events: events.into(), take: vec![] }));
        commit(store, Op::Claim(Claim { fence: fence.clone(), first_seq: next(), kind: ClaimKind::Turn, time: 5 }));
        commit(
            store,
            Op::Append(Append { fence: fence.clone(), events: [Body::TurnEnd { turn: 2, reason: TurnEnd::Completed }.at(next(), 6)].into(), take: vec![] }),
        );
        let close = [Body::ActivationEnd { epoch, reason: EpochEnd::Disposed }.at(next(), 7)];
        commit(store, Op::Close(Close { fence, events: close.into(), unless_pending: false }));
    }
}

fn assert_harmless(said: &Said, words: &[&str]) {
    let colored = words.contains(&"always");
    for text in [&said.out, &said.err] {
        let found = obeyed(text, colored);
        assert!(found.is_empty(), "{words:?}: {found:?} in {said:?}");
    }
    assert!(!said.err.lines().any(|line| line.starts_with("error[FAKE]")), "{words:?}: {said:?}");
}

#[test]
fn no_text_of_a_store_is_obeyed_by_a_terminal_whatever_the_verb() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let store = desk.any_store();
        hostile(&*store);
        store.close().unwrap();
        drop(store);
        desk.write("story.toml", "[run]\nroot = \"a\"\nprompt = \"Go.\"\n[agents.a]\nbehavior = \"script\"\nturns = [[{ say = \"x\" }]]\n");
        let (root, child, broken) = (evil_id("root"), evil_id("child"), evil_id("broken"));
        let (root, child, broken) = (root.as_str(), child.as_str(), broken.as_str());
        let message = format!("m2{EVIL}");
        let verbs: Vec<Vec<&str>> = vec![
            vec!["list"],
            vec!["list", "--all", "--verify"],
            vec!["list", root, "--all"],
            vec!["list", "nobody\u{1b}[2J"],
            vec!["tree"],
            vec!["tree", root, "--usage"],
            vec!["show", root],
            vec!["show", child],
            vec!["show", broken],
            vec!["log", root],
            vec!["log", child],
            vec!["log", broken],
            vec!["log", child, "--raw"],
            vec!["check"],
            vec!["check", "--repair"],
            vec!["send", child, "hello\u{1b}[2J", "--message-id", "new\u{1b}[2J"],
            vec!["send", child, "other", "--message-id", "new\u{1b}[2J"],
            vec!["send", broken, "hello"],
            vec!["send", child, "hi", "--wait", "--timeout", "0s"],
            vec!["interrupt", child],
            vec!["withdraw", child, &message],
            vec!["withdraw", child, "none\u{1b}[2J"],
            vec!["run", "story.toml", "--root", root],
            vec!["run", "story.toml", "--root", child],
            vec!["run", "none\u{1b}[2J.toml"],
            vec!["run", "story.toml", "--set", "x\u{1b}[2J=1"],
            vec!["export", "--all", "--to", "out\u{1b}[2J"],
            vec!["import", "out\u{1b}[2J"],
            vec!["import", "none\u{1b}[2J"],
            vec!["rm", root, "--yes"],
            vec!["rm", root, "--tree", "--yes"],
            vec!["check", "--repair", "--apply"],
            vec!["check"],
            vec!["list", root],
        ];
        for words in &verbs {
            for more in [&[][..], &["--json"], &["--color", "always"], &["-v", "-v"]] {
                let words = [&words[..], more].concat();
                let said = desk.run(&words);
                assert_harmless(&said, &words);
                if more == ["--json"] && words[0] != "log" {
                    assert!(serde_json::from_str::<serde_json::Value>(&said.out).is_ok(), "{words:?}: {said:?}");
                }
            }
        }
    }
}

#[test]
fn no_path_and_no_program_is_obeyed_by_a_terminal() {
    let desk = Desk::new();
    let evil = "a\u{1b}[2J\u{202e}\nb";
    fs::create_dir(desk.path(evil)).unwrap();
    desk.write(&format!("{evil}/no-store.db"), "a diary");
    desk.write(&format!("{evil}/broken.toml"), &format!("[run]\nroot = \"{}\"\n[agents.\"x\\u001b[2J\"]\nbehavior = \"\\u001b[2J\"\n", "\\u001b[2J"));
    desk.write(&format!("{evil}/worse.toml"), "[run\u{1b}[2J]\nroot = 1\n");
    let store = |kind: &str, name: &str| format!("{kind}:{}", desk.path(evil).join(name).display());
    let missing =
        [store("sqlite", "none.db"), store("jsonl", "none"), store("sqlite", "no-store.db"), store("jsonl", "no-store.db"), format!("odd\u{1b}[2J:{evil}")];
    for store in &missing {
        for verb in [&["list"][..], &["check"], &["check", "--repair", "--apply"], &["send", "x", "y"], &["export", "--all", "--to", "o"], &["log", "x"]] {
            for more in [&[][..], &["--json"], &["-v", "-v"]] {
                let words = [verb, &["--store", store], more].concat();
                let said = desk.run(&words);
                assert!(said.exit != 0, "{words:?}: {said:?}");
                assert_harmless(&said, &words);
            }
        }
    }
    for program in ["broken.toml", "worse.toml", "none.toml"] {
        let path = format!("{evil}/{program}");
        let words = ["run", path.as_str()];
        let said = desk.run(&words);
        assert_eq!(said.exit, 2, "{said:?}");
        assert_harmless(&said, &words);
    }
}

/// A program whose command shows its environment in its answer.
const SHOWS: &str = r#"
[run]
root = "a"
prompt = "Go."
[agents.a]
behavior = "command"
answer = "json"
command = ["sh", "-c", 'env | cut -d= -f1 | sort >names; test "$SECRET" = "hunter2-secret" && echo "{\"say\": \"done\"}"; echo "$0" >&2; ls -l /proc/$$/fd >fds']
env = { GIVEN = "given-value" }
env_pass = ["SECRET"]
"#;

#[test]
fn a_command_knows_what_the_program_names_and_no_secret_is_kept_or_shown() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        desk.write("story.toml", SHOWS);
        let mut command = desk.command(&["-v", "-v", "-v", "run", "story.toml"]);
        command.env("SECRET", "hunter2-secret").env("OTHER", "other-secret").env("AWS_SESSION_TOKEN", "cloud-secret");
        let said = Said::of(&command.output().unwrap());
        assert_eq!((said.exit, said.out.as_str()), (0, "done\n"), "{said:?}");
        let names: Vec<String> = fs::read_to_string(desk.path("names")).unwrap().lines().map(str::to_owned).collect();
        let shell = ["PWD", "SHLVL", "_", "OLDPWD"];
        let known = ["GIVEN", "GREENROOM_ATTEMPT", "GREENROOM_MESSAGE", "GREENROOM_SESSION", "GREENROOM_TURN", "HOME", "LANG", "PATH", "SECRET"];
        let odd: Vec<_> = names.iter().filter(|name| !shell.contains(&name.as_str()) && !known.contains(&name.as_str())).collect();
        assert!(odd.is_empty(), "{odd:?}");
        // Its three streams and nothing of the runtime's: no store, no lock of others, no socket.
        let fds = fs::read_to_string(desk.path("fds")).unwrap();
        let targets: Vec<&str> = fds.lines().filter_map(|line| line.split_once(" -> ").map(|(_, target)| target)).collect();
        let ours = |target: &&&str| {
            ["socket:", "anon_inode:"].iter().any(|kind| target.starts_with(kind)) || (target.contains("/desk") && !target.contains("-guards/"))
        };
        assert_eq!(targets.iter().find(ours), None, "{fds}");
        assert!(targets.iter().any(|target| target.contains("-guards/")), "its request is its lock file: {fds}");
        // A command that fails is told of with the end of its standard error, and not with what it was given.
        let mut failing = desk.command(&["-v", "-v", "-v", "run", "story.toml"]);
        let failed = Said::of(&failing.env("SECRET", "another-secret").output().unwrap());
        assert_eq!(failed.exit, 1, "{failed:?}");
        assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
        let mut kept: Vec<u8> = [said.err, failed.err, failed.out].concat().into_bytes();
        for file in files_below(desk.folder()).into_iter().filter(|file| !file.ends_with("story.toml")) {
            kept.extend(fs::read(file).unwrap());
        }
        for secret in ["hunter2-secret", "another-secret", "other-secret", "cloud-secret", "given-value"] {
            assert!(!kept.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret} is kept or shown");
        }
    }
}

/// Whoever is let in by a file's or a folder's mode.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut open = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            if found.permissions().mode() & 0o077 != 0 {
                open.push(format!("{:o} {}", found.permissions().mode() & 0o777, path.display()));
            }
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    open
}

#[test]
fn whatever_is_made_is_for_its_owner_only_under_any_umask() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        desk.write("story.toml", SHOWS);
        fs::create_dir(desk.path("made")).unwrap();
        let url = match kind {
            Kind::Sqlite => "sqlite:made/deep/store.db",
            Kind::Jsonl => "jsonl:made/deep/store",
        };
        let under = |words: &[&str]| {
            let plain = desk.command(words);
            let mut shell = Command::new("sh");
            shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args()).args(["--store", url]);
            shell.current_dir(desk.folder()).stdin(Stdio::null()).env("SECRET", "hunter2-secret");
            Said::of(&shell.output().unwrap())
        };
        let ran = under(&["run", "story.toml", "--json"]);
        assert_eq!(ran.exit, 0, "{ran:?}");
        let root = ran.json()["root"].as_str().unwrap().to_owned();
        assert_eq!(under(&["send", &root, "more"]).exit, 0);
        assert_eq!(under(&["export", "--all", "--to", "made/out"]).exit, 0);
        // Damage, for a repair with its backup and its mark.
        match kind {
            Kind::Sqlite => {
                let conn = rusqlite::Connection::open(desk.path("made/deep/store.db")).unwrap();
                conn.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1", []).unwrap();
            }
            Kind::Jsonl => {
                let path = desk.path(&format!("made/deep/store/_root/{root}.jsonl"));
                let text = fs::read_to_string(&path).unwrap().replacen("root/opened", "root/0pened", 1);
                fs::write(&path, text).unwrap();
            }
        }
        let mended = under(&["check", "--repair", "--apply", "--json"]);
        assert_eq!(mended.exit, 0, "{mended:?}");
        assert!(mended.json()["repair"]["backup"].is_string(), "{mended:?}");
        let open = open_to_others(&desk.path("made"));
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn a_mark_or_a_backup_that_is_no_plain_file_is_written_through_by_nobody() {
    let desk = Desk::over(Kind::Jsonl);
    let store = desk.any_store();
    cli::root(&*store, "r", "a root", 100);
    store.close().unwrap();
    drop(store);
    let path = desk.path("desk/_root/r.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("root/opened", "root/0pened", 1)).unwrap();
    desk.write("precious", "untouched");
    std::os::unix::fs::symlink(desk.path("precious"), desk.path("desk/_root/r.jsonl.quarantine")).unwrap();
    let said = desk.run(&["check", "--repair", "--apply"]);
    assert!(matches!(said.exit, 0 | 7), "{said:?}");
    assert_eq!(fs::read_to_string(desk.path("precious")).unwrap(), "untouched");
    // Something that has the place of a mark is one: whoever put it there meant the session not to be used.
    assert_ne!(desk.run(&["send", "r", "hello"]).exit, 0);
}

#[test]
fn what_lies_beside_a_database_and_is_no_plain_file_is_written_through_by_nobody_and_waited_for_by_nobody() {
    let desk = Desk::over(Kind::Sqlite);
    let store = desk.any_store();
    cli::root(&*store, "r", "a root", 100);
    store.close().unwrap();
    drop(store);
    desk.write("precious", "");
    let database = desk.path("desk.db");
    for suffix in ["-wal", "-shm", "-lock"] {
        let planted = database.with_file_name(format!("desk.db{suffix}"));
        for pipe in [false, true] {
            drop(fs::remove_file(&planted));
            if pipe {
                rustix::fs::mknodat(rustix::fs::CWD, &planted, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
            } else {
                std::os::unix::fs::symlink(desk.path("precious"), &planted).unwrap();
            }
            for verb in [&["send", "r", "hello"][..], &["list"], &["check"]] {
                let said = desk.run(verb);
                assert!(said.exit != 0 && said.err.contains(&format!("its {suffix} is no regular file")), "{verb:?} {suffix}: {said:?}");
            }
            assert_eq!(fs::metadata(desk.path("precious")).unwrap().len(), 0, "{suffix}");
        }
        fs::remove_file(&planted).unwrap();
    }
    assert_eq!(desk.run(&["send", "r", "hello"]).exit, 0);
}
