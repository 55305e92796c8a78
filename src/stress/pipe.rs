//! What a worker and its supervisor say to each other, and the worker's side of it.
//!
//! The supervisor writes one line of JSON, the assignment, and then nothing: that its end is still open tells the worker that the supervisor is there.
//! The worker writes a line per thing that it tells. A line that a kill has cut lacks its last word and is no line.

use std::{cell::Cell, future::pending, io};

use greenroom_session::store::StoreError;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};

use super::{
    StressError,
    plan::Name,
    records::{Answer, News, Told},
    work::{Assignment, work},
};
use crate::{runtime::OpenError, store_url::StoreUrl};

/// The last word of every line.
const END: &str = ".";
/// Lines that are written at once.
const BATCH: usize = 256;

/// Writes what is told as a line.
pub(super) fn line(told: &Told) -> String {
    match told {
        Told::LaidOut => format!("laid-out {END}\n"),
        Told::Accepted { name, latency_us } => format!("accepted {} {} {latency_us} {END}\n", name.sender, name.number),
        Told::Interrupting { name } => format!("interrupting {} {} {END}\n", name.sender, name.number),
        Told::Answered { name, answer } => {
            let answer = match answer {
                Answer::Withdrawn => "withdrawn".to_owned(),
                Answer::AlreadyStarted => "already-started".to_owned(),
                Answer::NotPending => "not-pending".to_owned(),
                Answer::Interrupted { turn } => format!("interrupted {turn}"),
                Answer::NotRunning => "not-running".to_owned(),
            };
            format!("answered {} {} {answer} {END}\n", name.sender, name.number)
        }
        Told::Busy { times } => format!("busy {times} {END}\n"),
        Told::Turns { ended } => format!("turns {ended} {END}\n"),
        Told::Drained => format!("drained {END}\n"),
        Told::Done => format!("done {END}\n"),
    }
}

/// Reads a line, without the character that ends it; `None` if it is none.
pub(super) fn read(line: &str) -> Option<Told> {
    let words: Vec<&str> = line.split(' ').collect();
    let name = |sender: &str, number: &str| Some(Name { sender: sender.parse().ok()?, number: number.parse().ok()? });
    Some(match words.as_slice() {
        ["laid-out", END] => Told::LaidOut,
        ["accepted", sender, number, latency_us, END] => Told::Accepted { name: name(sender, number)?, latency_us: latency_us.parse().ok()? },
        ["interrupting", sender, number, END] => Told::Interrupting { name: name(sender, number)? },
        ["answered", sender, number, answer @ .., END] => {
            let answer = match answer {
                ["withdrawn"] => Answer::Withdrawn,
                ["already-started"] => Answer::AlreadyStarted,
                ["not-pending"] => Answer::NotPending,
                ["interrupted", turn] => Answer::Interrupted { turn: turn.parse().ok()? },
                ["not-running"] => Answer::NotRunning,
                _ => return None,
            };
            Told::Answered { name: name(sender, number)?, answer }
        }
        ["busy", times, END] => Told::Busy { times: times.parse().ok()? },
        ["turns", ended, END] => Told::Turns { ended: ended.parse().ok()? },
        ["drained", END] => Told::Drained,
        ["done", END] => Told::Done,
        _ => return None,
    })
}

