//! A backup gets its name when it is whole, so that what a kill leaves of one is never taken for one.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// What follows the name of a backup that is being written.
const PARTIAL: &str = ".partial";

/// Names what a backup is while it is being written.
///
/// # Errors
/// [`io::Error`] if something has the name of the backup.
pub(super) fn name(to: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(to) {
        Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{} is there already", to.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut name = to.as_os_str().to_owned();
    name.push(PARTIAL);
    Ok(name.into())
}

/// Gives a whole backup its name, and waits until that is on the disk.
///
/// # Errors
/// [`io::Error`] as the system says.
pub(super) fn finish(unfinished: &Path, to: &Path) -> io::Result<()> {
    fs::rename(unfinished, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
