//! Where a session's file lies in a folder of sessions: `PARENT/ID.jsonl`, with `_root` for roots.
//!
//! Names are injective, also on a file system that does not tell upper from lower case, and nothing in an id can lead out of the folder. An id that is short enough can
//! be read back from its name; the file's header has the id in any case.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::id::SessionId;

/// The folder of roots. No id is encoded to it, since `_` never stands for itself.
pub const ROOTS: &str = "_root";

/// What a session's file ends with.
pub const EXTENSION: &str = ".jsonl";

/// Most bytes of a name. File systems take 255; what is left is room for an ending.
const MAX_NAME: usize = 200;

/// How much of a long name stays readable.
const KEPT: usize = 120;

/// Returns the name of the folder that the children of `parent` lie in.
///
/// ```
/// use greenroom_session::{id::SessionId, place::{folder_of, path_of}};
/// assert_eq!(folder_of(None), "_root");
/// let (parent, id) = (SessionId::new("../etc")?, SessionId::new("Reporter 1")?);
/// assert_eq!(path_of(Some(&parent), &id).to_str(), Some("~2e.~2fetc/~52eporter~201.jsonl"));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
pub fn folder_of(parent: Option<&SessionId>) -> String {
    parent.map_or_else(|| ROOTS.to_owned(), name_of)
}

/// Returns the path of a session's file within a folder of sessions.
pub fn path_of(parent: Option<&SessionId>, id: &SessionId) -> PathBuf {
    PathBuf::from(folder_of(parent)).join(name_of(id) + EXTENSION)
}

/// Encodes an id as a file name, without an ending.
///
/// `a-z`, `0-9`, `-` and `.` stand for themselves, a leading `.` excepted; every other byte becomes `~` and two lower-case hex digits. A name that would be
/// longer than 200 bytes is cut to 120 and goes on with `~~` and 64 hex digits of the id's SHA-256.
pub fn name_of(id: &SessionId) -> String {
    let mut name = String::with_capacity(id.as_str().len());
    for byte in id.as_str().bytes() {
        match byte {
            b'.' if name.is_empty() => name.push_str("~2e"),
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => name.push(char::from(byte)),
            _ => push_hex(&mut name, "~", byte),
        }
    }
    if name.len() <= MAX_NAME {
        return name;
    }
    name.truncate(KEPT);
    // Not in the middle of an escape.
    if let Some(cut) = name.rfind('~').filter(|&at| at + 2 >= KEPT) {
        name.truncate(cut);
    }
    name.push_str("~~");
    for byte in Sha256::digest(id.as_str().as_bytes()) {
        push_hex(&mut name, "", byte);
    }
    name
}

fn push_hex(name: &mut String, mark: &str, byte: u8) {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    name.push_str(mark);
    name.push(digit(byte >> 4));
    name.push(digit(byte & 15));
}

/// Reads an id back from its name; `None` if the name is not one that [`name_of`] gives, or is one of a long id.
///
/// ```
/// use greenroom_session::{id::SessionId, place::{id_of, name_of}};
/// let id = SessionId::new("Börse/1")?;
/// assert_eq!(id_of(&name_of(&id)), Some(id));
/// assert_eq!(id_of("_root"), None);
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
pub fn id_of(name: &str) -> Option<SessionId> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'~' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    let id = SessionId::new(String::from_utf8(bytes).ok()?).ok()?;
    // One name per id, so whatever else stands for it is not its name.
    (name_of(&id) == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        for text in ["..", ".", "/", "../../etc/passwd", "a/b", "a\\b", "_root", "a\nb", "\u{202e}", "~", "-", "con", "a:b", " "] {
            let name = name_of(&id(text));
            assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'~')), "{name:?}");
            assert!(!name.starts_with('.') && name != ROOTS, "{name:?}");
            assert_eq!(id_of(&name), Some(id(text)));
        }
    }

    #[test]
    fn different_ids_have_different_names_whatever_their_case_and_length() {
        let mut texts: Vec<String> = ["a", "A", "~61", "a.", ".a", "a~", "_", "~5f", "é", "É", "e\u{301}"].map(str::to_owned).to_vec();
        for length in 60..=512 {
            texts.extend([
                "x".repeat(length),
                "X".repeat(length),
                format!("{}y", "x".repeat(length - 1)),
                format!("{}Y", "x".repeat(length - 1)),
                "é".repeat(length / 2),
                format!("x{}", "é".repeat(length / 2 - 1)),
            ]);
        }
        texts.sort();
        texts.dedup();
        let mut names = HashMap::new();
        for text in &texts {
            let name = name_of(&id(text));
            assert!(name.len() <= MAX_NAME, "{} bytes", name.len());
            assert!(id_of(&name).is_none_or(|read| read == id(text)));
            if let Some(other) = names.insert(name, text) {
                panic!("{other:?} and {text:?} share a name");
            }
        }
    }

    #[test]
    fn what_is_no_name_of_ours_stands_for_no_id() {
        for name in ["", ".", "..", "_root", "A", "~", "~4", "~4G", "~61", "~C3", "~ff", ".a", "a b", "~~00"] {
            assert_eq!(id_of(name), None, "{name:?}");
        }
    }
}
