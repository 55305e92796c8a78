//! The list of everything below a session.

use greenroom::{
    Descendants, Runtime,
    actors::{error::ListError, query::Page},
};
use greenroom_session::{
    listing::Cursor,
    store::{Op, Remove},
};
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor, one_shot},
    watched::Call,
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    a_tree_is_listed_from_above_with_parent_and_depth,
    a_page_goes_on_behind_any_session_and_the_pages_make_the_whole,
    a_cursor_that_leads_nowhere_says_why,
    what_cannot_be_read_is_told_in_its_place_and_what_is_below_it_follows,
    a_circle_has_an_end,
    a_chain_of_three_thousand_is_walked_without_recursion,
    families_of_any_size_are_walked_to_their_end,
    a_walk_ends_at_the_next_family_when_it_is_given_up,
);

async fn list(runtime: &Runtime, top: &str, after: Option<Cursor>, limit: Option<usize>) -> Result<Descendants, ListError> {
    runtime.host().list_descendants(&sid(top), Page { after, limit }, CancellationToken::new()).await
}

/// Each line as `id below PARENT at DEPTH`, with what is wrong if anything is.
fn shown(list: &Descendants) -> Vec<String> {
    let line = |line: &greenroom::Descendant| {
        let wrong = match &line.entry {
            greenroom::Entry::Diagnostic { reason, .. } => format!(": {}", reason.as_str()),
            _ => String::new(),
        };
        format!("{} below {} at {}{wrong}", line.entry.id(), line.parent, line.depth)
    };
    list.entries.iter().map(line).collect()
}

fn ids(list: &Descendants) -> Vec<String> {
    list.entries.iter().map(|line| line.entry.id().to_string()).collect()
}

/// A tree with every kind of session in it, and what a list of it says.
fn tree() -> (Vec<Author>, Vec<&'static str>) {
    let two = Author::child("two", "r").described(&descriptor("a")).described(&descriptor("b")).sealed();
    let authors = vec![
        Author::root("r"),
        // Siblings in the order of their times, not of their ids or of their creation.
        Author::listed("z", "r").at(10),
        Author::listed("y", "z").depth(2).at(30),
        Author::listed("x", "z").depth(2).at(20),
        // Of one time, so that the ids decide.
        Author::fork("fork", "r").at(40).described(&descriptor("not a child")).sealed(),
        Author::listed("under a fork", "fork").at(50),
        Author::child("one-shot", "r").at(40).described(&one_shot(None)).sealed(),
        Author::listed("under a one-shot", "one-shot").depth(2).at(50),
        Author::child("plain", "r").at(40).sealed(),
        Author::listed("under a plain one", "plain").depth(2).at(50),
        two.at(40),
        Author::listed("under two", "two").depth(2).at(50),
        Author::listed("deeper", "under two").depth(3).at(60),
        Author::listed("last", "r").at(70),
    ];
    let lines = vec![
        "z below r at 1",
        "x below z at 2",
        "y below z at 2",
        "under a fork below fork at 2",
        "one-shot below r at 1",
        "under a one-shot below one-shot at 2",
        "under a plain one below plain at 2",
        "two below r at 1: corrupt",
        "under two below two at 2",
        "deeper below under two at 3",
        "last below r at 1",
    ];
    (authors, lines)
}

async fn a_tree_is_listed_from_above_with_parent_and_depth(world: &World) {
    let (authors, lines) = tree();
    world.create_all(&authors);
    let runtime = world.runtime().await;
    let all = runtime.list_descendants(&sid("r")).await.unwrap();
    assert_eq!(shown(&all), lines);
    assert_eq!(all.next_cursor, None);
    // From the middle, depths count from there.
    assert_eq!(shown(&list(&runtime, "two", None, None).await.unwrap()), ["under two below two at 1", "deeper below under two at 2"]);
    assert_eq!(shown(&list(&runtime, "fork", None, None).await.unwrap()), ["under a fork below fork at 1"]);
    assert_eq!(list(&runtime, "last", None, None).await.unwrap(), Descendants::default());
    assert_eq!(list(&runtime, "nobody", None, None).await.unwrap_err().code(), "SESSION_QUERY_SESSION_NOT_FOUND");
    // Each line is what a list of its parent's children says.
    for line in &all.entries {
        let siblings = runtime.list(Some(&line.parent)).await.unwrap().entries;
        assert!(siblings.contains(&line.entry), "{line:?}");
    }
    runtime.shutdown().await;
}

