//! What the store asks of the disk, in one place, so that a test can make any of it fail.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::Path,
};

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

    /// Takes a name away.
    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Makes a folder for the owner only; tells whether it was not there.
    fn make_folder(&self, path: &Path) -> io::Result<bool> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
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
