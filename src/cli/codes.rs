//! Every error code, its exit, and what to do about it: the one table, also for the documentation.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed.
    Failed = 1,
    /// It was asked in a way that makes no sense, or the program file has mistakes.
    Usage = 2,
    /// A wait timed out.
    TimedOut = 3,
    /// What it is about does not exist.
    NotFound = 4,
    /// It is not allowed.
    NotAllowed = 5,
    /// Another process holds what it needs.
    Held = 6,
    /// Damaged data was found.
    Damaged = 7,
    /// SIGHUP ended it.
    HungUp = 129,
    /// SIGINT ended it.
    Interrupted = 130,
    /// SIGTERM ended it.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error code.
#[derive(Debug)]
pub(crate) struct Code {
    /// The name that scripts look at.
    pub(crate) name: &'static str,
    /// The exit of a command that fails with it, unless the failure says otherwise.
    pub(crate) exit: Exit,
    /// What to do.
    pub(crate) help: &'static str,
}

/// Returns what is known of a code. A behaviour may fail with a code of its own.
pub(crate) fn find(name: &str) -> &'static Code {
    static OTHER: Code = Code { name: "", exit: Exit::Failed, help: "`greenroom log ID` shows what led to it" };
    CODES.iter().find(|code| code.name == name).unwrap_or(&OTHER)
}

const fn code(name: &'static str, exit: Exit, help: &'static str) -> Code {
    Code { name, exit, help }
}

