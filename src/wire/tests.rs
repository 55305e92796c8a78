//! The wire over pipes in memory. The clock is paused: it moves only when nobody can go on, so that what has stopped is seen to have stopped.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf};

use super::*;

fn request(id: u64) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ask\"}}\n")
}

fn answer(id: u64) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n")
}

/// A library that answers whatever it is asked, and counts.
async fn answering(Ends { reader, mut writer, .. }: Ends, seen: Arc<AtomicUsize>) -> Vec<String> {
    let mut lines = BufReader::new(reader).lines();
    let mut all = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        seen.fetch_add(1, SeqCst);
        if let Ok(Frame::Request { id, .. }) = Frame::read(line.as_bytes(), &Limits::default()) {
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
            if writer.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
        all.push(line);
    }
    all
}

/// Serves an input that is there as a whole, and returns what the library saw and the client was told.
async fn whole(input: &[u8], protocol: Protocol, limits: Limits) -> (Vec<String>, Vec<String>) {
    let (output, mut client) = duplex(1 << 20);
    let read = async {
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        said.lines().map(str::to_owned).collect()
    };
    let ((seen, end), said) = both(serve(input, output, protocol, limits, |ends| answering(ends, Arc::default())), read).await;
    end.unwrap();
    (seen, said)
}

/// Runs both to their end. Time stands still unless nobody gets on, so this bound is reached at once by those who wait for each other.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let both = async { tokio::join!(one, other) };
    tokio::time::timeout(Duration::from_secs(3_600), both).await.expect("nobody gets on")
}

