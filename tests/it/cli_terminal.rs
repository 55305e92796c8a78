//! What the program does where somebody looks: it asks, and it shows how far it is.

use std::fs;

use serde_json::json;

use crate::cli::{self, Desk, Kind, Said, continuable};

/// What a terminal shows at the end, line by line: later writing goes over earlier. Knows what progress bars need.
fn screen(shown: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = shown.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => (row, column) = (row + 1, 0),
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "{shown:?}");
                let mut number = String::new();
                let command = loop {
                    match rest.next() {
                        Some(c) if c.is_ascii_digit() || c == ';' || c == '?' => number.push(c),
                        other => break other,
                    }
                };
                let count = number.parse::<usize>().unwrap_or(1);
                match command {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('C') => column += count,
                    Some('D') => column = column.saturating_sub(count),
                    Some('K') if number == "2" => rows[row].clear(),
                    Some('K') => rows[row].truncate(column),
                    Some('m' | 'h' | 'l') => {}
                    other => panic!("what does {other:?} do in {shown:?}?"),
                }
            }
            c => {
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    let mut lines: Vec<String> = rows.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[test]
fn a_removal_is_asked_for_and_only_yes_is_yes() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let store = desk.any_store();
        cli::root(&*store, "desk", "a desk", 100);
        cli::child(&*store, "child", "desk", &continuable("a child"), 200);
        store.close().unwrap();
        drop(store);
        let before = desk.run(&["tree", "--json"]);
        let bytes = desk.bytes();
        for answer in ["n\n", "\n", "", "yess\n"] {
            let Some(said) = desk.on_terminal("$G rm desk --tree", answer) else { return };
            assert_eq!(said.exit, 1, "{answer:?} {said:?}");
            let lines = screen(&said.out);
            // What was typed may stand before it.
            assert!(lines.iter().any(|line| line == "Remove session desk and 1 session below it for ever? [y/N]"), "{lines:#?}");
            assert_eq!(
                lines[lines.len() - 2..],
                ["error[NOT_CONFIRMED]: the answer was not `y`", "help: nothing was removed; answer `y`, or give --yes"],
                "{answer:?}"
            );
            assert_eq!(desk.run(&["tree", "--json"]), before, "{answer:?}");
            assert!(desk.bytes() == bytes, "{answer:?}: it has written");
        }
        // The document goes where stdout goes, the question to who looks.
        let said = desk.on_terminal("$G rm child --json >out.json", "n\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(desk.path("out.json")).unwrap()).unwrap();
        assert_eq!((said.exit, &json["error"]["code"]), (1, &json!("NOT_CONFIRMED")), "{said:?}");
        assert!(screen(&said.out).iter().any(|line| line == "Remove session child for ever? [y/N]"), "{said:?}");
        // Nobody is asked who cannot see the question, or cannot answer.
        for line in ["$G rm desk --tree 2>err", "$G rm desk --tree </dev/null"] {
            let said = desk.on_terminal(line, "y\n").unwrap();
            assert_eq!(said.exit, 2, "{line}: {said:?}");
        }
        assert_eq!(desk.run(&["tree", "--json"]), before);
        for (id, answer, left) in [("child", "y\n", 1), ("desk", "yes\n", 0)] {
            let said = desk.on_terminal(&format!("$G rm {id}"), answer).unwrap();
            assert_eq!((said.exit, screen(&said.out).last().unwrap().as_str()), (0, format!("removed {id}").as_str()), "{said:?}");
            assert_eq!(desk.run(&["tree", "--json"]).json()["entries"].as_array().unwrap().len(), left);
        }
    }
}

/// Two roots, each with a child, in the way that a run leaves them, and a program to run.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write(
        "go.toml",
        r#"
        run = { root = "editor", prompt = "Go." }
        [agents.editor]
        behavior = "script"
        turns = [[
          { repeat = { times = 5, steps = [{ delegate = { agent = "reporter", description = "one more", prompt = "Go." } }] } },
          { await = "children" },
          { say = "done" },
        ]]
        [agents.reporter]
        behavior = "script"
        turns = [[{ report = "found" }]]
        "#,
    );
    assert_eq!(desk.run(&["run", "go.toml"]).exit, 0);
    assert_eq!(desk.run(&["export", "--all", "--to", "folder"]).exit, 0);
    desk
}

/// What a bar is drawn with.
const BAR: &str = "━";

#[test]
fn a_bar_is_shown_where_somebody_looks_and_taken_away_at_the_end() {
    let desk = desk();
    let root = desk.run(&["list", "--json"]).json()["entries"][0]["id"].as_str().unwrap().to_owned();
    for words in [
        "run go.toml",
        "import folder --store sqlite:other.db",
        "export --all --to out",
        "check",
        "stress --agents 8 --messages 20 --senders 2",
        &format!("rm {root} --tree --yes --store sqlite:other.db"),
    ] {
        let Some(said) = desk.on_terminal(&format!("$G {words} >out.txt"), "") else { return };
        assert_eq!(said.exit, 0, "{words}: {said:?}");
        assert!(said.out.contains(BAR), "{words} showed no bar: {said:?}");
        assert!(!said.out.contains("/0 ") && !said.out.contains("·  ·"), "{words} showed a bar of nothing: {said:?}");
        let lines = screen(&said.out);
        assert!(!lines.iter().any(|line| line.contains(BAR) || line.is_empty()), "{words} left something: {lines:#?}");
        let out = fs::read_to_string(desk.path("out.txt")).unwrap();
        assert!(!out.contains(['\u{1b}', '\r']) && !out.contains(BAR), "{words}: {out:?}");
        // What has been done is done, so that this one may fail; a document it has all the same, and the terminal is as tidy.
        let said = desk.on_terminal(&format!("$G {words} --json >out.json"), "").unwrap();
        let out = fs::read_to_string(desk.path("out.json")).unwrap();
        assert!(out.lines().count() == 1 && serde_json::from_str::<serde_json::Value>(&out).unwrap().is_object(), "{words}: {out:?}");
        assert!(!screen(&said.out).iter().any(|line| line.contains(BAR)), "{words}: {said:?}");
    }
}

#[test]
fn what_has_no_length_has_no_bar() {
    let desk = Desk::new();
    desk.write(
        "alone.toml",
        "run = { root = \"editor\", prompt = \"Go.\" }\nagents.editor = { behavior = \"script\", turns = [[{ sleep = \"300ms\" }, { say = \"done\" }]] }\n",
    );
    let Some(said) = desk.on_terminal("$G run alone.toml", "") else { return };
    assert_eq!(said.exit, 0, "{said:?}");
    assert!(said.out.contains("1 turn") && !said.out.contains(BAR), "{said:?}");
}

#[test]
fn a_finding_beside_a_bar_stays_on_the_screen() {
    let desk = desk();
    cli::child(&desk.store(), "orphan", "nobody", &continuable("lost"), 100);
    let Some(Said { exit, out, .. }) = desk.on_terminal("$G check --color never", "") else { return };
    let lines = screen(&out);
    assert_eq!((exit, lines.len()), (0, 2), "{lines:#?}");
    assert_eq!(lines[0], "orphan header: orphan: its parent nobody is not in the store");
}
