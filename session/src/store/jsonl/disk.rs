//! What the store asks of the disk, in one place, so that a test can make any of it fail.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::io::Errno;

pub(super) use crate::store::plain::{PLAIN, open_plain as open_regular, regular};

/// Tells that what was to be opened is no regular file.
pub(super) fn is_irregular(error: &io::Error) -> bool {
    // The first for a link and for what was opened and is none; the others for sockets, devices without a driver, and folders that are to be written.
    [Errno::LOOP, Errno::NXIO, Errno::NODEV, Errno::ISDIR].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Tells a failure of one file from one of the store: the others can be read.
pub(super) fn is_of_one_file(error: &io::Error) -> bool {
    // Memory is short only where a file says that it is longer than that.
    is_irregular(error)
        || matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::OutOfMemory)
        || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Says why a file cannot be read.
pub(super) fn unreadable(error: &io::Error) -> String {
    if is_irregular(error) { "it is no regular file, and links are not followed".to_owned() } else { format!("it cannot be read: {error}") }
}

/// Names what could not be used.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Everything that changes the store's files. Whatever fails may have happened in part.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Writes bytes at a place of a file.
    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Waits until a file's bytes and its length are on the disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Cuts a file.
    fn cut(&self, file: &File, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    /// Makes a file for the owner only.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
    }

    /// Gives a file a second name, never one that is there.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    /// Gives a file another name, in the place of whatever has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Takes a name away.
    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Makes a folder for the owner only; tells whether it was not there. A link to a folder is none: what lies in it is not listed.
    fn make_folder(&self, path: &Path) -> io::Result<bool> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(path)?.is_dir() {
                    Ok(false)
                } else {
                    Err(at(path)(io::Error::new(io::ErrorKind::NotADirectory, "something that is no folder has its place")))
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until a folder's names are on the disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The machine's disk.
#[derive(Debug)]
pub(super) struct Device;

impl Disk for Device {}
