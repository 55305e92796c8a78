// What the fuzz targets of the protocols do with their input. The tests of the project run these over the corpus, too (`tests/it/fuzzed.rs`), so they need no fuzzer.

use std::{collections::HashSet, time::Duration};

use greenroom::{
    mcp::{Options, Server},
    wire::{Ends, Frame, Limits, Protocol, Refusal, RequestId, serve},
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// The lines that have their line feed: the rest of a line that the end cuts off is nobody's message.
fn lines(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

/// What the wire has to make of a line; `None` for one that says nothing.
fn judged<'a>(line: &'a [u8], protocol: Protocol, limits: &Limits) -> Option<Result<Frame<'a>, Option<Refusal>>> {
    if line.len() > limits.line {
        return Some(Err(None));
    }
    if line.trim_ascii().is_empty() {
        return None;
    }
    let read = Frame::read(line, limits).and_then(|frame| frame.check(protocol).map(|()| frame));
    Some(read.map_err(Some))
}

/// Reads what was said to the client: whole lines, each of them a message.
fn said(output: &[u8]) -> Vec<Frame<'_>> {
    assert!(output.is_empty() || output.ends_with(b"\n"), "the last line is not whole");
    let anything = Limits { values: usize::MAX, ..Limits::default() };
    lines(output).map(|line| Frame::read(line, &anything).expect("only messages go out")).collect()
}

/// Serves a client that says anything, with a library that answers whatever it gets. The first two bytes say under which bounds, and where the client's writes are cut.
pub fn wire(input: &[u8]) {
    let [how, cut, input @ ..] = input else { return };
    let protocol = if how & 1 == 0 { Protocol::Mcp } else { Protocol::Acp };
    let limits = Limits {
        line: if how & 2 == 0 { 300 } else { 80 },
        values: if how & 4 == 0 { 50 } else { 10 },
        open: 1 + usize::from(how >> 3 & 3),
        held: 200,
        ..Limits::default()
    };
    let (first, rest) = input.split_at(usize::from(*cut).min(input.len()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (seen, output) = runtime.block_on(async {
        let (output, mut client) = tokio::io::duplex(1 << 10);
        let library = |Ends { reader, mut writer, .. }: Ends| async move {
            let mut seen = Vec::new();
            let mut lines = BufReader::new(reader).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                if let Frame::Request { id, .. } = Frame::read(&line, &Limits::default()).expect("the library gets messages only") {
                    writer.write_all(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n").as_bytes()).await.unwrap();
                }
                seen.push(line);
            }
            seen
        };
        let mut said = Vec::new();
        let serving = async {
            let (seen, end) = serve(first.chain(rest), output, protocol, limits, library).await;
            end.unwrap();
            seen
        };
        let (seen, read) = tokio::join!(serving, client.read_to_end(&mut said));
        read.unwrap();
        (seen, said)
    });

    let said = said(&output);
    let (mut passed, mut refused, mut requests, mut cancels, mut ids) = (Vec::new(), 0, 0, 0, HashSet::new());
    for (line, judged) in lines(input).filter_map(|line| Some((line, judged(line, protocol, &limits)?))) {
        match judged {
            Ok(frame) => {
                passed.push(line.to_vec());
                cancels += usize::from(frame.cancels(protocol).is_some());
                if let Frame::Request { id, .. } = frame {
                    requests += 1;
                    ids.insert(id);
                }
            }
            Err(refusal) => {
                refused += 1;
                if let Some(refusal) = refusal {
                    let line = refusal.line();
                    assert!(line.len() < 2_500);
                    assert!(said.contains(&Frame::read(line.as_bytes(), &Limits::default()).unwrap()));
                }
            }
        }
    }
    // Whatever a library could answer was given to it, and nothing else, save for a request whose id another one has; each request and each line that is none has one answer.
    let answered = said.iter().filter(|frame| matches!(frame, Frame::Answer { .. })).count();
    if cancels == 0 {
        if ids.len() == requests {
            let mut seen = seen;
            seen.sort();
            passed.sort();
            assert_eq!(seen, passed);
        }
        assert_eq!(answered, requests + refused);
    } else {
        assert!(answered <= requests + refused && answered + cancels >= requests + refused);
    }
    assert_eq!(said.len(), answered);
}

const GREETING: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"greeting\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"anybody\",\"version\":\"1\"}}}\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
const LAST: &[u8] = b"\n{\"jsonrpc\":\"2.0\",\"id\":\"the last\",\"method\":\"ping\"}\n";

/// Says anything to an MCP server, after the greeting, or before it if the first byte is odd: it answers each request, also a last one after everything else.
pub fn mcp(input: &[u8]) {
    let Some((how, input)) = input.split_first() else { return };
    let limits = Limits { line: 2_000, values: 200, open: 4, held: 1_000, ..Limits::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let output = runtime.block_on(async {
        let (output, mut client) = tokio::io::duplex(1 << 10);
        let server = Server::open(Options::new("memory:".parse().unwrap(), "desk".parse().unwrap(), "/desk")).await.unwrap();
        let mut said = Vec::new();
        let (first, then) = if how % 2 == 0 { (GREETING, input) } else { (input, GREETING) };
        let serving = server.serve(first.chain(&b"\n"[..]).chain(then).chain(LAST), output, limits);
        let (done, read) =
            tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(serving, client.read_to_end(&mut said)) }).await.expect("it ends");
        done.unwrap();
        read.unwrap();
        said
    });

    let whole = [input, b"\n"].concat();
    let mut owed = HashSet::from(["greeting", "the last"].map(|id| RequestId::Text(id.into())));
    let mut cancelled = HashSet::new();
    for frame in lines(&whole).filter_map(|line| judged(line, Protocol::Mcp, &limits)?.ok()) {
        cancelled.extend(frame.cancels(Protocol::Mcp));
        if let Frame::Request { id, .. } = frame {
            owed.insert(id);
        }
    }
    for frame in said(&output) {
        if let Frame::Answer { id: Some(id) } = frame {
            owed.remove(&id);
        }
    }
    owed.retain(|id| !cancelled.contains(id));
    assert!(owed.is_empty(), "never answered: {owed:?}");
}
