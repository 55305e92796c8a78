//! What a delegation says of a child: what is refused before anybody is asked, what is recorded and found again, what a child has of its parent, and ids that are reserved.

use greenroom::{
    Delegate, Delegated, RuntimeBuilder, Turn, TurnEnd as Ended,
    actors::host::NewRoot,
    provider::{Capabilities, FORK, SPAWN},
};
use greenroom_session::{
    descriptor::{ModelRoute, ToolFilter},
    event::{Body, Event, SurfaceOp},
    id::SessionId,
    message::text_of,
    store::{Op, Remove},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    providers::{Copier, below, boss, delegate, desk, with_boss},
    publish::{events, sound, types},
    world::{World, sid},
};

crate::on_every_store!(async
    what_is_wrong_with_a_delegation_is_told_before_anybody_is_asked,
    a_child_is_no_deeper_than_everybody_allows,
    what_a_delegation_says_is_recorded_once_and_found_by_any_process,
    a_model_route_is_the_parents_own_unless_another_is_said,
    a_fork_begins_with_what_its_parent_has_come_to_the_end_of,
    a_reserved_id_is_one_child,
    a_reserved_id_is_one_child_over_all_turns,
);

/// Plays `teller`, which says what it was created with.
fn cast() -> RuntimeBuilder {
    World::builder().closure("teller", |turn: Turn| async move {
        turn.say(json!({ "model": turn.model(), "persona": turn.persona(), "tools": turn.tool_filter() }).to_string())?;
        Ok(Ended::Completed)
    })
}

fn teller(label: &str) -> Delegate {
    Delegate::new("teller", label, "begin")
}

fn filter(allow: Option<&[&str]>, deny: Option<&[&str]>) -> ToolFilter {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ToolFilter { allow: allow.map(owned), deny: deny.map(owned) }
}

fn route(provider: Option<&str>, name: &str) -> ModelRoute {
    ModelRoute { provider: provider.map(str::to_owned), name: name.to_owned() }
}

/// Returns the only descriptor of a child, and where it stands.
fn descriptor_of(world: &World, child: &SessionId) -> (u64, Value) {
    let log = events(world, child.as_str());
    let seed_length = world.reader().header(child).unwrap().unwrap().seed_length;
    let mut found = log.iter().filter(|event| event.seq >= seed_length).filter_map(|event| match &event.body {
        Body::Descriptor(data) => Some((event.seq, data.clone())),
        _ => None,
    });
    let descriptor = found.next().unwrap();
    assert_eq!(found.next(), None, "one descriptor, however often it is resumed");
    descriptor
}