async fn a_page_goes_on_behind_any_session_and_the_pages_make_the_whole(world: &World) {
    let (authors, lines) = tree();
    world.create_all(&authors);
    let runtime = world.runtime().await;
    for limit in 1..=lines.len() + 1 {
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = list(&runtime, "r", after.take(), Some(limit)).await.unwrap();
            seen.extend(shown(&page));
            pages += 1;
            after = page.next_cursor;
            if after.is_none() {
                break;
            }
        }
        // The last page is known to be the last one, and none is empty.
        assert_eq!((seen, pages), (lines.iter().map(ToString::to_string).collect(), lines.len().div_ceil(limit)), "{limit} at a time");
    }
    // Also behind a session that is listed nowhere, and whatever time the cursor says.
    let fork = Cursor { created_at: 0, id: sid("fork") };
    assert_eq!(ids(&list(&runtime, "r", Some(fork), Some(2)).await.unwrap()), ["under a fork", "one-shot"]);
    assert_eq!(list(&runtime, "r", None, Some(0)).await.unwrap_err().code(), "SESSION_QUERY_INVALID_LIMIT");
    runtime.shutdown().await;
}

async fn a_cursor_that_leads_nowhere_says_why(world: &World) {
    let (authors, _) = tree();
    world.create_all(&authors);
    world.create_all(&[Author::root("q"), Author::listed("elsewhere", "q")]);
    let runtime = world.runtime().await;
    let code = |top: &'static str, after: &'static str| {
        let runtime = &runtime;
        async move {
            let cursor = Cursor { created_at: 10, id: sid(after) };
            list(runtime, top, Some(cursor), None).await.err().map(|error| error.code())
        }
    };
    assert_eq!(code("r", "nobody").await, Some("SESSION_QUERY_STALE_CURSOR"));
    for after in ["elsewhere", "q", "r"] {
        assert_eq!(code("r", after).await, Some("SESSION_QUERY_INVALID_CURSOR"), "{after}");
    }
    assert_eq!(code("two", "two").await, Some("SESSION_QUERY_INVALID_CURSOR"));
    assert_eq!(code("deeper", "two").await, Some("SESSION_QUERY_INVALID_CURSOR"));
    // One that was good and has been removed since.
    assert_eq!(code("r", "last").await, None);
    world.one(Op::Remove(Remove { session: sid("last"), discard: false })).unwrap();
    assert_eq!(code("r", "last").await, Some("SESSION_QUERY_STALE_CURSOR"));
    runtime.shutdown().await;
}

