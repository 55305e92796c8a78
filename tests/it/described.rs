//! What a delegation says of its child, however much and of whatever characters: it goes from one store to another and is shown by every verb.

use greenroom::{
    Delegate, Runtime, SessionId, Turn, TurnEnd,
    actors::host::NewRoot,
    session::{
        descriptor::{Descriptor, ModelRoute, ToolFilter},
        fold::DescriptorState,
    },
};
use serde_json::{Value, json};

use crate::cli::{Desk, Kind, id};

/// Every character that has hurt somebody, and a mebibyte of them.
fn odd(bytes: usize) -> String {
    let all = "\0\u{1}\u{7}\u{8}\t\n\r\u{1b}[31m\u{7f}\u{85}\u{9b}\"\\/\u{2028}\u{202e}\u{feff}\u{fffd}\u{1f600}e\u{301}\u{10ffff}";
    all.repeat(bytes / all.len() + 1)
}

fn delegates() -> Vec<Delegate> {
    let plain = |label: &str| Delegate::new("clerk", label, "go");
    let names = (0..2_000).map(|n| format!("tool {n} \u{1b}]0;{n}\u{7}")).collect::<Vec<_>>();
    vec![
        plain("plain"),
        plain("persona").persona(odd(1 << 20)),
        plain("route").model(ModelRoute { provider: Some(odd(1 << 14)), name: odd(1 << 14) }),
        plain("one tool").tool_filter(ToolFilter { allow: Some(vec![odd(1 << 14)]), deny: Some(Vec::new()) }),
        plain("many tools").tool_filter(ToolFilter { allow: None, deny: Some(names) }),
        plain("numbers").params(json!({ odd(64): [0.1, 1e300, 5e-324, 9_007_199_254_740_991_u64, null, { "": odd(64) }] })),
    ]
}

fn new_root() -> NewRoot {
    let mut new = NewRoot::new("clerk", "a desk");
    new.id = Some(id("desk"));
    new.opened.model = Some(ModelRoute { provider: None, name: odd(1 << 10) });
    new
}

/// Plays a root that has its children made, each in both modes, and returns what each is by its log.
async fn lived(desk: &Desk) -> Vec<(SessionId, Descriptor)> {
    let clerk = |turn: Turn| async move {
        turn.say("done")?;
        Ok(TurnEnd::Completed)
    };
    let runtime: Runtime = Runtime::builder().closure("clerk", clerk).start(desk.any_store().into()).await.unwrap();
    let new = new_root();
    let desk = runtime.host().root(new).await.unwrap();
    let mut children = Vec::new();
    for delegate in delegates() {
        children.push(desk.agent().start_continuable(delegate.clone()).await.unwrap().child);
        let run = desk.agent().start(delegate).await.unwrap();
        assert_eq!(run.result().await.unwrap().text, "done");
        children.push(run.id().clone());
    }
    assert_eq!(desk.quiescent().await.unwrap(), []);
    drop(desk);
    let mut found = Vec::new();
    for child in children {
        let log = runtime.host().load(&child).await.unwrap();
        let DescriptorState::One { parsed: Ok(descriptor), .. } = log.fold.descriptor() else { panic!("{child} has no descriptor") };
        found.push((child, Descriptor::clone(descriptor)));
    }
    runtime.shutdown().await;
    found
}

#[tokio::test]
async fn whatever_is_said_of_a_child_survives_every_store_and_every_verb() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let children = lived(&desk).await;
        for ((_, descriptor), delegate) in children.iter().zip(delegates().iter().flat_map(|delegate| [delegate, delegate])) {
            let said = (&descriptor.persona, &descriptor.tool_filter, &descriptor.params);
            assert!(said == (&delegate.persona, &delegate.tool_filter, &delegate.params), "{:?} on {kind:?}", delegate.label);
            assert!(descriptor.model.is_some() && (delegate.model.is_none() || descriptor.model == delegate.model), "{:?} on {kind:?}", delegate.label);
        }
        let check = desk.run(&["check", "--json"]);
        assert_eq!(check.exit, 0, "{}", check.err);
        assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
        for other in Kind::ALL {
            let url = match other {
                Kind::Sqlite => format!("sqlite:{}", desk.path("other.db").display()),
                Kind::Jsonl => format!("jsonl:{}", desk.path("other").display()),
            };
            let there = |words: &[&str]| desk.run(&[words, &["--store", &url]].concat());
            assert_eq!(there(&["import", "out", "--activate"]).exit, 0, "{kind:?} to {other:?}");
            assert_eq!(there(&["check"]).exit, 0, "{kind:?} to {other:?}");
            for (child, descriptor) in &children {
                let log = there(&["log", child.as_str(), "--json"]);
                let first: Value = serde_json::from_str(log.out.lines().next().unwrap()).unwrap();
                assert!(first["data"] == serde_json::to_value(descriptor).unwrap(), "{:?} from {kind:?} to {other:?}", descriptor.label);
                assert!(there(&["show", child.as_str(), "--json"]).json().is_object());
                for verb in ["log", "show"] {
                    let said = there(&[verb, child.as_str()]);
                    assert!(said.exit == 0 && !said.out.chars().any(|c| c.is_control() && c != '\n'), "{verb} of {:?}", descriptor.label);
                }
            }
            assert!(there(&["list", "--json"]).json().is_object());
            let below = there(&["list", "desk", "--all", "--json"]).json();
            assert_eq!(below["entries"].as_array().map(Vec::len), Some(children.len()), "{kind:?} to {other:?}");
            assert!(there(&["tree", "desk", "--json"]).json().is_object());
            assert_eq!(there(&["tree", "desk"]).exit, 0);
        }
    }
}
