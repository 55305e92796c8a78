//! What the facade refuses, and with which code.

use futures::future::BoxFuture;
use greenroom::{
    Behavior, Delegate, Runtime, RuntimeBuilder, Turn, TurnEnd, TurnError,
    actors::host::{NewRoot, RootError},
    session::{event::Body, message::text_of},
};

fn cast() -> RuntimeBuilder {
    Runtime::builder().closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) })
}

fn code<T: std::fmt::Debug>(refused: Result<T, RootError>) -> &'static str {
    refused.unwrap_err().code()
}

#[tokio::test]
async fn a_child_is_not_brought_up_as_a_root() {
    let runtime = cast().open("memory:").await.unwrap();
    let root = runtime.root("desk", "desk").await.unwrap();
    let child = root.agent().start_continuable(Delegate::new("desk", "a child", "begin")).await.unwrap().child;
    root.quiescent().await.unwrap();
    assert_eq!(code(runtime.resume(&child).await), "NOT_A_ROOT");
    assert_eq!(code(runtime.resume(&"nobody".parse().unwrap()).await), "SESSION_NOT_FOUND");
    assert_eq!(code(runtime.root("nobody", "desk").await), "AGENT_UNKNOWN");
    assert_eq!(code(runtime.root("desk", "two\nlines").await), "INVALID_LABEL");
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_label_that_could_mislead_is_refused_for_a_root_and_for_a_child() {
    let runtime = cast().open("memory:").await.unwrap();
    let root = runtime.root("desk", "desk").await.unwrap();
    let agent = root.agent();
    let (longest, too_long) = ("é".repeat(200), "é".repeat(201));
    let misleading =
        ["\0", "\t", "\n", "\r", "\u{1b}", "\u{7f}", "\u{85}", "\u{9b}", "\u{2028}", "\u{2029}", "\u{61c}", "\u{200e}", "\u{202e}", "\u{2066}", "\u{2069}"];
    for label in misleading.map(|c| format!("a{c}b")).into_iter().chain([String::new(), too_long]) {
        assert_eq!(code(runtime.root("desk", &label).await), "INVALID_LABEL", "{label:?}");
        let refused = agent.start_continuable(Delegate::new("desk", &label, "begin")).await;
        assert_eq!(refused.unwrap_err().code(), "INVALID_LABEL", "{label:?}");
    }
    assert!(runtime.list(Some(root.id())).await.unwrap().entries.is_empty());
    for label in ["a", "漢字 — \u{200d} \"quoted\"", &longest] {
        drop(runtime.root("desk", label).await.unwrap());
        agent.start_continuable(Delegate::new("desk", label, "begin")).await.unwrap();
    }
    assert_eq!(runtime.list(Some(root.id())).await.unwrap().entries.len(), 3);
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_root_of_a_known_id_is_the_same_root_or_none() {
    let runtime = cast().open("memory:").await.unwrap();
    let new = |label: &str| NewRoot { id: Some("desk".parse().unwrap()), ..NewRoot::new("desk", label) };
    let first = runtime.host().root(new("a desk")).await.unwrap();
    let again = runtime.host().root(new("a desk")).await.unwrap();
    assert_eq!(first.id(), again.id());
    assert_eq!(code(runtime.host().root(new("another desk")).await), "SESSION_EXISTS");
    runtime.shutdown().await;
}

#[tokio::test]
async fn without_the_query_service_work_goes_on_and_reading_is_refused() {
    const UNAVAILABLE: &str = "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE";
    let runtime = cast().without_query().open("memory:").await.unwrap();
    let root = runtime.root("desk", "desk").await.unwrap();
    root.send("work").await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!(runtime.list(None).await.unwrap_err().code(), UNAVAILABLE);
    assert_eq!(runtime.last_answer(root.id()).await.unwrap_err().code(), UNAVAILABLE);
    assert_eq!(runtime.trace(root.id()).await.unwrap_err().code(), UNAVAILABLE);
    runtime.shutdown().await;
}

#[tokio::test]
async fn after_a_shutdown_nothing_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("desk.db").display()), format!("jsonl:{}", folder.path().join("desk").display())]
    {
        let runtime = cast().open(&url).await.unwrap();
        let root = runtime.root("desk", "desk").await.unwrap();
        let agent = root.agent();
        runtime.shutdown().await;
        assert_eq!(root.send("late").await.unwrap_err().code(), "DRAINING", "{url}");
        let late = agent.start_continuable(Delegate::new("desk", "a child", "late")).await;
        assert_eq!(late.unwrap_err().code(), "UNAUTHORIZED", "{url}: the epoch has ended");
    }
}

