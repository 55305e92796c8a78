//! Folders and files of `greenroom export` and `import` that cannot be used: what is said, and that the others go on.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use serde_json::{Value, json};

use crate::cli::{self, Desk, Said};

/// Three roots, and an export of them.
fn desk() -> Desk {
    let desk = Desk::new();
    let store = desk.store();
    for name in ["first", "second", "third"] {
        cli::root(&store, name, "a root", 100);
        cli::accept(&store, name, "m0", "Begin.");
    }
    assert_eq!(desk.run(&["export", "--all", "--to", "folder"]).exit, 0);
    desk
}

fn into_another(desk: &Desk, words: &[&str]) -> Said {
    let url = format!("sqlite:{}", desk.path("other.db").display());
    desk.run(&[words, &["--store", &url]].concat())
}

fn trouble(said: &Said, key: &str) -> Vec<Value> {
    said.json()["troubles"].as_array().unwrap().iter().map(|trouble| trouble[key].clone()).collect()
}

#[test]
fn an_export_that_finds_other_files_in_its_place_leaves_them_and_writes_the_rest() {
    let desk = desk();
    fs::create_dir_all(desk.path("out/_root")).unwrap();
    desk.write("out/_root/first.jsonl", "a diary\n");
    symlink(desk.path("elsewhere"), desk.path("out/_root/second.jsonl")).unwrap();
    insta::assert_snapshot!(desk.run(&["export", "--all", "--to", "out"]).all(), @r#"
    exit 5
    1 session in out: 1 written, 0 replaced, 0 unchanged
    ---
    out/_root/first.jsonl: the file that is there is no earlier state of session first
    out/_root/second.jsonl: a link, or no regular file, has the place of session second
    error[EXPORT_REFUSED]: 2 sessions not exported, 0 damaged
    help: export into another folder, or move away what is named above; the others were exported
    "#);
    let said = desk.run(&["export", "--all", "--to", "out", "--json"]);
    assert_eq!((said.exit, trouble(&said, "code")), (5, vec![json!("FILE_DIFFERS"), json!("FILE_FOREIGN")]));
    assert_eq!(trouble(&said, "session"), [json!("first"), json!("second")]);
    assert_eq!((said.out.lines().count(), &said.json()["unchanged"]), (1, &json!(1)), "{said:?}");
    assert_eq!(fs::read_to_string(desk.path("out/_root/first.jsonl")).unwrap(), "a diary\n");
    assert!(desk.path("out/_root/third.jsonl").is_file() && !desk.path("elsewhere").exists());
}

#[test]
fn a_damaged_file_is_told_of_and_the_others_are_imported() {
    let desk = desk();
    let path = desk.path("folder/_root/second.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("Begin.", "Began.")).unwrap();
    let said = into_another(&desk, &["import", "folder", "--json"]);
    assert_eq!((said.exit, trouble(&said, "code")), (7, vec![json!("SESSION_CORRUPT")]), "{said:?}");
    insta::assert_snapshot!(into_another(&desk, &["import", "folder"]).all(), @r#"
    exit 7
    0 imported, 2 skipped, 0 refused, 1 damaged
    ---
    folder/_root/second.jsonl:4 (byte 244): checksum mismatch
    error[IMPORT_DAMAGED]: 0 sessions refused, 1 damaged
    help: what is damaged is named above; the others were imported
    "#);
    assert_eq!(into_another(&desk, &["show", "third"]).exit, 0);
    assert_eq!(into_another(&desk, &["show", "second"]).exit, 4);
}

#[test]
fn a_file_that_may_not_be_read_is_told_of_and_the_others_are_imported() {
    let desk = desk();
    let path = desk.path("folder/_root/second.jsonl");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    let url = format!("sqlite:{}", desk.path("other.db").display());
    let Some(said) = desk.unprivileged(&["import", "folder", "--json", "--store", &url]) else { return };
    let json = said.json();
    assert_eq!((said.exit, &json["imported"], &json["damaged"]), (7, &json!(2), &json!(1)), "{said:?}");
    assert_eq!(trouble(&said, "code"), [json!("FILE_UNREADABLE")]);
    let named = "\nfolder/_root/second.jsonl: it cannot be read: ";
    assert!(said.err.contains(named) && said.err.contains("\nerror[IMPORT_DAMAGED]: "), "{said:?}");
    // Nothing is held against it once it can be read.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let said = into_another(&desk, &["import", "folder", "--json"]);
    assert_eq!((said.exit, &said.json()["imported"], &said.json()["skipped"]), (0, &json!(1), &json!(2)), "{said:?}");
}

#[test]
fn a_folder_that_cannot_be_used_fails_the_command() {
    let desk = desk();
    desk.write("file", "no folder");
    for to in ["file", "file/below"] {
        let said = desk.run(&["export", "--all", "--to", to, "--json"]);
        assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("FOLDER_FAILED")), "{said:?}");
        assert!(said.err.starts_with("error[FOLDER_FAILED]: file") && said.err.contains(" cannot be used: "), "{said:?}");
    }
    assert_eq!(fs::read(desk.path("file")).unwrap(), b"no folder");
    // A folder below that may not be looked into: neither way.
    fs::set_permissions(desk.path("folder/_root"), fs::Permissions::from_mode(0o0)).unwrap();
    let url = format!("sqlite:{}", desk.path("other.db").display());
    for words in [&["import", "folder", "--json", "--store", &url][..], &["export", "--all", "--to", "folder", "--json"]] {
        let Some(said) = desk.unprivileged(words) else { break };
        assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("FOLDER_FAILED")), "{said:?}");
        assert!(said.err.starts_with("error[FOLDER_FAILED]: folder/_root"), "{said:?}");
    }
    fs::set_permissions(desk.path("folder/_root"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(desk.run(&["export", "--all", "--to", "folder"]).exit, 0);
}