async fn what_cannot_be_read_is_told_in_its_place_and_what_is_below_it_follows(world: &World) {
    let broken = [
        Author::root("r"),
        Author::listed("a", "r").at(10),
        Author::child("garbage", "r").at(20).header_text(r#"{"version":1,"id":"garbage","parent":7}"#),
        Author::listed("under garbage", "garbage").depth(2).at(30),
        Author::listed("deeper", "under garbage").depth(3).at(30),
        Author::child("newer", "r").at(40).header_text(r#"{"version":2,"colour":"red"}"#),
        Author::listed("under a newer one", "newer").depth(2).at(50),
        Author::listed("z", "r").at(60),
    ];
    if !world.plant_all(&broken) {
        return;
    }
    let runtime = world.runtime().await;
    let lines = shown(&list(&runtime, "r", None, None).await.unwrap());
    let told = ["garbage below r at 1: corrupt", "newer below r at 1: unsupported"];
    assert_eq!(told.map(|line| lines.iter().filter(|shown| *shown == line).count()), [1, 1], "{lines:?}");
    let at = |line: &str| lines.iter().position(|shown| shown == line).unwrap_or_else(|| panic!("{line} is not in {lines:?}"));
    assert_eq!(at("under garbage below garbage at 2"), at(told[0]) + 1);
    assert_eq!(at("deeper below under garbage at 3"), at(told[0]) + 2);
    assert_eq!(at("under a newer one below newer at 2"), at(told[1]) + 1);
    assert_eq!(lines.len(), 7);
    // A page may end at one of them: its place is found without its header.
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = list(&runtime, "r", after.take(), Some(1)).await.unwrap();
        seen.extend(shown(&page));
        after = page.next_cursor;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, lines);
    runtime.shutdown().await;
}

async fn a_circle_has_an_end(world: &World) {
    world.create_all(&[
        Author::listed("own", "own").at(5),
        Author::listed("a", "b").at(5),
        Author::listed("b", "a").depth(2).at(5),
        Author::fork("f", "g").at(5).sealed(),
        Author::fork("g", "f").at(5).sealed(),
        // Beside the circle, and below it.
        Author::listed("c", "a").depth(2).at(5),
        Author::listed("d", "c").depth(3).at(5),
    ]);
    let runtime = world.runtime().await;
    for top in ["own", "a", "b", "c", "f"] {
        assert_eq!(list(&runtime, top, None, None).await.unwrap_err().code(), "SESSION_QUERY_INVALID_LINEAGE", "{top}");
        assert_eq!(runtime.list(Some(&sid(top))).await.unwrap_err().code(), "SESSION_QUERY_INVALID_LINEAGE", "{top}");
    }
    runtime.shutdown().await;
    drop(runtime);
    if world.kind == Kind::Jsonl {
        // A session that lies below itself as well: the only circle that a sound top can lead into.
        world.create_all(&[Author::root("r"), Author::listed("twice", "r"), Author::listed("below", "twice").depth(2)]);
        world.close();
        world.plant_file(std::path::Path::new("twice/twice.jsonl"), &Author::listed("twice", "r").lines());
        let runtime = world.runtime().await;
        let all = list(&runtime, "r", None, None).await.unwrap();
        assert_eq!(shown(&all), ["twice below r at 1: corrupt", "below below twice at 2"]);
        let page = list(&runtime, "r", None, Some(1)).await.unwrap();
        let rest = list(&runtime, "r", page.next_cursor.clone(), None).await.unwrap();
        assert_eq!([ids(&page), ids(&rest)].concat(), ids(&all));
        runtime.shutdown().await;
    }
}

async fn a_chain_of_three_thousand_is_walked_without_recursion(world: &World) {
    const LONG: u32 = 3_000;
    let name = |number: u32| if number == 0 { "r".to_owned() } else { format!("c{number}") };
    let links = (1..=LONG).map(|number| Author::listed(&name(number), &name(number - 1)).depth(number));
    assert!(world.plant_all(&[Author::root("r")].into_iter().chain(links).collect::<Vec<_>>()));
    let runtime = world.runtime().await;
    let all = list(&runtime, "r", None, None).await.unwrap();
    assert_eq!(ids(&all), (1..=LONG).map(name).collect::<Vec<_>>());
    assert_eq!(all.entries.iter().map(|line| line.depth).collect::<Vec<_>>(), (1..=3_000).collect::<Vec<_>>());
    let late = Cursor { created_at: 1_000, id: sid("c2998") };
    assert_eq!(shown(&list(&runtime, "r", Some(late), None).await.unwrap()), ["c2999 below c2998 at 2999", "c3000 below c2999 at 3000"]);
    runtime.shutdown().await;
}

async fn families_of_any_size_are_walked_to_their_end(world: &World) {
    let sizes = [(300, "a"), (99, "b"), (1, "c"), (0, "d")];
    let mut authors = vec![Author::root("r")];
    let mut expected = Vec::new();
    for (size, parent) in sizes {
        authors.push(Author::listed(parent, "r"));
        expected.push(parent.to_owned());
        for number in 0..size {
            let id = format!("{parent}{number:03}");
            authors.push(Author::listed(&id, parent).depth(2));
            expected.push(id);
        }
    }
    // A page is not done with a family for having met many of it that have no line.
    authors.push(Author::listed("e", "r"));
    authors.extend((0..20).map(|number| Author::fork(&format!("fork {number:02}"), "e").sealed()));
    authors.push(Author::listed("last", "e").depth(2));
    expected.extend(["e".to_owned(), "last".to_owned()]);
    assert!(world.plant_all(&authors));
    let runtime = world.runtime().await;
    assert_eq!(ids(&list(&runtime, "r", None, None).await.unwrap()), expected);
    for limit in [100, 7] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = list(&runtime, "r", after.take(), Some(limit)).await.unwrap();
            seen.extend(ids(&page));
            after = page.next_cursor;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
    runtime.shutdown().await;
}

async fn a_walk_ends_at_the_next_family_when_it_is_given_up(world: &World) {
    world.create_all(&[Author::root("r"), Author::listed("a", "r"), Author::listed("b", "a").depth(2), Author::listed("c", "b").depth(3)]);
    let runtime = world.runtime().await;
    let given_up = CancellationToken::new();
    given_up.cancel();
    world.watch.clear();
    let error = runtime.host().list_descendants(&sid("r"), Page::default(), given_up).await.unwrap_err();
    assert_eq!((error.code(), world.watch.calls().len()), ("CANCELLED", 0));

    let (cancel, pause) = (CancellationToken::new(), world.watch.pause("a", Call::Children, 1));
    let host = runtime.host();
    let (top, token) = (sid("r"), cancel.clone());
    let listed = tokio::spawn(async move { host.list_descendants(&top, Page::default(), token).await });
    pause.reached().await;
    cancel.cancel();
    // Whoever gives up is told at once, also while the store stands still.
    assert_eq!(listed.await.unwrap().unwrap_err().code(), "CANCELLED");
    pause.open();
    runtime.shutdown().await;
    assert_eq!(world.watch.count("b", Call::Children), 0, "nobody waits for what is below `a`");
}
