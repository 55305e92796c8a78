//! What is made of errors, of answers that break off, and of those that take too long.

use std::time::Duration;

use futures::StreamExt as _;
use greenroom::model::{Api, Endpoint, GenaiModel, Model as _, ModelError, ModelEvent, Timeouts};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{
    KEY, endpoint, heard, hello, model,
    server::{Reply, Server},
    wire::{anthropic, anthropic_end, anthropic_start, anthropic_text, gemini, ollama, openai, openai_call, openai_end},
};

/// The beginning of an answer that says "He", and what would end it.
fn begun(api: Api) -> (Vec<String>, Vec<String>) {
    match api {
        Api::OpenAi => (vec![openai(json!({"content": "He"}), None)], openai_end("stop")),
        Api::Anthropic => {
            let mut said = vec![anthropic_start()];
            said.extend(anthropic_text(0, &["He"]));
            (said, anthropic_end("end_turn"))
        }
        Api::Gemini => (vec![gemini(json!([{"text": "He"}]), None)], vec![gemini(json!([{"text": "llo"}]), Some("STOP"))]),
        _ => (vec![ollama(json!({"content": "He"}), None)], vec![ollama(json!({"content": ""}), Some("stop"))]),
    }
}

async fn fails(api: Api, reply: Reply) -> (Vec<ModelEvent>, ModelError) {
    let server = Server::start([reply]).await;
    let (events, failure) = heard(&model(api, &server), hello()).await;
    (events, failure.unwrap_or_else(|| panic!("{api} did not fail")))
}