/// Every code of greenroom, in alphabetical order.
pub(crate) const CODES: &[Code] = &[
    code("ABORTED", Exit::Failed, "its turn was cancelled while the tool worked; send again what is still wanted"),
    code("ACTIVATION_CLOSING", Exit::Failed, "its epoch is about to end; ask again through its next one"),
    code("ACTIVATION_FAILED", Exit::Failed, "nothing is lost: what was under way is served again; `greenroom log ID` shows what led to it"),
    code(
        "ACTIVATION_OVERDUE",
        Exit::Failed,
        "its end did not come and was given up; what it was doing is served again; the behaviour, or what sets it up, blocks",
    ),
    code("ACTIVATION_SETUP_RELEASE_FAILED", Exit::Failed, "the session ended all the same; the failures say what its set-up has left behind"),
    code("ACTIVATION_SETUP_REVOKED", Exit::Failed, "nothing is lost: the session is started again without what was removed"),
    code("ACTIVATION_TEARDOWN_FAILED", Exit::Failed, "everybody has ended all the same; the failures say what was left behind"),
    code("AGENT_UNAVAILABLE", Exit::Usage, "this greenroom cannot play an agent of this kind; use a script or a command"),
    code("AGENT_UNKNOWN", Exit::Usage, "run with a program file that has an agent of this name; the messages wait until then"),
    code("ALIAS_TAKEN", Exit::NotAllowed, "give the child another `as`, or send to the one that has it"),
    code("ALREADY_STARTED", Exit::Failed, "it has a turn, whatever became of it; `greenroom interrupt ID` ends the turn that is under way"),
    code("AMBIGUOUS_ID", Exit::Usage, "give more characters of the id"),
    code("ATTEMPTS_EXHAUSTED", Exit::Failed, "the message ended the process three times; `greenroom log ID` shows what it did; send another one"),
    code("AUDIT_FAILED", Exit::Failed, "a promise is broken; with --store the logs stay: `greenroom log ID` shows the session, `greenroom check` the store"),
    code("BUSY", Exit::Failed, "the receiver has as many messages waiting as it takes; run it, then send again"),
    code("CANCELLED", Exit::Failed, "try again"),
    code("COMMAND_FAILED", Exit::Failed, "run the command by hand with the same input; the message ends with what it wrote to stderr"),
    code("COMMAND_IO", Exit::Failed, "look at the system's limits and permissions"),
    code("COMMAND_MISSING", Exit::Failed, "install the program, or correct `command` in the program file"),
    code("COMMAND_OUTPUT", Exit::Failed, "let the command print one JSON answer, or set `answer = \"text\"`"),
    code("COMMAND_TIMEOUT", Exit::Failed, "raise the agent's `timeout`, or find out why the command hangs"),
    code("COMPACTION_BUSY", Exit::Failed, "wait until the compaction that is under way has ended, then try again"),
    code(
        "COMPACTION_INTERRUPTED",
        Exit::Failed,
        "the process or the turn ended within the compaction; what is seen was not changed, and it may be tried again",
    ),
    code("COMPACTION_NOT_BEGUN", Exit::Failed, "begin the compaction before it is to be brought to its end"),
    code("COMPACTION_NOT_SMALLER", Exit::Failed, "write a shorter summary, or compact more messages"),
    code("COMPACTION_RANGE", Exit::Usage, "name two messages that the agent sees, the first not after the last"),
    code("COMPACTION_SPLITS_CALL", Exit::Usage, "compact a tool call together with its result, or neither"),
    code("COMPACTION_SURFACE_CHANGED", Exit::Failed, "plan the compaction anew"),
    code("COMPACTION_UNFINISHED_TURN", Exit::Usage, "leave out the message of the turn that is under way or to be repeated"),
    code("DEPTH_EXCEEDED", Exit::Failed, "raise `max_depth` in the program file, or delegate less deeply"),
    code("DESCRIPTOR_MALFORMED", Exit::Damaged, "the session's descriptor breaks the format; its log shows how"),
    code("DESCRIPTOR_UNSUPPORTED", Exit::Failed, "a newer greenroom wrote this session; use that one"),
    code("DRAINING", Exit::Failed, "the runtime is shutting down, or the tree is being drained; try again when it runs, or when its root has begun anew"),
    code("DUPLICATE_CHILD", Exit::Failed, "choose another id"),
    code("DUPLICATE_PROVIDER", Exit::Usage, "choose another name, or remove the provider that has it"),
    code("EVENT_INVALID", Exit::Failed, "this is a mistake in greenroom; please report it with the log"),
    code("EVENT_REFUSED", Exit::Failed, "look at the log: the message says what the event breaks; nothing has changed"),
    code("EVENT_TOO_DEEP", Exit::Failed, "nest the JSON at most 128 levels deep"),
    code("EVENT_TOO_LARGE", Exit::Failed, "keep each text below 16 MiB"),
    code("EVENT_UNKNOWN", Exit::Failed, "a newer greenroom wrote to this session; use that one to go on with it"),
    code("EXPORT_DAMAGED", Exit::Damaged, "what is damaged is named above; the others were exported"),
    code("EXPORT_FAILED", Exit::Failed, "look at the folder that it goes to: its disk and its permissions; then the same command again"),
    code("EXPORT_REFUSED", Exit::NotAllowed, "export into another folder, or move away what is named above; the others were exported"),
    code("FAULTS_FOUND", Exit::Damaged, "docs/check.md says of every class what to do"),
    code("FENCED", Exit::Held, "another process has taken the session over; nothing is lost"),
    code("FILES_UNREADABLE", Exit::Failed, "look at the folder and its permissions"),
    code("FILE_DIFFERS", Exit::NotAllowed, "the file may hold what the store has not; export into another folder, or move the file away"),
    code("FILE_FOREIGN", Exit::NotAllowed, "put the file itself there instead of a link to it"),
    code("FILE_MISPLACED", Exit::NotAllowed, "move the file to where its session belongs, as the message says"),
    code("FILE_UNREADABLE", Exit::Failed, "look at the file's permissions and at the disk"),
    code("FOLDER_FAILED", Exit::Failed, "look at the folder: its permissions and its disk; then the same command again"),
    code("FOLDER_IS_STORE", Exit::NotAllowed, "name another folder; `greenroom import` brings sessions into a store"),
    code("FOLDER_NOT_FOUND", Exit::NotFound, "name the folder that `greenroom export` wrote"),
    code("HAS_CHILDREN", Exit::NotAllowed, "`greenroom rm ID --tree` removes the session with everything below it"),
    code("IMPORT_DAMAGED", Exit::Damaged, "what is damaged is named above; the others were imported"),
    code("IMPORT_REFUSED", Exit::NotAllowed, "what was refused is named above and was left as it is; the others were imported"),
    code("INDETERMINATE", Exit::Failed, "it may have been done; the same again with the same --message-id is safe"),
    code("INVALID_ARGS", Exit::Failed, "the model called a tool with arguments that do not fit its schema; it is told the places"),
    code("INVALID_BOUNDARY", Exit::Usage, "name an event that the session has; `greenroom show ID` says how many there are"),
    code("INVALID_CURSOR", Exit::Usage, "give the cursor exactly as the page before printed it"),
    code("INVALID_ID", Exit::Usage, "an id has 1 to 512 bytes and no NUL character"),
    code("INVALID_LABEL", Exit::Usage, "a label has 1 to 200 characters, none of them a control, line-separator or bidi character"),
    code("INVALID_PREFIX", Exit::Failed, "the provider has a mistake: what it hands over is no beginning of a log; the message says why"),
    code("INVALID_TOOL_OUTPUT", Exit::Failed, "mend the tool: what it gave is no text or JSON that a log takes"),
    code("MESSAGE_EMPTY", Exit::Usage, "give a text, or `-` to read it from stdin"),
    code("MESSAGE_ID_CONFLICT", Exit::NotAllowed, "choose another --message-id, or send the same text"),
    code("MESSAGE_TOO_LARGE", Exit::Usage, "send at most 16 MiB; put more into a file and send its path"),
    code("MESSAGE_WITHDRAWN", Exit::Failed, "the message was taken back before it had a turn; send it again if it is needed"),
    code("MODEL_AUTH", Exit::Failed, "the provider takes the key for none of its own; set the environment variable that the program file names"),
    code("MODEL_BAD_REQUEST", Exit::Failed, "the provider takes no such request: look at the model's name and at what the message says"),
    code("MODEL_CONTENT", Exit::Failed, "what the model said cannot be read; its provider may speak another form than the one that is configured"),
    code("MODEL_CONTEXT_FULL", Exit::Failed, "the conversation is longer than the model can take in; say a smaller `window`, so that it is compacted in time"),
    code("MODEL_EMPTY_RESPONSE", Exit::Failed, "the model said nothing, three times; send the message again"),
    code("MODEL_ENDPOINT", Exit::Usage, "name an API that greenroom speaks and a `base_url` that begins with http:// or https://"),
    code("MODEL_RATE_LIMIT", Exit::Failed, "the provider takes no more requests now, and was asked three times; send the message again later"),
    code(
        "MODEL_REPLAY_DIFFERS",
        Exit::Failed,
        "the recording was made with another request in this place; the message shows the first difference: record again, or undo the change",
    ),
    code("MODEL_SERVER", Exit::Failed, "the provider failed three times; send the message again later"),
    code("MODEL_TIMEOUT", Exit::Failed, "the model took too long three times; send the message again"),
    code("MODEL_TRANSPORT", Exit::Failed, "the connection failed, or the answer broke off, three times; look at the network and at `base_url`"),
    code("NOT_ACTIVATED", Exit::NotAllowed, "`greenroom import DIR --activate` lets it run, DIR being the folder that it was imported from"),
    code("NOT_A_ROOT", Exit::NotAllowed, "`greenroom show ID` names the parent; run the root of the tree"),
    code("NOT_CONFIRMED", Exit::Failed, "nothing was removed; answer `y`, or give --yes"),
    code("NOT_DELIVERED", Exit::Failed, "nothing was written; try again"),
    code("NOT_PENDING", Exit::NotFound, "`greenroom show ID` lists the messages that wait"),
    code("NOT_RESUMABLE", Exit::NotAllowed, "`greenroom show ID` says what the session is; a one-shot child takes no further message"),
    code("NOT_RUNNING", Exit::Failed, "nothing was under way; `greenroom show ID` says what the session is doing"),
    code("NOT_STARTED", Exit::Failed, "nothing was written; try again"),
    code("NO_PROVIDER", Exit::Usage, "use one of the providers that the program file's documentation lists"),
    code("OPEN_TURN", Exit::Failed, "fork at an event before the turn's start, or after its end"),
    code("OUTPUT_FAILED", Exit::Failed, "look at where stdout goes: the disk may be full"),
    code("PANIC", Exit::Failed, "a behaviour, a provider, or what sets sessions up, has a mistake; the message says what it panicked with"),
    code("PARENT_UNAVAILABLE", Exit::NotFound, "the report of a child has nobody to go to; `greenroom check` says what became of the parent"),
    code("PENDING", Exit::Failed, "messages wait; run the session first, or discard them: `greenroom rm --discard-pending`"),
    code("PROGRAM_INVALID", Exit::Usage, "correct the program file; nothing has been run"),
    code("PROMPT_MISSING", Exit::Usage, "give --prompt, or put `prompt` into the [run] table"),
    code("RECORDING_INVALID", Exit::Damaged, "the message names the line; record again, or take the file of the version that wrote it"),
    code("RECORDING_UNAVAILABLE", Exit::Failed, "look at the file that is named: whether it is there, its permissions and its disk"),
    code("RECORD_INVALID", Exit::Failed, "what an earlier attempt recorded cannot be read back; `greenroom log ID` shows it"),
    code("SEED_UNAVAILABLE", Exit::Usage, "leave --seed out"),
    code("SEQ_CONFLICT", Exit::Held, "another writer has added to the log; try again"),
    code("SESSION_ALREADY_EXISTS", Exit::NotAllowed, "choose another id for the fork"),
    code("SESSION_CORRUPT", Exit::Damaged, "the session's record is damaged; what comes before it can still be read with `greenroom log ID`"),
    code("SESSION_EXISTS", Exit::NotAllowed, "choose another id"),
    code("SESSION_HELD", Exit::Held, "another process runs this session; send to it with `greenroom send`, or wait until it has ended"),
    code("SESSION_INVALID", Exit::Damaged, "its records do not make a session; export it again, or look for a backup"),
    code("SESSION_LIVE", Exit::Held, "it is live in this process; let go of it there first"),
    code("SESSION_NOT_FOUND", Exit::NotFound, "`greenroom list` shows the roots, `greenroom list ID` the children of one"),
    code("SESSION_NOT_LIVE", Exit::Failed, "its publication has ended; publish it again"),
    code("SESSION_QUERY_ABORTED", Exit::Failed, "try again"),
    code("SESSION_QUERY_CORRUPT_SESSION", Exit::Damaged, "the session's record is damaged; what comes before it can still be read with `greenroom log ID`"),
    code("SESSION_QUERY_EVENT_NOT_FOUND", Exit::NotFound, "`greenroom show ID` says how many events the session has"),
    code("SESSION_QUERY_INVALID_CONFIG", Exit::Usage, "give the runtime a bound within the limits that the message names"),
    code("SESSION_QUERY_INVALID_CURSOR", Exit::Usage, "give the cursor that the page before of this very list ended with"),
    code("SESSION_QUERY_INVALID_LIMIT", Exit::Usage, "ask for at least one entry"),
    code("SESSION_QUERY_INVALID_LINEAGE", Exit::Damaged, "the sessions' headers name each other as parents in a circle"),
    code("SESSION_QUERY_INVALID_SURFACE", Exit::Damaged, "the session's events do not follow from one another; `greenroom log ID` shows them up to there"),
    code("SESSION_QUERY_INVALID_WINDOW", Exit::Usage, "ask for fewer events on either side; the message says how many there may be"),
    code("SESSION_QUERY_PERSISTENCE_FAILED", Exit::Failed, "the store cannot be read; look at its disk and permissions"),
    code("SESSION_QUERY_SESSION_NOT_FOUND", Exit::NotFound, "`greenroom list` shows the roots, `greenroom list ID` the children of one"),
    code("SESSION_QUERY_SOURCE_CONFLICT", Exit::Damaged, "a header never changes: `greenroom check ID` says what is wrong with the stored one"),
    code("SESSION_QUERY_STALE_CURSOR", Exit::NotFound, "the session that the page before ended with is gone; begin the list again"),
    code("SESSION_REMOVED", Exit::NotFound, "its id is used up; `greenroom list` shows the sessions that are there"),
    code("SESSION_VERSION", Exit::Failed, "a newer greenroom wrote this session; use that one"),
    code("SIGNALLED", Exit::Interrupted, "what is pending stays pending; `greenroom run FILE.toml --root ID` goes on"),
    code("START_DEADLINE", Exit::Failed, "the machine or the disk is too slow for this load, then lower `max_live`; or a provider gives no answer"),
    code("START_FAILED", Exit::Failed, "`greenroom log ID` shows what led to it"),
    code("STORE_DAMAGED", Exit::Damaged, "restore the store from a copy; an SQLite file may be salvaged with SQLite's own tools"),
    code("STORE_FAILED", Exit::Failed, "look at the disk and at the permissions of the store's folder"),
    code("STORE_FOREIGN", Exit::Usage, "name another file or folder with --store; this one was not touched"),
    code("STORE_FULL", Exit::Failed, "make room on the disk; nothing that was accepted is lost"),
    code(
        "STORE_LOCKED",
        Exit::Held,
        "another process writes to the store: wait until it has ended, or go on with it if it is stopped (`ps`, `kill -CONT`); several may write to an `sqlite:` store",
    ),
    code("STORE_NOT_FOUND", Exit::NotFound, "name the store with --store or GREENROOM_STORE; `greenroom run` makes one"),
    code("STORE_UNSUPPORTED", Exit::Usage, "use a store that this greenroom and this file system support"),
    code("STORE_URL", Exit::Usage, "write `sqlite:PATH`, `jsonl:DIR` or `memory:`"),
    code("STORE_VERSION", Exit::Failed, "a newer greenroom wrote this store; use that one"),
    code("STRESS_FAILED", Exit::Failed, "look at what the worker wrote to stderr, and at the system's limits and permissions"),
    code("SUBAGENT_ABNORMAL", Exit::Failed, "`greenroom log ID` of the child shows what led to it"),
    code("SUBAGENT_CANCELLED", Exit::Failed, "somebody cancelled the child; delegate again if its answer is still wanted"),
    code("SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE", Exit::Failed, "build the runtime with its query service"),
    code("SUBAGENT_DECLINED", Exit::Failed, "the model of the child declined to answer; ask for something else"),
    code("SUBAGENT_FAILED", Exit::Failed, "`greenroom log ID` of the child shows what led to it"),
    code("SUBAGENT_TOKEN_LIMIT", Exit::Failed, "ask the child for less, or give its model more output tokens"),
    code("TIMED_OUT", Exit::TimedOut, "what was accepted stays accepted; ask again with more time, or look with `greenroom show ID`"),
    code("TOOL_LOAD", Exit::Usage, "the message says what the tool lacks; leave it out, or give it that"),
    code("TOOL_PANICKED", Exit::Failed, "this is a mistake of the tool; the turn goes on"),
    code("TURN_ENDED", Exit::Failed, "this is a mistake of the behaviour: it used a turn after its end"),
    code("TURN_FAILED", Exit::Failed, "`greenroom log ID` shows what led to it"),
    code("UNAUTHORIZED", Exit::NotAllowed, "only the live parent of a session, or the owner of the store, may do this"),
    code("UNKNOWN_TOOL", Exit::Failed, "the model called a tool that is not loaded, or that its session may not use"),
    code("UNSUPPORTED_CAPABILITY", Exit::Usage, "ask for less, or delegate to a provider that can do it"),
    code("USAGE", Exit::Usage, "`greenroom --help` and `greenroom VERB --help` show what can be asked"),
    code("VARIABLE_FIXED", Exit::Usage, "leave --set out, or begin a new root"),
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn codes_stand_in_order_and_once() {
        let names: Vec<_> = CODES.iter().map(|code| code.name).collect();
        let sorted: Vec<_> = names.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(names, sorted);
        assert!(CODES.iter().all(|code| !code.help.is_empty()));
    }

    fn document() -> String {
        use std::fmt::Write;

        let mut text = String::from(
            "# Errors and exit codes\n\nEvery error of `greenroom` is `error[CODE]: what happened` on stderr and `help: what to do`; with `--json` also\n`{\"error\": {\"code\", \"message\", \"help\"}}` on stdout, beside the keys of the result where a failure has one (`run`, `send --wait`, `export`, `import`, `check`, `stress`). The code is what a script may rely on. A behaviour may fail a turn with a code of its own.\n\n",
        );
        text.push_str("| exit | means |\n|---|---|\n| 0 | done |\n");
        for (exit, means) in [
            (Exit::Failed, "failed"),
            (Exit::Usage, "asked in a way that makes no sense, or the program file has mistakes"),
            (Exit::TimedOut, "a wait timed out; what was accepted stays accepted"),
            (Exit::NotFound, "no such session, message or store"),
            (Exit::NotAllowed, "not allowed"),
            (Exit::Held, "another process holds what the command needs"),
            (Exit::Damaged, "damaged data was found"),
            (Exit::HungUp, "ended by SIGHUP: the terminal was closed"),
            (Exit::Interrupted, "ended by SIGINT"),
            (Exit::Terminated, "ended by SIGTERM"),
        ] {
            writeln!(text, "| {} | {means} |", exit as u8).unwrap();
        }
        text.push_str(
            "\nA `run` that has come to its end and failed exits with 1, whatever code the turn of the root's last message or a session that cannot run has failed with.\nLater turns of the root that only take notes, of what children have done, do not make a failure good.\n",
        );
        text.push_str("\n| code | exit | what to do |\n|---|---|---|\n");
        for code in CODES {
            writeln!(text, "| `{}` | {} | {} |", code.name, code.exit as u8, code.help.replace('|', "\\|")).unwrap();
        }
        text
    }

    /// Set `GREENROOM_WRITE_DOCS` to write the page.
    #[test]
    fn the_page_of_the_documentation_is_this_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
        if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
            fs::write(&path, document()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), document(), "run with GREENROOM_WRITE_DOCS=1 to write it");
    }

    /// Reads the sources, so that a code that is added to an error enum cannot be forgotten here.
    #[test]
    fn every_code_of_the_error_enums_is_in_the_table() {
        let mut found = BTreeSet::new();
        for text in sources() {
            codes_in(&text, &mut found);
        }
        assert!(found.len() > 40, "the sources were read: {found:?}");
        let missing: Vec<_> = found.iter().filter(|name| !CODES.iter().any(|code| code.name == **name)).collect();
        assert!(missing.is_empty(), "not in the table: {missing:?}");
    }

    #[test]
    fn every_code_of_the_table_is_one_that_something_fails_with() {
        let sources = sources();
        let dead: Vec<_> = CODES.iter().map(|code| code.name).filter(|name| !sources.iter().any(|text| text.contains(&format!("\"{name}\"")))).collect();
        assert!(dead.is_empty(), "nothing fails with: {dead:?}");
    }

    /// A code is a promise to scripts, so each has a test that meets it.
    #[test]
    fn every_code_of_the_table_is_met_by_a_test() {
        let mut texts = Vec::new();
        for (folder, all) in [("src", false), ("actors/src", false), ("session/src", false), ("session/tests", true), ("tests", true)] {
            read_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), all, &mut texts);
        }
        let met = |name: &str| texts.iter().any(|text| [format!("\"{name}\""), format!("[{name}]")].iter().any(|form| text.contains(form)));
        let unmet: Vec<_> = CODES.iter().map(|code| code.name).filter(|name| !met(name)).collect();
        assert!(unmet.is_empty(), "no test meets: {unmet:?}");
    }

    /// Reads the tests below a folder, examples of the documentation that assert something among them.
    fn read_tests(folder: &Path, all: bool, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let all = all || path.file_stem().is_some_and(|name| name == "tests");
            if path.is_dir() {
                read_tests(&path, all, texts);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("cli/codes.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let examples = text.lines().filter(|line| line.trim_start().starts_with("///") && line.contains("assert"));
                texts.push(examples.collect::<Vec<_>>().join("\n"));
                let own = if all { Some(&*text) } else { text.split_once("#[cfg(test)]\nmod tests").map(|(_, tests)| tests) };
                texts.extend(own.map(str::to_owned));
            }
        }
    }

    /// Returns what the sources of all crates say, without comments and tests, and without the table itself.
    fn sources() -> Vec<String> {
        let mut texts = Vec::new();
        for folder in ["src", "actors/src", "session/src"] {
            read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut texts);
        }
        texts
    }

    fn read(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_stem().is_some_and(|name| name == "tests") {
                // Behaviours of tests fail with codes of their own.
            } else if path.is_dir() {
                read(&path, texts);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("cli/codes.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap().lines().filter(|line| !line.trim_start().starts_with("//"));
                texts.push(code.collect::<Vec<_>>().join("\n"));
            }
        }
    }

    /// Codes stand in the bodies of `fn code` and where one is made: `code: "…"`, `error("…"`, `Failure::new("…"`, `TurnError::new("…"`.
    fn codes_in(text: &str, found: &mut BTreeSet<String>) {
        let mut in_code = false;
        // Examples of the documentation fail with codes of their own.
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            if line.contains("fn code(") {
                in_code = true;
            }
            let makes = ["code: \"", "TurnEnd::error(\"", "TurnError::new(\"", "ToolError::new(\"", "Failure::new(\"", "code!(\""]
                .iter()
                .any(|make| line.contains(make));
            if in_code || makes {
                found.extend(line.split('"').skip(1).step_by(2).filter(|word| is_code(word)).map(str::to_owned));
            }
            if in_code && line == "    }" {
                in_code = false;
            }
        }
    }

    fn is_code(word: &str) -> bool {
        word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    }
}
