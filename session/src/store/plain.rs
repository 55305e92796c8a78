//! Plain files: what is opened by name is no link, no pipe and no device, or it is not opened.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// What is not to be waited for, nor written through: a pipe, a device, a link.
#[expect(clippy::cast_possible_wrap, reason = "flags have fewer than 31 bits")]
pub(super) const PLAIN: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

/// Refuses what is no regular file.
pub(super) fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(Errno::LOOP)) }
}

/// Opens a regular file for reading, and nothing else: a pipe has no end, and a link may lead anywhere.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).custom_flags(PLAIN).open(path)?)
}

/// Opens a lock file, making it if absent, for its owner only. What is in it stays.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(PLAIN).open(path)?)
}
