//! An HTTP server that does as it is told, for one connection after the other.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

/// What a request is answered with.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    /// One chunk of the body.
    Chunk(Vec<u8>),
    /// Nothing more comes, and the connection stays.
    Hang,
    /// The connection is gone in the middle of the body.
    Drop,
    /// Not even the head comes.
    Silence,
}

impl Reply {
    /// Answers well, each frame a chunk of its own.
    pub(super) fn frames(frames: impl IntoIterator<Item = String>) -> Self {
        let steps = frames.into_iter().map(|frame| Step::Chunk(frame.into_bytes())).collect();
        Self { status: 200, headers: vec![("content-type", "text/event-stream".into())], steps }
    }

    /// Answers with an error.
    pub(super) fn error(status: u16, body: impl Into<String>) -> Self {
        let body = body.into().into_bytes();
        let steps = if body.is_empty() { Vec::new() } else { vec![Step::Chunk(body)] };
        Self { status, headers: vec![("content-type", "application/json".into())], steps }
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Answers well, with a body that may be none.
    pub(super) fn page(kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: vec![("content-type", kind.into())], steps: vec![Step::Chunk(body.into())] }
    }

    /// Takes the body apart into chunks of so many bytes, in the middle of characters and of frames.
    pub(super) fn split(mut self, size: usize) -> Self {
        let bytes: Vec<u8> = self.steps.iter().flat_map(|step| if let Step::Chunk(bytes) = step { bytes.clone() } else { Vec::new() }).collect();
        self.steps = bytes.chunks(size).map(|chunk| Step::Chunk(chunk.to_vec())).collect();
        self
    }

    fn and(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(super) fn then_hangs(self) -> Self {
        self.and(Step::Hang)
    }

    pub(super) fn then_drops(self) -> Self {
        self.and(Step::Drop)
    }

    /// Takes the request and says nothing.
    pub(super) fn silence() -> Self {
        Self::frames([]).and(Step::Silence)
    }
}

/// What came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    /// Lower-case names.
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
}

impl Received {
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    count: watch::Sender<usize>,
    closed: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers the first request with the first reply, and so on.
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let received = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(Semaphore::new(0));
        let count = watch::Sender::new(0);
        let (to, ending, counts) = (received.clone(), closed.clone(), count.clone());
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = read(&mut stream).await else { continue };
                to.lock().unwrap().push(request);
                counts.send_modify(|count| *count += 1);
                let reply = replies.pop_front().expect("a reply for every request");
                if !answer(&mut stream, reply).await {
                    let ending = ending.clone();
                    open.spawn(async move {
                        let mut rest = Vec::new();
                        // Lost or closed, it is gone.
                        let _gone = stream.read_to_end(&mut rest).await;
                        ending.add_permits(1);
                    });
                }
            }
        });
        Self { address, received, count, closed, task }
    }

    /// Waits until so many requests have come.
    pub(super) async fn asked(&self, requests: usize) {
        self.count.subscribe().wait_for(|count| *count >= requests).await.unwrap();
    }

    /// Waits until so many connections that hung have been closed from the other side.
    pub(super) async fn closed(&self, connections: u32) {
        self.closed.acquire_many(connections).await.unwrap().forget();
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&part[..read]),
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers: Vec<(String, String)> = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes[head + 4..].to_vec();
    while body.len() < length {
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the request broke off");
        body.extend_from_slice(&part[..read]);
    }
    Some(Received { path, headers, text: String::from_utf8(body).unwrap() })
}

/// Returns whether the connection is at its end.
async fn answer(stream: &mut TcpStream, reply: Reply) -> bool {
    if matches!(reply.steps.first(), Some(Step::Silence)) {
        return false;
    }
    let mut head = format!("HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", reply.status);
    for (name, value) in reply.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    head.push_str("\r\n");
    // Whoever asks may have had enough.
    if stream.write_all(head.as_bytes()).await.is_err() {
        return true;
    }
    for step in reply.steps {
        match step {
            Step::Chunk(bytes) => {
                let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
                if stream.write_all(&chunk).await.is_err() || stream.flush().await.is_err() {
                    return true;
                }
            }
            Step::Drop => return true,
            Step::Hang | Step::Silence => return false,
        }
    }
    let _ended = stream.write_all(b"0\r\n\r\n").await;
    true
}
