//! `greenroom log`: the transcript of one session.

use std::time::Duration;

use clap::Args;
use greenroom::{
    SessionId,
    session::{
        codec::encode_event,
        event::Event,
        id::Seq,
        store::{LoadError, Reader},
    },
    store_url::StoreUrl,
};

use super::{failure::Failure, names::Names, session::resolve, store, terminal::Terminal, transcript::Transcript, wait};

/// Events read at a time.
const CHUNK: usize = 512;
/// How often `--follow` looks for new events.
const POLL: Duration = Duration::from_millis(100);

/// Show the transcript of one session.
///
/// Wakes nobody and writes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom log 7f3a\n  greenroom log 7f3a --follow\n  greenroom log 7f3a --raw --from 12")]
pub(crate) struct LogArgs {
    /// The session, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
    /// Begin with this event; the first one is 0.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: Seq,
    /// Go on with what comes, until interrupted.
    #[arg(short, long)]
    follow: bool,
    /// The events themselves, as JSON Lines; --json does the same.
    #[arg(long)]
    raw: bool,
}

impl LogArgs {
    /// Shows.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let id = resolve(&mut *reader, &self.id)?;
        let mut log = LogReader::new(&mut *reader, id.clone(), self.from);
        if self.raw || terminal.is_json() {
            let mut write = |news: News<'_>, terminal: &mut Terminal| {
                let News::Event(event) = news else { return Ok(()) };
                let line = encode_event(&id, event).map_err(|error| Failure::new("EVENT_INVALID", error.to_string()))?;
                terminal.json_text(&String::from_utf8_lossy(&line.body))
            };
            return self.go_through(&mut log, terminal, &mut write);
        }
        let seed_length = log.reader.header(&id)?.map_or(0, |header| header.seed_length);
        // Labels are looked up while the log is read.
        let mut labels = store::reader(url)?;
        let mut transcript = Transcript::new(terminal.paint(), terminal.layout(), Names::of(&mut *labels), seed_length);
        let done = self.go_through(&mut log, terminal, &mut |news, terminal| {
            let lines = match news {
                News::Event(event) => transcript.lines(event),
                News::Pause => transcript.pause(),
            };
            lines.into_iter().try_for_each(|line| terminal.line(line))
        });
        // Also of a log that ends in damage, everything before it is shown.
        transcript.finish().into_iter().try_for_each(|line| terminal.line(line))?;
        done
    }

    fn go_through(
        &self,
        log: &mut LogReader<'_>,
        terminal: &mut Terminal,
        write: &mut impl FnMut(News<'_>, &mut Terminal) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut pause = wait::Pause::new()?;
        loop {
            let events = log.more()?;
            events.iter().try_for_each(|event| write(News::Event(event), terminal))?;
            if terminal.is_closed() {
                return Ok(());
            }
            if events.is_empty() {
                if !self.follow {
                    return Ok(());
                }
                write(News::Pause, terminal)?;
                terminal.flush()?;
                pause.wait(POLL);
            }
        }
    }
}

/// What comes next of a log.
enum News<'a> {
    Event(&'a Event),
    /// Nothing for now: whoever looks wants to see what there is.
    Pause,
}

/// Reads a log piece by piece.
#[derive(Debug)]
pub(crate) struct LogReader<'a> {
    reader: &'a mut dyn Reader,
    id: SessionId,
    next: Seq,
    chunk: usize,
}

impl<'a> LogReader<'a> {
    /// Begins at an event.
    pub(crate) fn new(reader: &'a mut dyn Reader, id: SessionId, next: Seq) -> Self {
        Self { reader, id, next, chunk: CHUNK }
    }

    /// Returns the next events; none at the end of the log. Where a record is damaged, everything before it comes first.
    pub(crate) fn more(&mut self) -> Result<Vec<Event>, Failure> {
        loop {
            match self.reader.events(&self.id, self.next, self.chunk) {
                Ok(events) => {
                    self.next = events.last().map_or(self.next, |event| event.seq + 1);
                    return Ok(events);
                }
                Err(LoadError::Corrupt { .. } | LoadError::Fold { .. }) if self.chunk > 1 => self.chunk /= 2,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
