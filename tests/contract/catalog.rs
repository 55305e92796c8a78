//! The list of a parent's children: who is on it, and what it says of each.

use std::collections::BTreeMap;

use greenroom::{
    Delegate, Entry, Listed, Occurrence, Runtime, Turn, TurnEnd,
    actors::{
        catalog::{Status, read_listing},
        host::NewRoot,
        query::Page,
    },
};
use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd, Role, SurfaceMessage, TurnEnd as Ended},
    head::TurnState,
    listing::Cursor,
    message::{Block, Source},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor, one_shot},
    world::{Kind, World, mid, sid},
};

crate::on_every_store!(async
    each_child_is_what_its_log_says_and_a_broken_one_hides_no_sibling,
    children_stand_in_the_order_of_their_times_and_those_of_one_time_in_that_of_their_ids,
    a_child_has_children_if_anything_below_it_is_a_subagent_by_its_header,
    what_was_started_is_listed_by_its_label_running_while_it_lives_and_complete_when_it_has_settled,
    what_another_process_holds_is_running,
    what_was_cut_off_is_complete_with_its_turn_interrupted_and_its_message_pending,
    a_compacted_child_is_listed_as_one_that_is_not,
    a_parent_without_children_has_an_empty_list_and_an_unknown_one_has_none,
    ten_thousand_children_are_listed_whole_and_by_pages,
);

pub(crate) async fn list(runtime: &Runtime, parent: &str, verify: bool) -> Vec<Entry> {
    runtime.host().list(Some(&sid(parent)), Page::default(), verify, CancellationToken::new()).await.unwrap().entries
}

/// Lists a parent's children, each as `id status` or `id reason`.
pub(crate) async fn shown(runtime: &Runtime, parent: &str) -> Vec<String> {
    list(runtime, parent, false).await.iter().map(show).collect()
}

pub(crate) fn show(entry: &Entry) -> String {
    match entry {
        Entry::Diagnostic { id, reason } => format!("{id} {}", reason.as_str()),
        Entry::Root(listed) | Entry::Child(listed) => format!("{} {}", listed.id, listed.status.as_str()),
    }
}

fn said(id: &str, text: &str) -> SurfaceMessage {
    SurfaceMessage { id: mid(id), role: Role::User, content: vec![Block::text(text)], source: Source::User }
}