/// Runs a worker of a stress run whose process is killed ([`Kills`](super::Kills)): the whole of a process, over its standard input and output.
///
/// Ends when `input` does: with its supervisor, whatever has become of that. Nothing else may be written to `output`.
///
/// # Errors
/// [`StressError::Orphaned`] if `input` ends before the work is done, [`StressError::Pipe`] if it does not begin with an assignment or `output` cannot be written,
/// else as [`stress`](super::stress).
///
/// # Cancel safety
/// As if the process had been killed, but that the runtime goes on.
pub async fn worker(input: impl AsyncRead + Unpin, output: impl AsyncWrite + Unpin) -> Result<(), StressError> {
    let mut input = BufReader::new(input);
    let mut assignment = String::new();
    input.read_line(&mut assignment).await?;
    let assignment: Assignment = serde_json::from_str(&assignment).map_err(io::Error::other)?;
    let alone = async move {
        let mut rest = [0; 64];
        while input.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    };
    tokio::pin!(alone);
    let url: StoreUrl = assignment.store.parse().map_err(OpenError::from)?;
    let store = tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| StoreError::Io(Box::new(error)))??;
    let (tell, news) = mpsc::unbounded_channel();
    let worked = async {
        let worked = Box::pin(work(store, &assignment, &tell, pending::<()>())).await.map(drop);
        drop(tell);
        worked
    };
    let said_done = Cell::new(false);
    tokio::select! {
        both = async { tokio::try_join!(worked, write(news, output, &said_done)) } => both.map(drop)?,
        // A supervisor that has heard the last word may go before this side of the pipe knows that it was heard.
        () = &mut alone => return if said_done.get() { Ok(()) } else { Err(StressError::Orphaned) },
    }
    // The supervisor looks at this process before it lets it go.
    alone.await;
    Ok(())
}

/// Writes down everything that is told; `said_done` becomes true before the last word may be read. What was written is read, also after a kill.
async fn write(mut news: mpsc::UnboundedReceiver<News>, mut output: impl AsyncWrite + Unpin, said_done: &Cell<bool>) -> Result<(), StressError> {
    let (mut batch, mut text): (Vec<News>, _) = (Vec::with_capacity(BATCH), String::new());
    while news.recv_many(&mut batch, BATCH).await > 0 {
        text.clear();
        said_done.set(said_done.get() || batch.iter().any(|news| news.told == Told::Done));
        text.extend(batch.iter().map(|news| line(&news.told)));
        output.write_all(text.as_bytes()).await?;
        output.flush().await?;
        batch.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::records::Place, *};

    #[test]
    fn a_line_is_read_as_it_was_written_and_never_if_it_was_cut() {
        let name = Name { sender: 12, number: 345 };
        let answers = [Answer::Withdrawn, Answer::AlreadyStarted, Answer::NotPending, Answer::Interrupted { turn: 67 }, Answer::NotRunning];
        let others = [
            Told::LaidOut,
            Told::Accepted { name, latency_us: 678 },
            Told::Interrupting { name },
            Told::Busy { times: 9 },
            Told::Turns { ended: 1_000 },
            Told::Drained,
            Told::Done,
        ];
        for told in answers.map(|answer| Told::Answered { name, answer }).into_iter().chain(others) {
            let line = line(&told);
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(read(line), Some(told));
            for cut in 0..line.len() {
                assert_eq!(read(&line[..cut]), None, "{:?}", &line[..cut]);
            }
        }
        for line in
            ["", ".", "laid-out . .", "accepted 1 2 .", "accepted a 2 3 .", "turns -1 .", "answered 1 2 .", "answered 1 2 interrupted .", "answered 1 2 gone ."]
        {
            assert_eq!(read(line), None, "{line:?}");
        }
    }

    #[tokio::test]
    async fn a_worker_without_a_supervisor_ends() {
        assert!(matches!(worker(&b""[..], Vec::new()).await, Err(StressError::Pipe(_))), "no assignment");
        let plan = super::super::plan::Plan { seed: 1, agents: 2, senders: 2, messages: 1_000_000, min_size: 1, max_size: 1 };
        let root = greenroom_session::id::SessionId::new("root").unwrap();
        let assignment = Assignment { store: "memory:".into(), plan, root, inbox_limit: 8, senders: vec![Place::default(); 2] };
        let line = serde_json::to_string(&assignment).unwrap() + "\n";
        assert!(matches!(worker(line.as_bytes(), Vec::new()).await, Err(StressError::Orphaned)));
    }
}