#[tokio::test]
async fn an_answer_that_is_an_error_is_told_by_its_status() {
    for api in Api::ALL {
        for (status, body, code, passing) in [
            (429, r#"{"error":{"message":"slow down","type":"rate_limit"}}"#, "MODEL_RATE_LIMIT", true),
            (500, "oops", "MODEL_SERVER", true),
            (529, "", "MODEL_RATE_LIMIT", true),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens","code":"context_length_exceeded"}}"#,
                "MODEL_CONTEXT_FULL",
                false,
            ),
            (400, r#"{"error":{"message":"no such tool"}}"#, "MODEL_BAD_REQUEST", false),
            (401, r#"{"error":{"message":"wrong key"}}"#, "MODEL_AUTH", false),
            // Followed, it would take the key along.
            (307, "", "MODEL_BAD_REQUEST", false),
        ] {
            let reply = Reply::error(status, body).header("retry-after", "7").header("retry-after-ms", "6500").header("location", "http://127.0.0.1:1/");
            let (events, error) = fails(api, reply).await;
            assert_eq!((error.code(), error.is_passing(), events.len()), (code, passing, 0), "{api} {status} {error}");
            assert_eq!(error.retry_after, Some(Duration::from_millis(6_500)), "{api} {status}");
        }
    }
}

#[tokio::test]
async fn an_error_holds_neither_the_key_nor_more_of_a_body_than_anybody_reads() {
    for api in Api::ALL {
        let body = json!({"error": {"message": format!("no such key: {KEY}. {}", "x".repeat(100_000))}}).to_string();
        let (_, error) = fails(api, Reply::error(401, body)).await;
        assert!(error.message.contains("no such key: …. x") && !error.message.contains(KEY), "{api} {error}");
        assert!(error.message.len() <= ModelError::MOST_BYTES, "{api}");
        let server = Server::start([]).await;
        assert!(!format!("{:?}", model(api, &server)).contains(KEY));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_however_it_does() {
    for api in Api::ALL {
        let (said, rest) = begun(api);
        // Both the end of a connection that is no end of an answer, and the loss of one.
        for (how, reply) in
            [("clean", Reply::frames(said.clone())), ("abrupt", Reply::frames(said.clone()).then_drops()), ("at once", Reply::frames([]).then_drops())]
        {
            let (events, error) = fails(api, reply).await;
            assert_eq!((error.code(), error.is_passing()), ("MODEL_TRANSPORT", true), "{api} {how} {error}");
            assert!(events.iter().all(|event| *event == ModelEvent::Text("He".into())), "{api} {how} {events:?}");
        }
        // In the middle of a frame.
        let all = [said.concat(), rest.concat()].concat();
        let half = all.get(..said.concat().len() + rest[0].len() / 2).unwrap().to_owned();
        let (events, error) = fails(api, Reply::frames([half])).await;
        assert_eq!((error.code(), events), ("MODEL_TRANSPORT", vec![ModelEvent::Text("He".into())]), "{api} {error}");
    }
}

#[tokio::test]
async fn nobody_who_answers_is_an_error_that_passes() {
    let server = Server::start([]).await;
    let gone = GenaiModel::new(endpoint(Api::OpenAi, &server).base_url("http://127.0.0.1:1/v1")).unwrap();
    let (_, error) = heard(&gone, hello()).await;
    let error = error.unwrap();
    assert_eq!(error.code(), "MODEL_TRANSPORT");
    // The reason is inside of what the client says.
    assert!(error.message.contains("refused"), "{error}");
}

#[tokio::test]
async fn an_error_in_the_middle_of_an_answer_ends_it() {
    let frames = |api: Api, error: String| {
        let (mut frames, rest) = begun(api);
        frames.push(error);
        frames.extend(rest);
        Reply::frames(frames)
    };
    let data = |body: serde_json::Value| format!("data: {body}\n\n");
    for (api, frame, code) in [
        (Api::OpenAi, data(json!({"error": {"message": "overloaded", "code": 503}})), "MODEL_SERVER"),
        (Api::OpenAi, data(json!({"error": {"message": "slow down", "code": 429}})), "MODEL_RATE_LIMIT"),
        (Api::OpenAi, "data: {nope\n\n".into(), "MODEL_CONTENT"),
        (Api::Anthropic, anthropic("error", json!({"error": {"type": "overloaded_error", "message": "Overloaded"}})), "MODEL_RATE_LIMIT"),
        (Api::Anthropic, "event: content_block_delta\ndata: {nope\n\n".into(), "MODEL_CONTENT"),
        (Api::Gemini, data(json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})), "MODEL_SERVER"),
        (Api::Gemini, "data: {nope\n\n".into(), "MODEL_CONTENT"),
        (Api::Ollama, "{nope\n".into(), "MODEL_CONTENT"),
    ] {
        let (events, error) = fails(api, frames(api, frame.clone())).await;
        assert_eq!(error.code(), code, "{api} {error}");
        assert_eq!(events, [ModelEvent::Text("He".into())], "{api} {frame}");
    }
    // Ollama ends after it.
    let (said, _) = begun(Api::Ollama);
    let (_, error) = fails(Api::Ollama, Reply::frames(said.into_iter().chain(["{\"error\":\"out of memory\"}\n".into()]))).await;
    assert_eq!((error.code(), error.message.as_str()), ("MODEL_SERVER", "out of memory"));
}

#[tokio::test]
async fn an_answer_that_asks_for_tools_and_names_none_is_an_error() {
    let ends = |parts: Vec<String>| parts.into_iter().chain(openai_end("tool_calls")).collect::<Vec<_>>();
    let nameless = openai_call(0, None, "{}");
    for (api, frames) in [
        (Api::OpenAi, ends(vec![])),
        (Api::OpenAi, ends(vec![nameless])),
        (Api::Anthropic, [anthropic_start()].into_iter().chain(anthropic_end("tool_use")).collect()),
    ] {
        let (_, error) = fails(api, Reply::frames(frames)).await;
        assert_eq!(error.code(), "MODEL_CONTENT", "{api}");
    }
    let (_, error) = fails(Api::Gemini, Reply::frames([gemini(json!([]), Some("MALFORMED_FUNCTION_CALL"))])).await;
    assert_eq!(error.code(), "MODEL_EMPTY_RESPONSE");
}

#[tokio::test]
async fn an_answer_that_is_longer_than_a_log_takes_is_given_up() {
    let word = "x".repeat(1024 * 1024);
    let text = (0..17).map(|_| openai(json!({"content": word}), None)).collect::<Vec<_>>();
    let calls = (0..17).map(|index| openai_call(index, Some((&format!("c{index}"), "noon")), &word)).collect::<Vec<_>>();
    for frames in [text, calls] {
        let (_, error) = fails(Api::OpenAi, Reply::frames(frames.into_iter().chain(openai_end("stop")))).await;
        assert_eq!(error.code(), "MODEL_CONTENT", "{error}");
    }
}

#[tokio::test]
async fn whoever_takes_too_long_is_given_up() {
    let short = Duration::from_millis(20);
    let timeouts = Timeouts::default();
    for api in Api::ALL {
        let (said, _) = begun(api);
        let dawdles = || Reply::frames(said.clone()).then_hangs();
        for (how, timeouts, reply) in [
            ("silent", Timeouts { first: short, ..timeouts }, Reply::silence()),
            ("slow", Timeouts { next: short, ..timeouts }, dawdles()),
            ("slow in all", Timeouts { whole: short, ..timeouts }, dawdles()),
            ("silent in all", Timeouts { whole: short, ..timeouts }, Reply::silence()),
            ("slow to say what is wrong", Timeouts { whole: short, ..timeouts }, Reply::error(500, "oo").then_hangs()),
        ] {
            let server = Server::start([reply]).await;
            let model = GenaiModel::new(endpoint(api, &server).timeouts(timeouts)).unwrap();
            let (_, error) = heard(&model, hello()).await;
            let error = error.unwrap_or_else(|| panic!("{api} {how}"));
            assert_eq!((error.code(), error.is_passing()), ("MODEL_TIMEOUT", true), "{api} {how} {error}");
        }
    }
}

#[tokio::test]
async fn whoever_wants_no_more_closes_the_connection_and_asks_again_on_another() {
    let (said, rest) = begun(Api::OpenAi);
    let whole = Reply::frames(said.iter().chain(&rest).cloned());
    let server = Server::start([Reply::frames(said).then_hangs(), whole]).await;
    let model = model(Api::OpenAi, &server);
    let mut events = model.answer(hello()).await.unwrap();
    assert_eq!(events.next().await, Some(Ok(ModelEvent::Text("He".into()))));
    drop(events);
    server.closed(1).await;
    let (events, failure) = heard(&model, hello()).await;
    assert_eq!((events.len(), failure), (2, None));
}

#[tokio::test]
async fn whoever_gives_up_waiting_closes_the_connection() {
    let server = Server::start([Reply::silence()]).await;
    let model = model(Api::Anthropic, &server);
    let mut events = model.answer(hello()).await.unwrap();
    tokio::select! {
        biased;
        () = server.asked(1) => {}
        event = events.next() => panic!("{event:?}"),
    }
    drop(events);
    server.closed(1).await;
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_whatever_it_is_said_to_be() {
    for api in Api::ALL {
        let (said, rest) = begun(api);
        let whole = said.iter().chain(&rest).map(String::as_str).collect::<String>();
        // Ollama's frames are lines, and these are lines, too.
        let by_line = |code: &'static str| if api == Api::Ollama { code } else { "MODEL_TRANSPORT" };
        let of = |bytes: &[u8]| [said.concat().as_bytes(), bytes].concat();
        let nothing = "is that what the base URL leads to?";
        for (how, kind, body, code, words) in [
            ("a page", "text/html", b"<!doctype html>\n<p>Welcome.</p>\n\n<p>data: none</p>\n".to_vec(), by_line("MODEL_CONTENT"), ""),
            ("an answer in one piece", "application/json", b"{\"message\":{\"content\":\"Hello.\"}}".to_vec(), "MODEL_TRANSPORT", ""),
            ("nothing", "text/event-stream", Vec::new(), "MODEL_TRANSPORT", nothing),
            ("comments", "text/event-stream", b": wait\n\n: wait\n\n".to_vec(), by_line("MODEL_CONTENT"), ""),
            ("no text", "text/event-stream", of(b"data: {\"a\":\"\xff\"}\n\n"), "MODEL_CONTENT", "utf-8"),
            ("half a character", "text/event-stream", of(b"data: {\"a\":\"\xf0\x9f"), "MODEL_TRANSPORT", ""),
        ] {
            let (events, error) = fails(api, Reply::page(kind, body)).await;
            assert_eq!(error.code(), code, "{api} {how} {error}");
            assert!(error.message.contains(words) && events.len() < 2, "{api} {how} {error}");
            if api != Api::Ollama && kind != "text/event-stream" {
                assert!(error.message.contains(nothing), "{api} {how} {error}");
            }
        }
        // What it is said to be makes no difference where it is one.
        let server = Server::start([Reply::page("text/plain", whole)]).await;
        let (events, failure) = heard(&model(api, &server), hello()).await;
        assert!(matches!(events.last(), Some(ModelEvent::End { .. })) && failure.is_none(), "{api} {failure:?}");
    }
}

#[tokio::test]
async fn how_long_to_wait_is_told_whatever_the_provider_says_it_in() {
    for api in Api::ALL {
        for (headers, expected) in [
            (&[("retry-after", "7")][..], Some(7_000)),
            (&[("retry-after", "7"), ("retry-after-ms", "6500")], Some(6_500)),
            (&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
            (&[], None),
        ] {
            let reply = headers.iter().fold(Reply::error(429, "slow down"), |reply, (name, value)| reply.header(name, *value));
            let (_, error) = fails(api, reply).await;
            assert_eq!((error.code(), error.retry_after), ("MODEL_RATE_LIMIT", expected.map(Duration::from_millis)), "{api} {headers:?}");
        }
    }
}

#[tokio::test]
async fn what_is_to_be_said_over_tls_is_not_said_without() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let asks = async move {
        let model = GenaiModel::new(Endpoint::new(Api::OpenAi).base_url(url).key(KEY)).unwrap();
        heard(&model, hello()).await.1.unwrap()
    };
    let listens = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        first[0]
    };
    let (error, first) = tokio::join!(asks, listens);
    // So a handshake begins.
    assert_eq!((first, error.code()), (0x16, "MODEL_TRANSPORT"), "{error}");
}