#[tokio::test(start_paused = true)]
async fn each_line_that_is_no_message_is_answered_shortly_and_the_next_one_served() {
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":[{}{}]}}}}"#, "[".repeat(200), "]".repeat(200));
    let many = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":[{}0]}}}}"#, "0,".repeat(400));
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "x".repeat(2_000));
    let long = format!(r#"{{"method":"x","params":{{"a":"{}"}},"jsonrpc":"2.0","id":9}}"#, "x".repeat(4_000));
    let garbage = "x".repeat(4_000);
    for (line, id, code, said) in [
        (&b"hello"[..], "null", -32700, "not JSON: expected value at column 1"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,", "null", -32700, "not JSON: EOF while parsing"),
        (b"\0", "null", -32700, "not JSON"),
        (b"{\"a\":\"\xff\"}", "null", -32700, "not UTF-8: the first bad byte is byte 7"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "null", -32700, "not JSON"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#, "null", -32700, "trailing characters"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}"#, "null", -32700, "number out of range"),
        (deep.as_bytes(), "null", -32700, "recursion limit exceeded"),
        (many.as_bytes(), "null", -32600, "too many values, the most is 300"),
        (long.as_bytes(), "9", -32600, "longer than the limit of 3000 bytes"),
        (garbage.as_bytes(), "null", -32600, "longer than the limit"),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}]", "null", -32600, "one object"),
        (b"5", "null", -32600, "one object"),
        (b"null", "null", -32600, "one object"),
        (b"{}", "null", -32600, "`jsonrpc` must be"),
        (br#"{"jsonrpc":"1.0","id":6,"method":"x"}"#, "6", -32600, "`jsonrpc` must be \\\"2.0\\\""),
        (br#"{"jsonrpc":2.0,"id":"6","method":"x"}"#, "\"6\"", -32600, "`jsonrpc` must be"),
        (br#"{"jsonrpc":"2.0","id":5}"#, "5", -32600, "`method` is missing"),
        (br#"{"jsonrpc":"2.0","id":5,"result":1,"error":{}}"#, "5", -32600, "`method` is missing"),
        (br#"{"jsonrpc":"2.0","id":5,"method":7}"#, "5", -32600, "`method` must be a string"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":"y"}"#, "5", -32600, "`params` must be"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":[]}"#, "5", -32600, "`params` must be an object"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":null}"#, "5", -32600, "`params` must be"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":{"_meta":5}}"#, "5", -32600, "`_meta` must be an object"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":{"_meta":{},"\u005fmeta":{}}}"#, "5", -32600, "`_meta` is there twice"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"x","params":{"_meta":{"progressToken":[]}}}"#, "5", -32600, "`progressToken` must be"),
        (br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, "null", -32600, "`id` must be"),
        (br#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, "null", -32600, "`id` must be"),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, "null", -32600, "`id` must be"),
        (br#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"x"}"#, "null", -32600, "`id` must be"),
        (long_id.as_bytes(), "null", -32600, "`id` must be"),
        (br#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"x"}"#, "null", -32600, "twice"),
    ] {
        let shown = String::from_utf8_lossy(line).chars().take(80).collect::<String>();
        let mut input = line.to_vec();
        input.extend_from_slice(b"\n \n");
        input.extend_from_slice(request(77).as_bytes());
        let limits = Limits { line: 3_000, values: 300, ..Limits::default() };
        let (seen, mut told) = whole(&input, Protocol::Mcp, limits).await;
        assert_eq!(seen.len(), 1, "{shown}");
        told.sort_unstable_by_key(|line| line.contains("\"result\""));
        let [refused, served] = &told[..] else { panic!("{shown}: {told:?}") };
        assert_eq!(*served, answer(77).trim_end(), "{shown}");
        assert!(refused.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#)), "{shown}: {refused}");
        assert!(refused.contains(said), "{shown}: {refused}");
        assert!(refused.len() < 200, "{shown}: {refused}");
        serde_json::from_str::<serde_json::Value>(refused).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_a_message_passes_byte_for_byte() {
    let lines = [
        r#"  {"jsonrpc":"2.0","id":"a","method":"x","params":{"t":"\u00e9\ud83d\ude00"},"more":[]} "#,
        r#"{"jsonrpc":"2.0","method":"note","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":-9223372036854775808,"method":"x"}"#,
    ];
    // A cut line at the end is dropped, also where it would be a whole message.
    let input = format!("{}\r\n{}", lines.join("\n"), request(5).trim_end());
    let (seen, told) = whole(input.as_bytes(), Protocol::Acp, Limits::default()).await;
    assert_eq!(seen.iter().map(|line| line.trim_end_matches('\r')).collect::<Vec<_>>(), lines);
    assert_eq!(told.len(), 2, "{told:?}");
}

/// An endless client that never reads: requests, one after the other, counted as they are taken from it.
struct Flood {
    next: u64,
    rest: Vec<u8>,
    taken: Arc<AtomicU64>,
}

impl AsyncRead for Flood {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while buf.remaining() > 0 {
            if self.rest.is_empty() {
                self.rest = request(self.next).into_bytes();
                self.next += 1;
            }
            let size = buf.remaining().min(self.rest.len());
            buf.put_slice(&self.rest[..size]);
            self.rest.drain(..size);
            self.taken.fetch_add(size as u64, SeqCst);
        }
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_from_a_client_that_does_not_read_is_stopped_at_its_source() {
    let limits = Limits { open: 8, held: 1_000, ..Limits::default() };
    let (output, client) = duplex(64);
    let (taken, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let flood = Flood { next: 0, rest: Vec::new(), taken: taken.clone() };
    let own = seen.clone();
    let serving = serve(flood, output, Protocol::Mcp, limits, |ends| answering(ends, own));
    tokio::pin!(serving);
    // Time passes only once nobody gets on.
    let stopped = tokio::time::timeout(Duration::from_secs(60), &mut serving).await;
    assert!(stopped.is_err());
    // Those that are open, those that were answered into what the client's pipe holds, and the one whose answer stands in it.
    assert!((8..=8 + 3).contains(&seen.load(SeqCst)), "{}", seen.load(SeqCst));
    // What is held, and what one read takes at once.
    assert!(taken.load(SeqCst) < 1_000 + 2 * 8_192, "{}", taken.load(SeqCst));
    // Gone, it is the end of the input, and the library ends.
    drop(client);
    let (_, end) = serving.await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn a_flood_that_is_read_is_answered_to_the_last() {
    let mut input: String = (0..5_000).map(request).collect();
    input.push_str(r#"{"jsonrpc":"2.0","method":"over"}"#);
    input.push('\n');
    let (seen, told) = whole(input.as_bytes(), Protocol::Mcp, Limits { open: 3, held: 200, ..Limits::default() }).await;
    assert_eq!((seen.len(), told.len()), (5_001, 5_000));
    assert!(told.iter().zip(0..).all(|(line, id)| *line == answer(id).trim_end()), "in order");
}

/// A library that answers nothing before it is told to, and shows what it sees.
struct Slow {
    seen: tokio::sync::mpsc::UnboundedReceiver<String>,
    say: tokio::sync::mpsc::UnboundedSender<String>,
}

fn slow() -> (Slow, impl FnOnce(Ends) -> futures::future::BoxFuture<'static, ()>) {
    let (show, seen) = tokio::sync::mpsc::unbounded_channel();
    let (say, mut says) = tokio::sync::mpsc::unbounded_channel::<String>();
    let library = move |Ends { reader, mut writer, .. }: Ends| -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut lines = BufReader::new(reader).lines();
            loop {
                tokio::select! {
                    line = lines.next_line() => match line.unwrap() {
                        Some(line) => show.send(line).unwrap(),
                        None => return,
                    },
                    Some(line) = says.recv() => writer.write_all(line.as_bytes()).await.unwrap(),
                }
            }
        })
    };
    (Slow { seen, say }, library)
}

impl Slow {
    /// What the library has seen by the time when nobody gets on.
    async fn sees(&mut self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut seen = Vec::new();
        while let Ok(line) = self.seen.try_recv() {
            seen.push(line);
        }
        seen
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_overtakes_what_waits_and_makes_room() {
    for (protocol, cancel) in [(Protocol::Mcp, "notifications/cancelled"), (Protocol::Acp, "$/cancel_request")] {
        let cancels = |id: u64| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{cancel}\",\"params\":{{\"requestId\":{id}}}}}\n");
        let (mut slow, library) = slow();
        let (mut client, input) = duplex(1 << 16);
        let (output, told) = duplex(1 << 16);
        let mut told = BufReader::new(told).lines();
        let serving = serve(input, output, protocol, Limits { open: 2, ..Limits::default() }, library);
        let script = async {
            for id in 1..=5 {
                client.write_all(request(id).as_bytes()).await.unwrap();
            }
            assert_eq!(slow.sees().await, [request(1).trim_end(), request(2).trim_end()], "two are open, three wait");
            // One that waits is taken out; one that is open is the library's.
            client.write_all(cancels(4).as_bytes()).await.unwrap();
            assert!(slow.sees().await.is_empty());
            client.write_all(cancels(1).as_bytes()).await.unwrap();
            let seen = slow.sees().await;
            assert_eq!(seen.first().map(String::as_str), Some(cancels(1).trim_end()));
            match protocol {
                // Nobody will answer it, so the next one comes in.
                Protocol::Mcp => assert_eq!(seen[1..], [request(3).trim_end()]),
                Protocol::Acp => {
                    assert_eq!(
                        told.next_line().await.unwrap().unwrap(),
                        r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32800,"message":"the request was cancelled"}}"#
                    );
                    assert_eq!(seen.len(), 1);
                    slow.say.send(answer(1)).unwrap();
                    assert_eq!(slow.sees().await, [request(3).trim_end()]);
                    assert_eq!(told.next_line().await.unwrap().unwrap(), answer(1).trim_end());
                }
            }
            // A late answer to what was cancelled gives no second place.
            if protocol == Protocol::Mcp {
                slow.say.send(answer(1)).unwrap();
                assert!(slow.sees().await.is_empty());
                told.next_line().await.unwrap();
            }
            slow.say.send(answer(2)).unwrap();
            assert_eq!(slow.sees().await, [request(5).trim_end()]);
            drop(client);
        };
        let (((), end), ()) = both(serving, script).await;
        end.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_used_again_as_soon_as_its_answer_can_be_read_and_not_before() {
    let (mut slow, library) = slow();
    let (output, client) = duplex(1 << 16);
    let (mut say, input) = duplex(1 << 16);
    let serving = serve(input, output, Protocol::Mcp, Limits { open: 2, ..Limits::default() }, library);
    let script = async move {
        let mut said = BufReader::new(client).lines();
        // The second waits for a place, and its id is in use, too.
        for id in [1, 2, 3, 1, 3] {
            say.write_all(request(id).as_bytes()).await.unwrap();
        }
        assert_eq!(slow.sees().await, [request(1).trim_end(), request(2).trim_end()]);
        for _ in 0..2 {
            let refused = said.next_line().await.unwrap().unwrap();
            assert!(refused.contains("\"id\":null") && refused.contains("is not answered yet"), "{refused}");
        }
        for round in 0..3 {
            slow.say.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n".into()).unwrap();
            assert!(said.next_line().await.unwrap().unwrap().contains("\"result\""));
            say.write_all(request(1).as_bytes()).await.unwrap();
            let seen = slow.sees().await;
            // What waited has the place of the first.
            assert_eq!(seen, if round == 0 { vec![request(3).trim_end().to_owned()] } else { vec![request(1).trim_end().to_owned()] });
            if round == 0 {
                slow.say.send("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n".into()).unwrap();
                assert!(said.next_line().await.unwrap().unwrap().contains("\"id\":3"));
                assert_eq!(slow.sees().await, [request(1).trim_end()]);
            }
        }
        drop(say);
    };
    let (((), end), ()) = both(serving, script).await;
    end.unwrap();
}

#[tokio::test(start_paused = true)]
async fn notifications_wait_for_room_and_a_client_that_has_gone_ends_the_waiting() {
    let sent = Arc::new(AtomicUsize::new(0));
    let own = sent.clone();
    let (output, client) = duplex(64);
    let (_client_writes, input) = duplex(64);
    let library = |Ends { room, mut writer, .. }: Ends| async move {
        // As an SDK does it: whoever sends does not wait for the pipe.
        let (queue, mut queued) = tokio::sync::mpsc::unbounded_channel::<String>();
        let writing = tokio::spawn(async move {
            while let Some(line) = queued.recv().await {
                if writer.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        while room.take().await {
            queue.send("{\"jsonrpc\":\"2.0\",\"method\":\"update\"}\n".to_owned()).unwrap();
            own.fetch_add(1, SeqCst);
        }
        drop(queue);
        writing.await.unwrap();
    };
    let serving = serve(input, output, Protocol::Acp, Limits { notifications: 10, ..Limits::default() }, library);
    tokio::pin!(serving);
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut serving).await.is_err());
    // One stands in the client's pipe, one is being written.
    assert!((10..=12).contains(&sent.load(SeqCst)), "{}", sent.load(SeqCst));
    drop(client);
    serving.await.1.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_the_end_is_written_and_a_client_that_does_not_read_does_not_hold_the_end_up() {
    for reads in [true, false] {
        let (output, mut client) = duplex(16);
        let (_client_writes, input) = duplex(64);
        // The library ends by itself, and has said more than the pipe to the client holds.
        let library = |Ends { mut writer, .. }: Ends| async move {
            for id in 0..100 {
                writer.write_all(answer(id).as_bytes()).await.unwrap();
            }
        };
        let serving = serve(input, output, Protocol::Mcp, Limits::default(), library);
        let (end, said) = if reads {
            let reading = async {
                let mut said = String::new();
                client.read_to_string(&mut said).await.unwrap();
                said
            };
            let (((), end), said) = both(serving, reading).await;
            (end, said)
        } else {
            (serving.await.1, String::new())
        };
        if reads {
            end.unwrap();
            assert_eq!(said, (0..100).map(answer).collect::<String>());
        } else {
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_library_says_that_is_no_message_does_not_go_out() {
    let (output, mut client) = duplex(1 << 16);
    let library = |Ends { mut writer, .. }: Ends| async move {
        writer.write_all(b"a remark\n").await.unwrap();
        writer.write_all(answer(1).as_bytes()).await.unwrap();
        writer.write_all(b"half").await.unwrap();
    };
    let serving = serve(&b""[..], output, Protocol::Mcp, Limits::default(), library);
    let mut said = String::new();
    let (((), end), read) = both(serving, client.read_to_string(&mut said)).await;
    end.unwrap();
    read.unwrap();
    assert_eq!(said, answer(1));
}
