//! Errors of the command line: where they go, what they say, how they end it.

use std::{fs, process::Stdio};

use serde_json::json;

use crate::cli::{self, Desk, Said};

#[test]
fn a_usage_error_is_an_error_like_any_other() {
    let desk = Desk::new();
    insta::assert_snapshot!(desk.run(&["list", "--limt", "3"]).all(), @r#"
    exit 2
    ---
    error[USAGE]: unexpected argument '--limt' found
    help: a similar argument exists: '--limit'
          Usage: greenroom list --limit <N> [PARENT]
    "#);
    let said = desk.run(&["list", "--limit", "0", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (2, &json!("USAGE")));
    assert_eq!(desk.run(&["bark"]).exit, 2);
    let nothing = desk.run(&[]);
    assert_eq!((nothing.exit, nothing.out.as_str()), (2, ""));
    assert!(nothing.err.contains("Usage: greenroom") && nothing.err.contains("error[USAGE]: no verb was given\n"), "{nothing:?}");
    assert_eq!(desk.run(&["send", "--json", "x"]).json()["error"]["code"], "USAGE");
}

#[test]
fn what_is_missing_is_named_and_nothing_else() {
    let desk = Desk::new();
    let url = desk.url();
    for words in [&["send", "abcd"][..], &["send", "abcd", "--store", &url]] {
        let mut command = desk.command(words);
        let said = Said::of(&command.env("GREENROOM_STORE", &url).output().unwrap());
        insta::allow_duplicates! {
            insta::assert_snapshot!(said.all(), @r#"
            exit 2
            ---
            error[USAGE]: the following required arguments were not provided:
              <TEXT>
            help: Usage: greenroom send <ID> <TEXT>
            "#);
        }
    }
    insta::assert_snapshot!(desk.run(&["export", "--to", "backup"]).all(), @r#"
    exit 2
    ---
    error[USAGE]: the following required arguments were not provided:
      <ID|--all>
    help: Usage: greenroom export --to <DIR> <ID|--all>
    "#);
    assert_eq!(desk.run(&["export", "abcd", "--all", "--to", "backup"]).exit, 2);
}

#[test]
fn help_is_a_verb_too() {
    let desk = Desk::new();
    assert_eq!(desk.run(&["help"]), desk.run(&["--help"]));
    for verb in desk.verbs() {
        let said = desk.run(&["help", &verb]);
        assert_eq!((said.exit, &said), (0, &desk.run(&[&verb, "--help"])));
    }
    assert_eq!(desk.run(&["help", "bark"]), desk.run(&["bark"]));
    assert_eq!(desk.run(&["help", "bark", "--json"]).json()["error"]["code"], "USAGE");
}

#[test]
fn every_verb_shows_an_example() {
    let desk = Desk::new();
    for verb in desk.verbs() {
        let said = desk.run(&[&verb, "--help"]);
        assert_eq!((said.exit, said.err.as_str()), (0, ""));
        assert!(said.out.contains(&format!("Example:\n  greenroom {verb}")), "{}", said.out);
    }
    assert!(desk.run(&["--version"]).out.starts_with("greenroom "));
}

#[test]
fn a_store_that_is_missing_is_not_made() {
    let desk = Desk::new();
    for words in [
        &["list"][..],
        &["tree"],
        &["show", "abcd"],
        &["log", "abcd"],
        &["send", "abcd", "hello"],
        &["run", "x.toml", "--root", "abcd"],
        &["interrupt", "abcd"],
        &["withdraw", "abcd", "efgh"],
        &["export", "--all", "--to", "backup"],
        &["rm", "abcd", "--yes"],
        &["check"],
        &["check", "--rebuild-index"],
    ] {
        desk.write("x.toml", "run = { root = 'a' }\nagents = { a = { behavior = 'script', turns = [] } }");
        let said = desk.run(words);
        assert_eq!((said.exit, said.out.as_str()), (4, ""), "{words:?} {said:?}");
        assert!(said.err.starts_with("error[STORE_NOT_FOUND]: "), "{said:?}");
    }
    fs::remove_file(desk.path("x.toml")).unwrap();
    assert_eq!(fs::read_dir(desk.folder()).unwrap().count(), 0);
    assert_eq!(desk.run(&["list", "--store", "memory:"]).exit, 4);
    let said = desk.run(&["list", "--store", "nonsense", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (2, &json!("STORE_URL")));
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let desk = Desk::new();
    for content in [&b""[..], b"a diary", b"SQLite format 3\0"] {
        fs::write(desk.path("desk.db"), content).unwrap();
        for words in [&["list"][..], &["send", "abcd", "hello"]] {
            let said = desk.run(words);
            assert_eq!(said.exit, 2, "{said:?}");
            assert!(said.err.starts_with("error[STORE_FOREIGN]: "), "{said:?}");
        }
        assert_eq!(fs::read(desk.path("desk.db")).unwrap(), content);
    }
}

#[test]
fn an_ambiguous_prefix_lists_the_candidates() {
    let desk = Desk::new();
    let store = desk.store();
    for name in ["abcd-1", "abcd-2", "abce-1"] {
        cli::root(&store, name, "a root", 100);
    }
    insta::assert_snapshot!(desk.run(&["show", "abcd"]).all(), @r#"
    exit 2
    ---
    error[AMBIGUOUS_ID]: "abcd" begins the ids of several sessions:
      abcd-1
      abcd-2
    help: give more characters of the id
    "#);
    assert_eq!(desk.run(&["show", "abcd", "--json"]).json()["candidates"], json!(["abcd-1", "abcd-2"]));
    assert_eq!(desk.run(&["list", "abce"]).out, "(no subagents)\n");
    assert_eq!(desk.run(&["list", "abc"]).exit, 4, "three characters are too few");
    let said = desk.run(&["list", "--cursor", "nonsense", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (2, &json!("INVALID_CURSOR")));
}

#[test]
fn every_mistake_of_a_program_is_told_before_anything_runs() {
    let desk = Desk::new();
    desk.write("bad.toml", "[run]\nroot = \"editor\"\nmax_live = 0\n\n[agents.writer]\nbehavior = \"skript\"\n");
    let said = desk.run(&["run", "bad.toml"]);
    assert_eq!((said.exit, said.out.as_str()), (2, ""));
    let places = said.err.lines().filter(|line| line.starts_with("bad.toml:")).count();
    assert!(places >= 2, "{said:?}");
    assert!(said.err.contains("error[PROGRAM_INVALID]: bad.toml has "), "{said:?}");
    assert!(!desk.path("desk.db").exists());
    let json = desk.run(&["run", "bad.toml", "--json"]).json();
    assert_eq!(json["findings"].as_array().unwrap().len(), places);
    assert_eq!(desk.run(&["run", "missing.toml"]).exit, 2);
}

#[test]
fn a_value_that_makes_no_glob_is_told_before_anything_runs() {
    let desk = Desk::new();
    desk.write(
        "files.toml",
        "run = { root = 'a', prompt = 'go' }\nvars = { files = '*.md', dir = { path = '.' } }\n[agents.a]\nbehavior = 'script'\nturns = [[{ for_each = { dir = '{dir}', files = '{files}', steps = [{ memo = '{file}' }] } }]]\n",
    );
    for (value, says) in [
        ("[", "error[PROGRAM_INVALID]: the variables make no glob of \"{files}\": the glob \"[\" is not valid: "),
        ("", "error[PROGRAM_INVALID]: the variables make no glob of \"{files}\": the glob \"\" names no file\n"),
        (
            "/etc/*",
            "error[PROGRAM_INVALID]: the variables make \"/etc/*\" of \"{files}\": a text must not lead out of the folder; use a variable { path = \"..\" } for that\n",
        ),
        (
            "../*",
            "error[PROGRAM_INVALID]: the variables make \"../*\" of \"{files}\": a text must not lead out of the folder; use a variable { path = \"..\" } for that\n",
        ),
    ] {
        let said = desk.run(&["run", "files.toml", "--set", &format!("files={value}")]);
        assert_eq!((said.exit, said.out.as_str()), (2, ""), "{said:?}");
        assert!(said.err.starts_with(says), "{said:?}");
        assert_eq!(desk.run(&["list", "--json"]).json()["entries"], json!([]), "no root was opened");
    }
    let said = desk.run(&["run", "files.toml", "--set", "files=*.toml", "--set", "dir=."]);
    assert_eq!(said.exit, 0, "{said:?}");
}

#[test]
fn a_reader_of_stdout_that_has_gone_is_no_panic() {
    let desk = Desk::new();
    let store = desk.store();
    for n in 0..50 {
        cli::root(&store, &format!("root-{n}"), &"x".repeat(200), 100);
    }
    let mut child = desk.command(&["list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!((said.exit, said.err.as_str()), (0, ""));
    let full = desk.command(&["list"]).stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
    let said = Said::of(&full);
    assert!(said.exit == 1 && said.err.starts_with("error[OUTPUT_FAILED]: "), "{said:?}");
}

#[test]
fn colours_come_only_when_they_are_asked_for() {
    let desk = Desk::new();
    let plain = desk.run(&["list"]);
    let loud = desk.run(&["list", "--color", "always"]);
    assert!(!plain.err.contains('\u{1b}') && loud.err.contains("\u{1b}[31merror[STORE_NOT_FOUND]"), "{loud:?}");
    assert!(!desk.run(&["list", "--color", "always", "--json"]).out.contains('\u{1b}'));
}
