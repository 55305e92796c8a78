//! A disk that is really full: a small file system in memory, with more and less room left.

use std::{fs, process::Command};

use super::running::{PROGRAM, is_done};
use crate::{
    audit,
    cli::{Desk, Kind, Said},
};

/// Mounts a file system of 2 MiB at `$D`, which nobody else sees, and plays there. Every word goes into a file that can be looked at afterwards, and so does the store.
const SCRIPT: &str = r#"
set -u
mkdir -p "$D" && mount -t tmpfs -o size=2m none "$D" || exit 77
cd "$D"
say() { name=$1; shift; "$@" >"$OUT/$name.out" 2>"$OUT/$name.err"; echo $? >"$OUT/$name.exit"; }
root() { "$G" --store "$S" list --json 2>"$OUT/list.err" | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -n 1; }

say first "$G" --store "$S" run "$P"
cat /dev/zero >ballast 2>"$OUT/cat.err"
long=$(head -c 20000 /dev/zero | tr '\0' x)
say send-full "$G" --store "$S" send "$(root)" "$long" --message-id m1
say run-full "$G" --store "$S" run "$P" --root "$(root)" --prompt again
rm ballast
say send "$G" --store "$S" send "$(root)" "$long" --message-id m1
say run "$G" --store "$S" run "$P" --root "$(root)"
say check "$G" --store "$S" check
cp -r "$D" "$OUT/store"

# The same with a little room, so that it comes to an end anywhere in a run.
for room in 4 12 20 28 36 44 52 60 68 76 84 92 100 116 132 148; do
    rm -rf "$D"/*
    cat /dev/zero >ballast 2>"$OUT/cat.err"
    truncate -s -${room}K ballast
    say "tight-$room" "$G" --store "$S" run "$P"
    rm ballast
    if [ -n "$(root)" ]; then set -- --root "$(root)"; else set --; fi
    say "after-$room" "$G" --store "$S" run "$P" "$@"
    say "check-$room" "$G" --store "$S" check
done
"#;

/// Plays on a full disk; None, with a word about it, where this machine lets nobody mount anything.
fn played(kind: Kind) -> Option<Desk> {
    let desk = Desk::over(kind);
    desk.write("story.toml", PROGRAM);
    fs::create_dir(desk.path("out")).unwrap();
    let store = if kind == Kind::Sqlite { "sqlite:desk.db" } else { "jsonl:desk" };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", SCRIPT]);
    command
        .env("D", desk.path("full"))
        .env("OUT", desk.path("out"))
        .env("G", env!("CARGO_BIN_EXE_greenroom"))
        .env("S", store)
        .env("P", desk.path("story.toml"));
    let output = command.output();
    match output {
        Ok(output) if output.status.success() => Some(desk),
        other => {
            eprintln!("skipped: nothing can be mounted here: {other:?}");
            None
        }
    }
}

fn said(desk: &Desk, name: &str) -> Said {
    let read = |ending: &str| fs::read_to_string(desk.path(&format!("out/{name}.{ending}"))).unwrap();
    Said { exit: read("exit").trim().parse().unwrap(), out: read("out"), err: read("err") }
}

fn full(kind: Kind) {
    let Some(desk) = played(kind) else { return };
    assert!(is_done(&said(&desk, "first")), "{:?}", said(&desk, "first"));
    let refused = said(&desk, "send-full");
    assert!(refused.exit == 1 && refused.err.contains("error[STORE_FULL]"), "{refused:?}");
    let failed = said(&desk, "run-full");
    assert!(failed.exit == 1 && failed.err.contains("STORE_FULL"), "{failed:?}");
    for name in ["send", "run", "check"] {
        assert_eq!(said(&desk, name).exit, 0, "{name}: {:?}", said(&desk, name));
    }
    let store = desk.path("out/store");
    let sessions = if kind == Kind::Sqlite { audit::read(&store.join("desk.db")) } else { audit::read_jsonl(&store.join("desk")) };
    assert_eq!(sessions.len(), 3);
    for session in &sessions {
        session.check_finished();
        let is_root = session.parent.is_none();
        assert!(session.ends().iter().all(|end| end.as_deref() == Some("completed")), "{}: {:?}", session.id, session.ends());
        assert_eq!(session.inbox.iter().filter(|accepted| accepted.id == "m1").count(), usize::from(is_root));
    }
    let mut cut_off = 0;
    for entry in fs::read_dir(desk.path("out")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(room) = name.strip_prefix("tight-").and_then(|rest| rest.strip_suffix(".exit")) else { continue };
        let [tight, after, check] = ["tight", "after", "check"].map(|step| said(&desk, &format!("{step}-{room}")));
        assert!(!tight.err.contains("panicked"), "{tight:?}");
        cut_off += usize::from(tight.exit != 0);
        assert!(is_done(&after), "{room} KB: {tight:?}, then {after:?}");
        assert_eq!(check.exit, 0, "{room} KB: {check:?}");
    }
    assert!(cut_off > 2, "the disk was never full");
}

#[test]
fn on_a_full_disk_a_database_refuses_and_when_there_is_room_everything_goes_on() {
    full(Kind::Sqlite);
}

#[test]
fn on_a_full_disk_a_folder_refuses_and_when_there_is_room_everything_goes_on() {
    full(Kind::Jsonl);
}