#[tokio::test]
async fn a_forked_child_knows_its_history_and_counts_its_own_messages_only() {
    let runtime = Runtime::builder()
        .closure("desk", |turn: Turn| async move {
            match turn.text().as_str() {
                "one" => turn.say("the parent's own words")?,
                "two" => {
                    turn.delegate(Delegate::new("clerk", "talks", "begin").provider("fork")).await?;
                    turn.delegate(Delegate::new("mute", "is silent", "begin").provider("fork")).await?;
                }
                _ => {}
            }
            Ok(TurnEnd::Completed)
        })
        .closure("clerk", |turn: Turn| async move {
            let heard = turn.history().len();
            turn.say(format!("{:?} of {heard}", turn.rank()))?;
            Ok(TurnEnd::Completed)
        })
        .closure("mute", |_turn: Turn| async { Ok(TurnEnd::Completed) })
        .open("memory:")
        .await
        .unwrap();
    let root = runtime.root("desk", "desk").await.unwrap();
    root.send("one").await.unwrap();
    root.quiescent().await.unwrap();
    root.send("two").await.unwrap();
    root.quiescent().await.unwrap();
    let children = runtime.list(Some(root.id())).await.unwrap().entries;
    let by_label = |label: &str| children.iter().find(|entry| entry.listed().unwrap().label.as_deref() == Some(label)).unwrap().id();
    assert_eq!(runtime.last_answer(by_label("talks")).await.unwrap().as_deref(), Some("Some(0) of 3"), "two messages were inherited");
    assert_eq!(runtime.last_answer(by_label("is silent")).await.unwrap(), None);
    let heard: Vec<String> = runtime
        .read_events(root.id())
        .await
        .unwrap()
        .iter()
        .filter_map(|event| event.body.surface_message().map(|message| text_of(&message.content)))
        .collect();
    assert_eq!(heard.iter().filter(|text| text.contains("the parent's own words")).count(), 1, "no notice quotes them: {heard:?}");
    runtime.shutdown().await;
}

/// Panics before there is a future.
struct Hasty;

impl Behavior for Hasty {
    fn turn(&mut self, _turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        panic!("too early")
    }
}

#[tokio::test]
async fn a_turn_that_fails_in_an_unusual_way_fails_once_and_says_how() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("desk.db").display()), format!("jsonl:{}", folder.path().join("desk").display())]
    {
        let runtime = cast()
            .behavior("hasty", || Hasty)
            .closure("loud", |turn: Turn| async move {
                turn.say("x".repeat(18 << 20))?;
                Ok(TurnEnd::Completed)
            })
            .closure("noter", |turn: Turn| async move {
                assert_eq!(turn.memo("x".repeat(18 << 20)).unwrap_err().code, "EVENT_TOO_LARGE");
                // The log is unhurt, and so is the turn.
                turn.say("too long for a memo")?;
                Ok(TurnEnd::Completed)
            })
            .open(&url)
            .await
            .unwrap();
        for (agent, expected) in [("hasty", Some("PANIC")), ("loud", Some("EVENT_TOO_LARGE")), ("noter", None)] {
            let root = runtime.root(agent, agent).await.unwrap();
            root.send("go").await.unwrap();
            root.send("again").await.unwrap();
            assert_eq!(root.quiescent().await.unwrap(), []);
            let ends: Vec<_> = runtime
                .read_events(root.id())
                .await
                .unwrap()
                .into_iter()
                .filter_map(|event| match event.body {
                    Body::TurnEnd { reason, .. } => Some(reason.error_code().map(str::to_owned)),
                    _ => None,
                })
                .collect();
            assert_eq!(ends, vec![expected.map(str::to_owned); 2], "{agent} on {url}");
        }
        runtime.shutdown().await;
    }
}

/// Whoever prints a handle, in a log line or a failed assertion, gets a few words and nothing of what is stored.
#[tokio::test]
async fn a_handle_that_is_printed_does_not_print_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for url in ["memory:".to_owned(), format!("sqlite:{}", place("desk.db")), format!("jsonl:{}", place("desk"))] {
        let (printed, mut turns) = tokio::sync::mpsc::unbounded_channel();
        let play = move |turn: Turn| {
            printed.send(format!("{turn:?}")).unwrap();
            async { Ok(TurnEnd::Completed) }
        };
        let store = url.parse::<greenroom::store_url::StoreUrl>().unwrap().open().unwrap();
        let runtime = Runtime::builder().closure("desk", play).start(store.clone()).await.unwrap();
        let root = runtime.root("desk", "desk").await.unwrap();
        for n in 0..20 {
            root.agent().start_continuable(Delegate::new("desk", format!("secret-{n}"), "secret-prompt")).await.unwrap();
        }
        root.send("secret-message").await.unwrap();
        root.quiescent().await.unwrap();
        let mut shown = vec![format!("{store:?}"), format!("{runtime:?}"), format!("{:?}", runtime.host()), format!("{root:?}"), format!("{:?}", root.agent())];
        while let Ok(turn) = turns.try_recv() {
            shown.push(turn);
        }
        assert!(shown.len() > 20);
        for text in shown {
            assert!(text.len() < 1_000, "{url}: {} bytes: {text}", text.len());
            // A turn knows its own message and no other's.
            assert!(text.starts_with("Turn") || !text.contains("secret"), "{url}: {text}");
        }
        runtime.shutdown().await;
    }
}
