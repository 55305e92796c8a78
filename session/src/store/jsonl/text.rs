//! The bytes of a file, in memory or where they lie, and its lines one by one.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind, Read},
    os::unix::fs::FileExt,
};

/// How many bytes are looked at together. Few in tests, so that their short files have more than one such piece.
pub(super) const PIECE: u64 = if cfg!(test) { 7 } else { 64 * 1024 };

/// Bytes that can be read from any place on.
pub(super) trait Text {
    /// Returns how many there are.
    fn length(&self) -> u64;

    /// Reads bytes from a place on, as many as come at once; none at the end.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Reads the bytes between two places.
    fn range(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX)];
        Ahead { text: self, at: from }.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns where the line begins that ends before a place: after the line feed before that.
    fn start_of_line(&self, end: u64) -> io::Result<u64> {
        let mut to = end.saturating_sub(1);
        while to > 0 {
            let from = to.saturating_sub(PIECE);
            if let Some(at) = self.range(from, to)?.iter().rposition(|&byte| byte == b'\n') {
                return Ok(from + at as u64 + 1);
            }
            to = from;
        }
        Ok(0)
    }

    /// Counts the lines that end before a place.
    fn lines_before(&self, end: u64) -> io::Result<u64> {
        let (mut at, mut lines) = (0, 0);
        while at < end {
            let to = end.min(at + PIECE);
            lines += self.range(at, to)?.iter().map(|&byte| u64::from(byte == b'\n')).sum::<u64>();
            at = to;
        }
        Ok(lines)
    }
}

impl Text for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        rest.read(into)
    }
}

/// The beginning of an open file.
#[derive(Debug)]
pub(super) struct Front<'a> {
    file: &'a File,
    length: u64,
}

impl<'a> Front<'a> {
    pub(super) fn of(file: &'a File, length: u64) -> Self {
        Self { file, length }
    }

    /// Returns a shorter beginning.
    pub(super) fn until(&self, length: u64) -> Self {
        Self { file: self.file, length }
    }
}

impl Text for Front<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX).min(into.len());
        self.file.read_at(into.get_mut(..most).unwrap_or_default(), at)
    }
}

/// Reads on from a place.
struct Ahead<'a, T: ?Sized> {
    text: &'a T,
    at: u64,
}

impl<T: Text + ?Sized> Read for Ahead<'_, T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read_at(self.at, into)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads the first line with its line feed, and no more than `most` bytes of it.
pub(super) fn first_line<T: Text + ?Sized>(text: &T, most: u64) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    // A header is short: more is not read than it takes.
    BufReader::with_capacity(1024, Ahead { text, at: 0 }).take(most).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The lines up to the end of one of them, each read into the same place.
pub(super) struct Lines<'a, T: ?Sized> {
    reader: BufReader<Ahead<'a, T>>,
    end: u64,
    next: u64,
    number: u64,
    line: Vec<u8>,
}

/// A line without its line feed.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedLine<'a> {
    /// From 1.
    pub(super) number: u64,
    /// Where it begins.
    pub(super) at: u64,
    pub(super) text: &'a [u8],
}

impl<'a, T: Text + ?Sized> Lines<'a, T> {
    pub(super) fn of(text: &'a T, end: u64) -> Self {
        let capacity = if cfg!(test) { 16 } else { 64 * 1024 };
        Self { reader: BufReader::with_capacity(capacity, Ahead { text, at: 0 }), end, next: 0, number: 0, line: Vec::new() }
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// As reading; [`ErrorKind::UnexpectedEof`] if the file has become shorter.
    pub(super) fn read(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        if self.next >= self.end {
            return Ok(None);
        }
        self.line.clear();
        let at = self.next;
        let read = self.reader.read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.next += read as u64;
        self.number += 1;
        let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(NumberedLine { number: self.number, at, text }))
    }
}