/// Every kind of child, and the end of its line in the list: none if it has no line.
fn kinds() -> Vec<(Author, Option<&'static str>)> {
    let child = |id| Author::child(id, "r");
    let good = descriptor("good");
    let mut foreign = good.clone();
    (foreign.provider, foreign.agent) = ("nobody mounts it".into(), "nobody plays it".into());
    let full = json!({"version": 1, "mode": "continuable", "provider": "spawn", "label": "x", "agent": "worker"});
    let with = |key: &str, value: serde_json::Value| {
        let mut data = full.clone();
        data[key] = value;
        data
    };
    let without = |key: &str| {
        let mut data = full.clone();
        data.as_object_mut().unwrap().remove(key);
        data
    };
    let newer = json!({"version": 2, "mode": [], "provider": {}, "label": 7, "agent": null});
    let unmarked = json!({"id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}], "source": {"kind": "user"}});
    let healthy = Some("complete");
    let corrupt = Some("corrupt");
    vec![
        (Author::listed("good", "r"), healthy),
        // Descriptors.
        (child("two").described(&good).described(&good).sealed(), corrupt),
        (child("two, one of them newer").described(&good).described_as(&newer).sealed(), corrupt),
        (child("none").sealed(), None),
        (child("no event at all"), None),
        (child("newer").described_as(&newer).sealed(), Some("unsupported")),
        (child("newer and nothing else").described_as(&json!({"version": 99})).sealed(), Some("unsupported")),
        (child("no version").described_as(&without("version")).sealed(), corrupt),
        (child("version in words").described_as(&with("version", json!("1"))).sealed(), corrupt),
        (child("label of a wrong type").described_as(&with("label", json!(7))).sealed(), corrupt),
        // Refused of a new child, and no reason to hide an old one.
        (child("label that rewrites a line").described_as(&with("label", json!("a\nb"))).sealed(), healthy),
        (child("no label").described_as(&without("label")).sealed(), corrupt),
        (child("unknown mode").described_as(&with("mode", json!("sometimes"))).sealed(), corrupt),
        (child("no agent").described_as(&without("agent")).sealed(), corrupt),
        (child("no object").described_as(&json!("worker")).sealed(), corrupt),
        (child("unknown keys").described_as(&with("colour", json!({"deep": [1]}))).sealed(), healthy),
        (child("unknown provider and agent").described(&foreign).sealed(), healthy),
        (child("one-shot").described(&one_shot(None)).sealed(), healthy),
        (child("one-shot with a label").described(&one_shot(Some("once"))).sealed(), healthy),
        // Prefixes.
        (child("only inherited").described(&good).inherited().sealed(), None),
        (child("inherited and own").described(&one_shot(None)).described_as(&newer).inherited().described(&good).sealed(), healthy),
        // Logs.
        (child("no mark of the surface").described(&good).sealed().raw("user/message", &unmarked), corrupt),
        (child("gap").described(&good).text(r#"{"seq":2,"time":1000,"type":"session/end-seed","data":{}}"#), corrupt),
        (child("mark where none belongs").described(&good).text(r#"{"seq":1,"time":1,"type":"session/end-seed","data":{},"surface_op":"append"}"#), corrupt),
        (child("bad checksum").described(&good).spoilt().sealed(), corrupt),
        (child("bad checksum after the descriptor").described(&good).sealed().raw("x/y", &json!(1)).spoilt().raw("x/z", &json!(2)), corrupt),
        (child("unknown type").described(&good).sealed().raw("x/y", &json!({"a": 1})), healthy),
        // Headers.
        (child("newer header").header_text(r#"{"version":2,"colour":"red"}"#), Some("unsupported")),
        (child("no header").header_text(r#"{"version":1}"#).described(&good).sealed(), corrupt),
        (Author::listed("header with a bad checksum", "r").spoilt_header(), corrupt),
        (Author::fork("fork whose header has a bad checksum", "r").spoilt_header().sealed(), corrupt),
        (Author::listed("another parent", "q").lying_below("r"), corrupt),
        // Forks.
        (Author::fork("fork", "r").sealed(), None),
        (Author::fork("fork with a descriptor", "r").described(&good).sealed(), None),
        (Author::fork("broken fork", "r").described(&good).spoilt().sealed(), None),
        (Author::listed("good as the first", "r"), healthy),
    ]
}

async fn each_child_is_what_its_log_says_and_a_broken_one_hides_no_sibling(world: &World) {
    world.root("r");
    let mut expected = BTreeMap::new();
    for (time, (author, line)) in (2_000..).zip(kinds()) {
        let id = author.id().to_string();
        if world.plant(&author.at(time))
            && let Some(line) = line
        {
            expected.insert(id.clone(), format!("{id} {line}"));
        }
    }
    assert!(expected.len() >= 12, "what a store takes is not next to nothing: {expected:?}");
    let runtime = world.runtime().await;
    // The same from the rows, from the logs, and to a process that runs nothing.
    let mut lists = vec![list(&runtime, "r", false).await, list(&runtime, "r", true).await, list(&runtime, "r", false).await];
    lists.push(read_listing(&mut *world.reader(), Some(&sid("r")), &Page::default(), false).unwrap().entries);
    for entries in &lists {
        let lines: BTreeMap<String, String> = entries.iter().map(|entry| (entry.id().to_string(), show(entry))).collect();
        assert_eq!(lines, expected);
        assert_eq!(entries.len(), expected.len(), "nobody is listed twice");
    }
    let one = |id: &str| lists[0].iter().find(|entry| entry.id().as_str() == id).unwrap().listed().unwrap().clone();
    assert_eq!((one("one-shot").mode, one("one-shot").label), (Mode::OneShot, None));
    assert_eq!((one("one-shot with a label").mode, one("one-shot with a label").label.as_deref()), (Mode::OneShot, Some("once")));
    assert_eq!((one("good").mode, one("good").label.as_deref()), (Mode::Continuable, Some("child good")));
    assert_eq!(one("unknown provider and agent").agent, "nobody plays it");
    runtime.shutdown().await;
}

async fn children_stand_in_the_order_of_their_times_and_those_of_one_time_in_that_of_their_ids(world: &World) {
    world.create(&Author::root("r").at(1));
    // Upper case comes first in byte order, whatever a language says.
    for (id, time) in [("late", 9), ("tie b", 5), ("tie B", 5), ("tie a", 5)] {
        world.create(&Author::listed(id, "r").at(time));
    }
    let runtime = world.runtime().await;
    assert_eq!(shown(&runtime, "r").await, ["tie B complete", "tie a complete", "tie b complete", "late complete"]);
    runtime.shutdown().await;
}

async fn a_child_has_children_if_anything_below_it_is_a_subagent_by_its_header(world: &World) {
    let below = |id: &str, parent: &str| Author::child(id, parent).depth(2);
    let cases = [
        ("nobody", None, false),
        ("a fork", Some(Author::fork("g1", "a fork").sealed()), false),
        ("a fork with a descriptor", Some(Author::fork("g2", "a fork with a descriptor").described(&descriptor("x")).sealed()), false),
        ("a healthy child", Some(below("g3", "a healthy child").described(&descriptor("x")).sealed()), true),
        ("a corrupt child", Some(below("g4", "a corrupt child").described_as(&json!(7)).sealed()), true),
        ("a child without a descriptor", Some(below("g5", "a child without a descriptor").sealed()), true),
        ("a child that cannot be read", Some(below("g6", "a child that cannot be read").described(&descriptor("x")).spoilt().sealed()), true),
        ("a child without a header", Some(below("g7", "a child without a header").header_text("{\"version\":1}")), true),
    ];
    world.root("r");
    let mut expected = BTreeMap::new();
    let mut grandchildren = Vec::new();
    for (id, grandchild, has_children) in cases {
        if let Some(grandchild) = grandchild {
            grandchildren.push(grandchild.id().to_string());
            if !world.plant(&grandchild) {
                continue;
            }
        }
        world.create(&Author::listed(id, "r"));
        expected.insert(id.to_owned(), has_children);
    }
    // By the store's own hand, too.
    world.child("forked", "r");
    world.fork("g8", "forked");
    world.child("busy", "r");
    world.child("g9", "busy");
    world.fork("g10", "busy");
    expected.extend([("forked".to_owned(), false), ("busy".to_owned(), true)]);
    grandchildren.extend(["g8", "g9", "g10"].map(str::to_owned));
    let runtime = world.runtime().await;
    world.watch.clear();
    for verify in [false, true] {
        let entries = list(&runtime, "r", verify).await;
        let found: BTreeMap<String, bool> = entries.iter().map(|entry| (entry.id().to_string(), entry.listed().unwrap().has_children)).collect();
        assert_eq!(found, expected);
    }
    for grandchild in grandchildren {
        let touched: Vec<_> = world.watch.calls().into_keys().filter(|(of, _)| *of == grandchild).collect();
        assert_eq!(touched, [], "a grandchild is not on the list, and neither its log nor its row is read");
    }
    assert_eq!(shown(&runtime, "a corrupt child").await, ["g4 corrupt"]);
    runtime.shutdown().await;
}

/// A runtime whose `worker` repeats what it is told and whose `stayer` does not end by itself.
async fn with_a_stayer(world: &World) -> Runtime {
    let stayer = |turn: Turn| async move {
        turn.cancelled().cancelled().await;
        Ok(TurnEnd::Completed)
    };
    world.start(World::builder().closure("stayer", stayer)).await
}

async fn what_was_started_is_listed_by_its_label_running_while_it_lives_and_complete_when_it_has_settled(world: &World) {
    let runtime = with_a_stayer(world).await;
    let root = runtime.host().root(NewRoot::new("worker", "a desk")).await.unwrap();
    let worker = root.agent().start_continuable(Delegate::new("worker", "collect facts", "one")).await.unwrap().child;
    root.quiescent().await.unwrap();
    let mut occurrences = runtime.subscribe();
    let stayer = root.agent().start_continuable(Delegate::new("stayer", "stay", "two")).await.unwrap().child;
    while !matches!(occurrences.recv().await.unwrap(), Occurrence::TurnStarted { session, .. } if session == stayer) {}
    let children = root.agent().list_children(CancellationToken::new()).await.unwrap();
    let find = |id| children.iter().filter_map(Entry::listed).find(|listed| listed.id == id).unwrap().clone();
    let (worker, stayer) = (find(worker), find(stayer));
    assert_eq!((worker.label.as_deref(), worker.status, worker.turn, worker.turns), (Some("collect facts"), Status::Complete, TurnState::Idle, 1));
    assert_eq!((stayer.label.as_deref(), stayer.status, stayer.turn), (Some("stay"), Status::Running, TurnState::Open));
    assert_eq!(children.len(), 2);
    // Whoever owns the store sees what the parent sees, and so does a process that has nothing live.
    assert_eq!(runtime.list(Some(root.id())).await.unwrap().entries, children);
    let alone = read_listing(&mut *world.reader(), Some(root.id()), &Page::default(), false).unwrap().entries;
    assert_eq!(alone, children);
    runtime.shutdown().await;
    let after = read_listing(&mut *world.reader(), Some(root.id()), &Page::default(), false).unwrap().entries;
    assert!(after.iter().filter_map(Entry::listed).all(|listed| listed.status == Status::Complete), "{after:?}");
}

async fn what_another_process_holds_is_running(world: &World) {
    world.root("r");
    world.child("held", "r");
    world.child("free", "r");
    // A folder of JSON Lines has one writer: it is the others that see what the writer holds.
    let holder = world.peer().unwrap_or_else(|| world.plain());
    World::activate(&*holder, "held", false);
    if world.kind == Kind::Jsonl {
        let mut reader = greenroom_session::store::jsonl::open_reader(world.path()).unwrap();
        let entries = read_listing(&mut reader, Some(&sid("r")), &Page::default(), false).unwrap().entries;
        assert_eq!(entries.iter().map(show).collect::<Vec<_>>(), ["free complete", "held running"]);
        return;
    }
    let runtime = world.runtime().await;
    assert_eq!(shown(&runtime, "r").await, ["free complete", "held running"]);
    assert_eq!(runtime.host().live_count(), 0);
    runtime.shutdown().await;
    holder.close().unwrap();
}

async fn what_was_cut_off_is_complete_with_its_turn_interrupted_and_its_message_pending(world: &World) {
    world.root("r");
    for id in ["cut", "cut with more to do"] {
        world.child(id, "r");
        world.accept(id, "m0");
        World::activate(&*world.plain(), id, true);
    }
    world.accept("cut with more to do", "m1");
    world.crash();
    let runtime = world.runtime().await;
    let entries = list(&runtime, "r", false).await;
    let seen: Vec<_> = entries.iter().filter_map(Entry::listed).map(|child| (child.id.as_str(), child.status, child.turn, child.pending)).collect();
    // The message of the turn that was cut off waits as those behind it do.
    let expected = [("cut", Status::Complete, TurnState::Interrupted, 1), ("cut with more to do", Status::Complete, TurnState::Interrupted, 2)];
    assert_eq!(seen, expected);
    assert_eq!(runtime.host().live_count(), 0, "a list brings nobody back");
    // That it was cut off is known to whoever brings it back: the message is served again.
    runtime.recover(Some(&sid("r"))).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let entries = list(&runtime, "r", false).await;
    let seen: Vec<_> = entries.iter().filter_map(Entry::listed).map(|child| (child.status, child.turn, child.turns, child.pending)).collect();
    assert_eq!(seen, [(Status::Complete, TurnState::Idle, 2, 0), (Status::Complete, TurnState::Idle, 3, 0)]);
    runtime.shutdown().await;
}

async fn a_compacted_child_is_listed_as_one_that_is_not(world: &World) {
    let child = |id: &str| {
        Author::child(id, "r")
            .described(&descriptor("the same"))
            .sealed()
            .event(Body::ActivationStart { epoch: 1 })
            .event(Body::TurnStart { turn: 1, message: mid("m"), attempt: 1 })
            .event(Body::UserMessage(said("m", "hello")))
            .event(Body::TurnEnd { turn: 1, reason: Ended::Completed })
    };
    let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled };
    world.root("r");
    world.create(&child("plain").event(end.clone()));
    world.create(&child("compacted").replacing(Body::UserMessage(said("s", "a summary")), 4, 4, vec![4]).event(end));
    let runtime = world.runtime().await;
    for verify in [false, true] {
        let entries = list(&runtime, "r", verify).await;
        let [compacted, plain] = &*entries else { panic!("{entries:?}") };
        let nameless = |entry: &Entry| Listed { id: sid("either"), ..entry.listed().unwrap().clone() };
        assert_eq!(nameless(compacted), nameless(plain));
        assert_eq!(nameless(plain).label.as_deref(), Some("the same"));
    }
    runtime.shutdown().await;
}

async fn a_parent_without_children_has_an_empty_list_and_an_unknown_one_has_none(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    assert_eq!(list(&runtime, "r", false).await, []);
    let error = runtime.list(Some(&sid("nobody"))).await.unwrap_err();
    assert_eq!(error.code(), "SESSION_QUERY_SESSION_NOT_FOUND");
    runtime.shutdown().await;
}

async fn ten_thousand_children_are_listed_whole_and_by_pages(world: &World) {
    const MANY: u64 = 10_000;
    world.create(&Author::root("r").at(1));
    // Three to a time, so that ids decide, too; and not in the order in which they come to be.
    let authors: Vec<Author> =
        (0..MANY).map(|number| number * 7_919 % MANY).map(|number| Author::listed(&format!("c{number:05}"), "r").at(2 + number / 3)).collect();
    if world.kind == Kind::Jsonl {
        // Each would wait for the disk.
        world.plant_all(&authors);
    } else {
        world.create_all(&authors);
    }
    let runtime = world.runtime().await;
    let whole = list(&runtime, "r", false).await;
    let ids: Vec<String> = whole.iter().map(|entry| entry.id().to_string()).collect();
    assert_eq!(ids, (0..MANY).map(|number| format!("c{number:05}")).collect::<Vec<_>>());
    let (mut paged, mut after): (Vec<Entry>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = Page { after: after.take(), limit: Some(1_234) };
        let listing = runtime.host().list(Some(&sid("r")), page, false, CancellationToken::new()).await.unwrap();
        paged.extend(listing.entries);
        after = listing.next_cursor;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole);
    // The same as everything below the parent.
    let below = runtime.list_descendants(&sid("r")).await.unwrap();
    assert_eq!(below.entries.into_iter().map(|line| line.entry).collect::<Vec<_>>(), whole);
    runtime.shutdown().await;
}