/// Returns what a session has said, parsed.
fn told(world: &World, session: &SessionId) -> Vec<Value> {
    let said = |body: &Body| if let Body::AssistantMessage { message, .. } = body { Some(text_of(&message.content)) } else { None };
    events(world, session.as_str()).iter().filter_map(|event| said(&event.body)).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

async fn what_is_wrong_with_a_delegation_is_told_before_anybody_is_asked(world: &World) {
    let mut deep = json!(0);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let bare = || delegate("copier");
    let cases = [
        ("nobody of that name", "AGENT_UNKNOWN", Delegate { agent: "nobody".into(), ..bare() }),
        ("no depth", "DEPTH_EXCEEDED", bare().max_depth(0)),
        ("no label", "DESCRIPTOR_MALFORMED", Delegate { label: None, ..bare() }),
        ("an empty label", "INVALID_LABEL", Delegate { label: Some(String::new()), ..bare() }),
        ("a label that misleads", "INVALID_LABEL", Delegate { label: Some("cod\u{202e}e".into()), ..bare() }),
        ("an empty alias", "INVALID_LABEL", bare().alias("")),
        ("an empty persona", "DESCRIPTOR_MALFORMED", bare().persona("")),
        ("a model without a name", "DESCRIPTOR_MALFORMED", bare().model("")),
        ("a model of nobody", "DESCRIPTOR_MALFORMED", bare().model(route(Some(""), "small"))),
        ("a filter of nothing", "DESCRIPTOR_MALFORMED", bare().tool_filter(filter(None, None))),
        ("a tool without a name", "DESCRIPTOR_MALFORMED", bare().tool_filter(filter(Some(&["read"]), Some(&["write", ""])))),
        ("params that do not come back", "EVENT_INVALID", bare().params(json!(-0.0))),
        ("params that are too deep", "EVENT_TOO_DEEP", bare().params(deep)),
        ("a persona that is too large", "EVENT_TOO_LARGE", bare().persona("x".repeat(18 << 20))),
        ("a prompt that is too large", "MESSAGE_TOO_LARGE", Delegate { prompt: "x".repeat(18 << 20), ..bare() }),
        ("no provider of that name", "NO_PROVIDER", delegate("nobody")),
    ];
    let runtime = world.runtime().await;
    let copier = Copier::blank();
    let _registration = runtime.host().register_provider("copier", copier.clone()).unwrap();
    let root = desk(&runtime, "r").await;
    for (what, code, delegate) in cases {
        assert_eq!(root.agent().start_continuable(delegate).await.map_err(|error| error.code()), Err(code), "{what}");
        assert!(copier.asked().is_empty() && below(world, "r").is_empty(), "{what}");
    }
    for route in ["", "x"].map(|name| ModelRoute { provider: Some(String::new()), name: name.into() }) {
        assert_eq!(runtime.host().root(NewRoot::new("worker", "a root").model(route)).await.unwrap_err().code(), "DESCRIPTOR_MALFORMED");
    }
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_is_no_deeper_than_everybody_allows(world: &World) {
    let (say, mut said) = mpsc::unbounded_channel();
    let chain = move |turn: Turn| {
        let say = say.clone();
        async move {
            // Of a root: what it is told; below it: what its parent was told.
            let limits: Vec<Option<u32>> = serde_json::from_str(&turn.text()).unwrap();
            let [limit, below @ ..] = &*limits else { return };
            let mut next = Delegate::new("boss", "one below", serde_json::to_string(below).unwrap());
            next.max_depth = *limit;
            say.send(turn.delegate(next).await.map(|_| turn.depth() + 1).map_err(|error| (error.code(), error.to_string()))).unwrap();
        }
    };
    let runtime = with_boss(world, World::builder().max_depth(2), chain.clone()).await;
    let root = boss(&runtime, "r").await;
    let refused = |depth: u32, max: u32| Err(("DEPTH_EXCEEDED", format!("subagent depth {depth} exceeds maxDepth {max}")));
    for (limits, expected) in [
        ("[null, null, null]", vec![Ok(1), Ok(2), refused(3, 2)]),
        ("[9, 9, 9]", vec![Ok(1), Ok(2), refused(3, 2)]),
        ("[1, 2, 3]", vec![Ok(1), Ok(2), refused(3, 2)]),
        ("[1, 1]", vec![Ok(1), refused(2, 1)]),
        ("[0]", vec![refused(1, 0)]),
    ] {
        root.send(limits).await.unwrap();
        for expected in expected {
            assert_eq!(said.recv().await.unwrap(), expected, "{limits}");
        }
    }
    assert_eq!(root.quiescent().await.unwrap(), []);
    let child = runtime.list(Some(root.id())).await.unwrap().entries[0].id().clone();
    drop(root);
    world.close_after(runtime).await;
    // It stands at depth 1 by its header, and where a limit of 1 is configured nobody is below it any more.
    let runtime = with_boss(world, World::builder().max_depth(1), chain).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.agent().followup(&child, "[9]").await.unwrap();
    assert_eq!(said.recv().await.unwrap(), refused(2, 1));
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    sound(world);
}

async fn what_a_delegation_says_is_recorded_once_and_found_by_any_process(world: &World) {
    let runtime = world.start(cast()).await;
    let registration = runtime.host().register_provider("copier", Copier::blank()).unwrap();
    let root = desk(&runtime, "r").await;
    let all =
        teller("everything").provider("copier").model(route(Some("house"), "small")).persona("You doubt\neverything.").alias("c").params(json!({ "n": 1 }));
    let only = filter(Some(&["read", "list"]), None);
    let but = filter(None, Some(&[]));
    let both = filter(Some(&[]), Some(&["write"]));
    let cases = [
        (teller("nothing"), json!({ "version": 1, "mode": "continuable", "provider": "spawn", "label": "nothing", "agent": "teller" })),
        (
            all.tool_filter(only.clone()),
            json!({
                "version": 1, "mode": "continuable", "provider": "copier", "label": "everything", "agent": "teller", "as": "c", "params": { "n": 1 },
                "model": { "provider": "house", "name": "small" }, "persona": "You doubt\neverything.", "tool_filter": { "allow": ["read", "list"] }
            }),
        ),
        (
            teller("a filter that denies nothing").tool_filter(but.clone()),
            json!({ "version": 1, "mode": "continuable", "provider": "spawn", "label": "a filter that denies nothing", "agent": "teller", "tool_filter": { "deny": [] } }),
        ),
        (
            teller("a filter that allows nothing").tool_filter(both.clone()).persona("y"),
            json!({
                "version": 1, "mode": "continuable", "provider": "spawn", "label": "a filter that allows nothing", "agent": "teller", "persona": "y",
                "tool_filter": { "allow": [], "deny": ["write"] }
            }),
        ),
    ];
    let expected = [
        json!({ "model": null, "persona": null, "tools": null }),
        json!({ "model": { "provider": "house", "name": "small" }, "persona": "You doubt\neverything.", "tools": only }),
        json!({ "model": null, "persona": null, "tools": but }),
        json!({ "model": null, "persona": "y", "tools": both }),
    ];
    let mut children = Vec::new();
    for (delegate, _) in &cases {
        children.push(root.agent().start_continuable(delegate.clone()).await.unwrap().child);
    }
    assert_eq!(root.quiescent().await.unwrap(), []);
    drop((root, registration));
    world.close_after(runtime).await;
    // Another process, which has never heard of the provider.
    let runtime = world.start(cast()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    for child in &children {
        root.agent().followup(child, "and now?").await.unwrap();
    }
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    for (((_, descriptor), child), expected) in cases.iter().zip(&children).zip(expected) {
        assert_eq!(descriptor_of(world, child), (0, descriptor.clone()));
        assert_eq!(told(world, child), [expected.clone(), expected], "before and after");
        let log = events(world, child.as_str());
        assert_eq!(types(&log)[..4], ["subagent/descriptor", "session/end-seed", "activation/start", "turn/start"]);
        assert_eq!((log[0].surface_op, &log[0].source_event_seqs), (None::<SurfaceOp>, &None), "no model sees it");
        let header = world.reader().header(child).unwrap().unwrap();
        assert_eq!((header.parent.clone(), header.depth, header.seed_length), (Some(sid("r")), 1, 0));
    }
    sound(world);
}

async fn a_model_route_is_the_parents_own_unless_another_is_said(world: &World) {
    let act = |turn: Turn| async move {
        // What a child was told is what it delegates on: each name is one of its own children, and what follows is theirs.
        let text = turn.text();
        for part in text.split_whitespace() {
            let next = Delegate::new("boss", part, format!("below-{part}"));
            drop(match (part, turn.depth()) {
                ("other", _) => turn.delegate(next.model("other")).await.unwrap(),
                ("mute", _) => turn.delegate(next.provider("mute")).await.unwrap(),
                (_, 2) => return,
                _ => turn.delegate(next).await.unwrap(),
            });
        }
    };
    let runtime = with_boss(world, World::builder(), act).await;
    let host = runtime.host();
    let _registration = host.register_provider("mute", Copier::blank().able(Capabilities { model: false, ..Capabilities::all() })).unwrap();
    let routed = host.root(NewRoot { id: Some(sid("routed")), ..NewRoot::new("boss", "a root").model("own") }).await.unwrap();
    let bare = boss(&runtime, "bare").await;
    for root in [&routed, &bare] {
        root.send("plain other mute").await.unwrap();
        assert_eq!(root.quiescent().await.unwrap(), []);
    }
    let mut found = Vec::new();
    for root in [&routed, &bare] {
        for entry in runtime.list_descendants(root.id()).await.unwrap().entries {
            let listed = entry.entry.listed().unwrap();
            let (_, descriptor) = descriptor_of(world, &listed.id);
            found.push(format!("{} {}: {}", root.id(), listed.label.as_deref().unwrap(), descriptor["model"]["name"]));
        }
    }
    runtime.shutdown().await;
    let expected = [
        "bare below-mute: null",
        "bare below-other: \"other\"",
        "bare below-plain: null",
        "bare mute: null",
        "bare other: \"other\"",
        "bare plain: null",
        "routed below-mute: null",
        "routed below-other: \"other\"",
        "routed below-plain: \"own\"",
        "routed mute: null",
        "routed other: \"other\"",
        "routed plain: \"own\"",
    ];
    found.sort();
    assert_eq!(found, expected);
    sound(world);
}

async fn a_fork_begins_with_what_its_parent_has_come_to_the_end_of(world: &World) {
    let (say, mut said) = mpsc::unbounded_channel();
    let act = move |turn: Turn| {
        let say = say.clone();
        async move {
            turn.say(format!("re: {}", turn.text())).unwrap();
            if turn.text() == "delegate" {
                // What is durable of the open turn is not given along.
                turn.record("weather", "rain").await.unwrap();
                let mut children = Vec::new();
                for provider in [FORK, SPAWN] {
                    children.push(turn.delegate(Delegate::new("worker", provider, "begin").provider(provider)).await.unwrap().child);
                }
                say.send(children).unwrap();
            }
        }
    };
    let runtime = with_boss(world, World::builder(), act).await;
    let (early, root) = (boss(&runtime, "early").await, boss(&runtime, "r").await);
    root.send("hello").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    let completed = u64::try_from(events(world, "r").len()).unwrap();
    for root in [&early, &root] {
        root.send("delegate").await.unwrap();
        assert_eq!(root.quiescent().await.unwrap(), []);
    }
    let (unseeded, seeded) = (said.recv().await.unwrap(), said.recv().await.unwrap());
    let heard = runtime.host().load(&seeded[0]).await.unwrap();
    runtime.shutdown().await;
    let seed_length = |id: &SessionId| world.reader().header(id).unwrap().unwrap().seed_length;
    for child in unseeded.iter().chain(&seeded[1..]) {
        assert_eq!((seed_length(child), descriptor_of(world, child).0), (0, 0), "no turn had ended, or nothing is given along");
        assert!(events(world, child.as_str()).iter().any(|event| matches!(event.body, Body::TurnStart { turn: 1, .. })));
    }
    let fork = &seeded[0];
    assert_eq!(seed_length(fork), completed, "through the end of the turn, and not of what came after");
    let (log, source) = (events(world, fork.as_str()), events(world, "r"));
    let inherited = usize::try_from(completed).unwrap();
    assert_eq!(log[..inherited], source[..inherited]);
    assert!(matches!(source[inherited - 1].body, Body::TurnEnd { .. }));
    assert_eq!(descriptor_of(world, fork).0, completed, "right behind what is given along");
    assert_eq!(types(&log[inherited..])[..4], ["subagent/descriptor", "session/end-seed", "activation/start", "turn/start"]);
    assert!(matches!(log[inherited + 3].body, Body::TurnStart { turn: 2, .. }), "turns count on");
    let texts: Vec<String> = heard.fold.surface().messages().map(|message| text_of(&message.content)).collect();
    assert_eq!(texts, ["hello", "re: hello", "begin", "begin"]);
    sound(world);
}

async fn a_reserved_id_is_one_child(world: &World) {
    let runtime = world.start(cast()).await;
    let host = runtime.host();
    let registration = host.register_provider("copier", Copier::blank()).unwrap();
    let (root, other) = (desk(&runtime, "r").await, desk(&runtime, "other").await);
    world.child("stored", "r");
    let kept = || delegate("copier").child(sid("kept"));
    let first = root.agent().start_continuable(kept()).await.unwrap();
    assert_eq!((first.child.as_str(), first.existing), ("kept", false));
    // While it lives, and when it has settled.
    for _ in 0..2 {
        assert_eq!(root.agent().start_continuable(kept()).await.unwrap(), Delegated { existing: true, ..first.clone() });
        assert_eq!(root.quiescent().await.unwrap(), []);
    }
    assert_eq!(host.load(&first.child).await.unwrap().fold.head().turns, 1, "one message, one turn");
    // What differs in anything that is recorded is another child; so is one of somebody else.
    let different = [
        ("a prompt", Delegate { prompt: "end".into(), ..kept() }),
        ("a label", Delegate { label: Some("another".into()), ..kept() }),
        ("a behaviour", Delegate { agent: "teller".into(), ..kept() }),
        ("a provider", kept().provider(SPAWN)),
        ("an alias", kept().alias("c")),
        ("params", kept().params(json!(1))),
        ("a persona", kept().persona("a clerk")),
        ("a model route", kept().model("small")),
        ("a filter", kept().tool_filter(filter(Some(&[]), None))),
        ("a session that is stored", delegate(SPAWN).child(sid("stored"))),
        ("a session that is live", delegate(SPAWN).child(sid("other"))),
        ("the parent itself", delegate(SPAWN).child(sid("r"))),
        ("the parent itself, forked", delegate(FORK).child(sid("r"))),
    ];
    for (what, delegate) in different {
        assert_eq!(root.agent().start_continuable(delegate).await.unwrap_err().code(), "DUPLICATE_CHILD", "{what}");
    }
    assert_eq!(other.agent().start_continuable(kept()).await.unwrap_err().code(), "DUPLICATE_CHILD", "of another parent");
    // A fork is the same child, however much its parent has lived through since.
    let forked = || delegate(FORK).child(sid("forked"));
    let fork = root.agent().start_continuable(forked()).await.unwrap();
    root.send("more").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    assert_eq!(root.agent().start_continuable(forked()).await.unwrap(), Delegated { existing: true, ..fork });
    assert_eq!(root.agent().start_continuable(forked().persona("a clerk")).await.unwrap_err().code(), "DUPLICATE_CHILD");
    assert!(root.agent().start_continuable(forked().max_depth(3)).await.unwrap().existing, "a condition of the start is nothing of the child");
    assert_eq!(root.quiescent().await.unwrap(), []);
    assert_eq!(below(world, "r").len(), 4);
    drop((root, other, registration, host));
    world.close_after(runtime).await;
    // What was removed has used its id up.
    world.one(Op::Remove(Remove { session: sid("kept"), discard: false })).unwrap();
    let runtime = world.start(cast()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(root.agent().start_continuable(kept().provider(SPAWN)).await.unwrap_err().code(), "SESSION_REMOVED");
    runtime.shutdown().await;
    sound(world);
}

async fn a_reserved_id_is_one_child_over_all_turns(world: &World) {
    let (say, mut said) = mpsc::unbounded_channel();
    let act = move |turn: Turn| {
        let say = say.clone();
        async move {
            let kept = || delegate(SPAWN).child(sid("kept"));
            let mut done = Vec::new();
            for delegate in [kept(), kept().key("another"), kept().persona("x")] {
                done.push(turn.delegate(delegate).await.map(|delegated| (delegated.child, delegated.existing)).map_err(|error| error.code().to_owned()));
            }
            // Its mode is a part of what it is.
            done.push(turn.delegate_and_wait(kept()).await.map(|_| (sid("waited for"), false)).map_err(|error| error.code));
            // A key alone names the effect, whichever child it has made; what is reserved is never another one.
            let own = SessionId::new(format!("own {}", turn.number())).unwrap();
            for delegate in [delegate(SPAWN).key("one"), delegate(SPAWN).key("one").child(own.clone())] {
                done.push(turn.delegate(delegate).await.map(|delegated| (own.clone(), delegated.child == own)).map_err(|error| error.code().to_owned()));
            }
            say.send(done).unwrap();
            if turn.text() == "stay" && turn.attempt() == 1 {
                turn.cancelled().cancelled().await;
            }
        }
    };
    let expected = |existing: bool, turn: u64| {
        let (kept, own, duplicate) = (sid("kept"), SessionId::new(format!("own {turn}")).unwrap(), || Err("DUPLICATE_CHILD".to_owned()));
        vec![Ok((kept.clone(), existing)), Ok((kept, true)), duplicate(), duplicate(), Ok((own.clone(), false)), Ok((own, true))]
    };
    let runtime = with_boss(world, cast(), act.clone()).await;
    let root = boss(&runtime, "r").await;
    root.send("go").await.unwrap();
    assert_eq!(said.recv().await.unwrap(), expected(false, 1));
    assert_eq!(root.quiescent().await.unwrap(), []);
    let turns = runtime.host().load(root.id()).await.unwrap().fold.head().turns;
    root.send("stay").await.unwrap();
    assert_eq!(said.recv().await.unwrap(), expected(true, turns + 1), "another message");
    drop(root);
    world.close_after(runtime).await;
    let runtime = with_boss(world, cast(), act).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(said.recv().await.unwrap(), expected(true, turns + 2), "another attempt");
    assert_eq!(root.quiescent().await.unwrap(), []);
    assert_eq!(runtime.host().load(&sid("kept")).await.unwrap().fold.head().turns, 1);
    runtime.shutdown().await;
    for turn in [1, turns + 1, turns + 2] {
        assert!(world.reader().header(&sid(&format!("own {turn}"))).unwrap().is_some(), "a key never stands for a child that is reserved");
        let accepted = |event: &&Event| matches!(&event.body, Body::EffectAccepted { turn: of, id, .. } if (*of, id.as_str()) == (turn, "kept"));
        assert!(events(world, "r").iter().filter(accepted).count() <= 1, "one effect, however often it is asked for");
    }
    sound(world);
}
