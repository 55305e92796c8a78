//! What a store on disk stands on: the file system below it.

use std::{io, path::Path};

use super::StoreError;

/// Refuses file systems that machines share, since neither a lock nor shared memory is shared by everybody there.
pub(super) fn check_filesystem(folder: &Path) -> Result<(), StoreError> {
    // Numbers of statfs(2): NFS, SMB, SMB2, CIFS, 9p, FUSE.
    const REMOTE: [u32; 6] = [0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997, 0x6573_5546];
    let kind = rustix::fs::statfs(folder).map_err(io::Error::from)?.f_type;
    // The field's type differs between platforms; the numbers have 32 bits everywhere.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of 32 bits in a wider field")]
    if REMOTE.contains(&(kind as u32)) {
        return Err(StoreError::Unsupported(format!("{} lies on a file system that may be shared between machines (type {kind:#x})", folder.display())));
    }
    Ok(())
}
