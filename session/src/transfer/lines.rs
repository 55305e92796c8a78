//! A file, line by line, with the place of each. Never through a link, never more than one line in memory.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::file::{FileError, FileFlaw};
use crate::limits::MAX_EVENT_BYTES;

/// Most bytes of a line: the largest record, and what stands around it.
const MAX_LINE: usize = MAX_EVENT_BYTES + 4_096;

/// Opens a regular file for reading; a link, a pipe or a device is none.
pub(super) fn open(path: &Path) -> Result<File, FileError> {
    let whole = |flaw| FileError { path: path.to_owned(), place: None, flaw };
    #[expect(clippy::cast_possible_wrap, reason = "flags have fewer than 31 bits")]
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(_) if path.is_symlink() => return Err(whole(FileFlaw::NoFile)),
        Err(error) => return Err(whole(FileFlaw::Read(error))),
    };
    let found = file.metadata().map_err(|error| whole(FileFlaw::Read(error)))?;
    if found.is_file() { Ok(file) } else { Err(whole(FileFlaw::NoFile)) }
}

/// The lines of a file.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    /// The number of the line that was read last, from 1.
    number: u64,
    /// Where it begins.
    at: u64,
    /// Where the next one begins.
    next: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { path: path.to_owned(), reader: BufReader::with_capacity(1 << 16, open(path)?), number: 0, at: 0, next: 0 })
    }

    /// Reads the next line into `line`, without its line feed. Returns `None` at the end of the file, else whether there was a line feed.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<Option<bool>, FileError> {
        line.clear();
        self.at = self.next;
        self.number += 1;
        let read = (&mut self.reader).take(MAX_LINE as u64 + 1).read_until(b'\n', line);
        let read = read.map_err(|error| self.flaw(FileFlaw::Read(error)))?;
        self.next += read as u64;
        if read == 0 {
            return Ok(None);
        }
        let ended = line.last() == Some(&b'\n');
        if ended {
            line.pop();
        } else if line.len() > MAX_LINE {
            return Err(self.flaw(FileFlaw::TooLong));
        }
        Ok(Some(ended))
    }

    /// Tells whether nothing comes any more.
    pub(super) fn is_at_end(&mut self) -> Result<bool, FileError> {
        let rest: io::Result<bool> = self.reader.fill_buf().map(<[u8]>::is_empty);
        rest.map_err(|error| self.flaw(FileFlaw::Read(error)))
    }

    /// Returns the number of the line that was read last, and the byte that it begins with.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.number, self.at)
    }

    /// Returns how many bytes have been read.
    pub(super) fn bytes(&self) -> u64 {
        self.next
    }

    /// Says that the line that was read last is wrong.
    pub(super) fn flaw(&self, flaw: FileFlaw) -> FileError {
        self.flaw_at(self.place(), flaw)
    }

    /// Says that the line at a place is wrong.
    pub(super) fn flaw_at(&self, place: (u64, u64), flaw: FileFlaw) -> FileError {
        FileError { path: self.path.clone(), place: Some(place), flaw }
    }

    /// Says that the file is wrong.
    pub(super) fn whole(&self, flaw: FileFlaw) -> FileError {
        FileError { path: self.path.clone(), place: None, flaw }
    }
}
