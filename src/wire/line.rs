//! Lines of bounded length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::skipped::Skipped;

/// One line of the input, without its line feed.
///
/// ```
/// use greenroom::wire::{Line, LineReader};
/// # tokio_test::block_on(async {
/// let mut lines = LineReader::new(&b"ab\nabcdef\ncd"[..], 4);
/// assert_eq!(lines.next().await?, Some(Line::Whole(b"ab".to_vec())));
/// assert!(matches!(lines.next().await?, Some(Line::TooLong { id: None })));
/// assert_eq!(lines.next().await?, None); // what has no line feed was not sent to its end
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line that is no longer than the limit.
    Whole(Vec<u8>),
    /// A longer one, of which nothing was kept.
    TooLong {
        /// The JSON text of the member `id` of the object that the line holds, where that could be told on the way.
        id: Option<String>,
    },
}

/// Reads lines and holds no more of one than a limit.
///
/// ```
/// use greenroom::wire::LineReader;
/// # tokio_test::block_on(async {
/// assert!(LineReader::new(&b""[..], 4).next().await?.is_none());
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct LineReader<R> {
    input: BufReader<R>,
    most: usize,
    line: Vec<u8>,
    skipped: Option<Skipped>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most so many bytes.
    pub fn new(input: R, most: usize) -> Self {
        Self { input: BufReader::new(input), most, line: Vec::new(), skipped: None }
    }

    /// Returns the next line, and `None` at the end. A last line without a line feed is not returned: nobody knows what is missing of it.
    ///
    /// # Errors
    /// That the input cannot be read.
    ///
    /// # Cancel safety
    /// Loses nothing: the next call goes on with the line.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let found = self.input.fill_buf().await?;
            if found.is_empty() {
                return Ok(None);
            }
            let end = found.iter().position(|byte| *byte == b'\n');
            let part = found.get(..end.unwrap_or(found.len())).unwrap_or_default();
            let used = part.len() + usize::from(end.is_some());
            if let Some(skipped) = &mut self.skipped {
                skipped.take(part);
            } else if self.line.len() + part.len() > self.most {
                let mut skipped = Skipped::default();
                skipped.take(&std::mem::take(&mut self.line));
                skipped.take(part);
                self.skipped = Some(skipped);
            } else {
                self.line.extend_from_slice(part);
            }
            self.input.consume(used);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(match self.skipped.take() {
                    Some(skipped) => Line::TooLong { id: skipped.id() },
                    None => Line::Whole(line),
                }));
            }
        }
    }
}
