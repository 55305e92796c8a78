//! What commands get and what becomes of their answers.

use serde_json::{Value, json};

use super::World;

/// One command agent as the root.
fn command(script: &str, more: &str) -> String {
    format!("[agents.root]\nbehavior = \"command\"\n{more}\ncommand = [\"sh\", \"-c\", '''{script}''']\n")
}

#[tokio::test]
async fn text_is_said_and_in_a_child_reported() {
    let agents = "
[agents.child]
behavior = 'command'
answer = 'text'
command = ['sh', '-c', 'printf \"one\\ntwo\\n\\n\"']
[agents.root]
behavior = 'script'
turns = [[{ delegate = { agent = 'child', description = 'd', prompt = 'p' } }, { await = 'children' }, { say = '{reports}' }]]";
    let play = World::new().play(agents).await;
    let root = play.tell(&["go"]).await;
    let child = play.child(&root, "d").await;
    assert_eq!(play.said(&child).await, ["one\ntwo"]);
    assert_eq!(play.said(&root).await, ["d   one\n    two"]);
}

#[tokio::test]
async fn a_root_in_text_mode_reports_to_nobody() {
    let play = World::new().play(&command("echo hi", "answer = 'text'")).await;
    let root = play.tell(&["go"]).await;
    assert_eq!((play.said(&root).await, play.ends(&root).await), (vec!["hi".to_owned()], vec!["completed".to_owned()]));
}

#[tokio::test]
async fn an_answer_in_json_has_every_effect_and_notes_run_the_command_again() {
    let world = World::new();
    world.write(
        "root.sh",
        r#"cat > "in$GREENROOM_TURN.json"
case $GREENROOM_TURN in
1) printf '%s' '{"say": "s", "memo": "m", "delegate": [{"agent": "child", "as": "c", "description": "a\nb", "prompt": "p", "params": {"n": 1}}], "send": [{"to": "c", "message": "again"}]}' ;;
*) printf '{}' ;;
esac"#,
    );
    let agents = "
[vars]
city = 'Lyon'
[agents.child]
behavior = 'command'
env = { N = '{params.n}', NONE = '{params.none}', CITY = '{city}' }
command = ['sh', '-c', 'printf \"{\\\"report\\\": \\\"%s [%s] %s %s\\\"}\" \"$N\" \"$NONE\" \"$CITY\" \"$GREENROOM_MESSAGE\"']
[agents.root]
behavior = 'command'
command = ['sh', 'root.sh']";
    let play = world.play(agents).await;
    let root = play.tell(&["go"]).await;
    let child = play.child(&root, "a\\nb").await;
    assert_eq!((play.said(&root).await, play.memos(&root).await), (vec!["s".to_owned()], vec!["m".to_owned()]));
    assert_eq!(play.ends(&child).await, ["completed", "completed"]);

    let first: Value = serde_json::from_str(&world.read("in1.json")).unwrap();
    assert_eq!(first["session"], json!(root));
    assert_eq!((&first["parent"], &first["depth"], &first["turn"], &first["attempt"]), (&json!(null), &json!(0), &json!(1), &json!(1)));
    assert_eq!((&first["params"], &first["notes"], &first["children"], &first["vars"]), (&json!(null), &json!([]), &json!([]), &json!({"city": "Lyon"})));
    assert_eq!((&first["message"]["text"], &first["message"]["source"]), (&json!("go"), &json!({"kind": "user"})));
    assert_eq!(first["history"].as_array().unwrap().len(), 1);

    let second: Value = serde_json::from_str(&world.read("in2.json")).unwrap();
    assert_eq!(second["message"], json!(null));
    assert_eq!(second["notes"][0]["text"], json!("1 [] Lyon p"));
    assert_eq!(second["notes"][0]["source"], json!({"kind": "subagent-report", "session": child}));
    assert_eq!((&second["children"][0]["id"], &second["children"][0]["as"], &second["children"][0]["label"]), (&json!(child), &json!("c"), &json!("a\\nb")));
}

#[tokio::test]
async fn every_failure_has_a_code_and_a_reason_and_the_queue_goes_on() {
    for (script, more, expected) in [
        ("echo sorry >&2; exit 3", "", "COMMAND_FAILED: the command failed with exit status: 3: sorry"),
        ("kill -9 $$", "", "COMMAND_FAILED: the command failed with signal: 9 (SIGKILL)"),
        ("exec sleep 600", "timeout = '50ms'", "COMMAND_TIMEOUT: the command was still running after 50ms"),
        ("echo garbage", "", "COMMAND_OUTPUT: the answer is not valid: expected a JSON object, found `g` at line 1 column 1"),
        ("printf '\\377'", "answer = 'text'", "COMMAND_OUTPUT: the answer is not UTF-8: the first bad byte is at offset 0"),
        ("head -c 100000000 /dev/zero", "answer = 'text'", "COMMAND_OUTPUT: the command wrote more than 4194304 bytes to its standard output"),
        ("head -c 4000000 /dev/zero", "answer = 'text'", "COMMAND_OUTPUT: the answer takes 24000002 bytes in the log, the most is 16777216"),
        ("echo '{\"end\": \"failed\"}'", "", "COMMAND_FAILED: the command said that its turn failed"),
        ("echo '{\"report\": \"r\"}'", "", "UNAUTHORIZED: "),
        ("echo '{\"send\": [{\"to\": \"nobody\", \"message\": \"m\"}]}'", "", "NOT_RESUMABLE: "),
        ("echo '{\"delegate\": [{\"agent\": \"nobody\", \"description\": \"d\", \"prompt\": \"p\"}]}'", "", "AGENT_UNKNOWN: "),
    ] {
        let play = World::new().play(&command(script, more)).await;
        let root = play.tell(&["a", "b"]).await;
        let ends = play.ends(&root).await;
        assert_eq!(ends.len(), 2, "{script}");
        assert!(ends.iter().all(|end| end.starts_with(expected)), "{script}: {ends:?}");
    }
}

#[tokio::test]
async fn a_missing_command_says_so() {
    let play = World::new().play("[agents.root]\nbehavior = 'command'\ncommand = ['no-such-program-anywhere']").await;
    let root = play.tell(&["a"]).await;
    assert_eq!(play.ends(&root).await, ["COMMAND_MISSING: cannot run `no-such-program-anywhere`: it is not in PATH"]);
}

#[tokio::test]
async fn an_interrupt_ends_the_command() {
    let world = World::new();
    let play = world.play(&command("[ $GREENROOM_TURN = 2 ] || { touch started; exec sleep 600; }; echo '{}'", "")).await;
    let root = play.runtime.root("root", "root").await.unwrap();
    root.send("a").await.unwrap();
    root.send("b").await.unwrap();
    while !world.dir.path().join("started").exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(play.runtime.interrupt(root.id(), std::time::Duration::from_secs(60)).await.unwrap(), 1);
    root.quiescent().await.unwrap();
    assert_eq!(play.ends(root.id()).await, ["aborted", "completed"]);
}
