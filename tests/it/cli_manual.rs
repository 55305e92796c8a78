//! What a shell completes, and what the manual shows.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
};

use crate::cli::Desk;

/// Runs a program that this machine may lack; says so and returns nothing if it does.
fn run(program: &str, arguments: &[&str], desk: &Desk) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(desk.folder()).stdin(Stdio::null()).env("MANWIDTH", "100").env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8");
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: this machine has no `{program}`");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn bash_takes_its_completions_and_completes_verbs_flags_and_shells() {
    let desk = Desk::new();
    let said = desk.run(&["completions", "bash"]);
    assert_eq!((said.exit, said.err.as_str()), (0, ""));
    desk.write("greenroom.bash", &said.out);
    let complete = |words: &str, at: usize| -> Option<Vec<String>> {
        let script = format!(
            "source greenroom.bash; complete -p greenroom >&2; COMP_WORDS=({words}); COMP_CWORD={at}; _greenroom greenroom \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{}]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            at - 1
        );
        let output = run("bash", &["--norc", "-c", &script], &desk)?;
        assert!(output.status.success(), "{output:?}");
        let known = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(known.starts_with("complete ") && known.trim_end().ends_with("-F _greenroom greenroom"), "{known}");
        Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    };
    let Some(parsed) = run("bash", &["-n", "greenroom.bash"], &desk) else { return };
    assert!(parsed.status.success(), "{parsed:?}");
    let words = complete("greenroom ''", 1).unwrap();
    for verb in desk.verbs() {
        assert!(words.contains(&verb), "{verb} is not completed: {words:?}");
    }
    assert_eq!(complete("greenroom lo", 1).unwrap(), ["log"]);
    assert_eq!(complete("greenroom log --fol", 2).unwrap(), ["--follow"]);
    assert_eq!(complete("greenroom completions fi", 2).unwrap(), ["fish"]);
}

#[test]
fn every_shell_gets_a_script_that_names_every_verb_whatever_the_store() {
    let desk = Desk::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = desk.run(&["--store", "nonsense", "completions", shell]);
        assert_eq!((said.exit, said.err.as_str()), (0, ""), "{shell}");
        for verb in desk.verbs() {
            assert!(said.out.contains(&verb), "{shell}: {verb}");
        }
        let json = desk.run(&["completions", shell, "--json"]).json();
        assert_eq!(json["script"].as_str().unwrap().trim_end(), said.out.trim_end());
    }
    assert_eq!(desk.run(&["completions", "tcsh"]).exit, 2);
}

#[test]
fn the_manual_has_a_page_for_every_verb_that_anybody_may_read() {
    let desk = Desk::new();
    let said = desk.run(&["man", "pages/man1"]);
    assert_eq!((said.exit, said.err.as_str()), (0, ""));
    let names: Vec<String> = std::iter::once("greenroom".to_owned()).chain(desk.verbs().into_iter().map(|verb| format!("greenroom-{verb}"))).collect();
    let files: Vec<String> = names.iter().map(|name| format!("pages/man1/{name}.1")).collect();
    assert_eq!(said.out.lines().collect::<Vec<_>>(), files);
    for (name, file) in names.iter().zip(&files) {
        assert_eq!(fs::metadata(desk.path(file)).unwrap().permissions().mode() & 0o777, 0o644, "{file}");
        let page = fs::read_to_string(desk.path(file)).unwrap();
        assert!(page.contains(".SH EXAMPLE"), "{file}");
        let Some(shown) = run("man", &["--warnings", "-l", file], &desk) else { continue };
        let text = String::from_utf8_lossy(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
        assert!(text.contains(&format!("{name} - ")) && text.contains("greenroom "), "{text}");
    }
    // Pages that are there are replaced, and JSON names the same files.
    fs::write(desk.path(&files[0]), "old").unwrap();
    assert_eq!(desk.run(&["man", "pages/man1", "--json"]).json()["files"].as_array().unwrap().len(), files.len());
    assert!(fs::read_to_string(desk.path(&files[0])).unwrap().contains(".SH NAME"));
    assert_eq!(desk.run(&["man", "pages/man1/greenroom.1"]).exit, 1, "a file is no folder");
}
