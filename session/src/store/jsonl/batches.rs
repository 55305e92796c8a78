//! Where the whole batches of a file end, and what to think of what stands after them.

use super::{
    scan::{Flaw, Unread, place_of},
    text::Text,
};
use crate::{
    codec::DecodeError,
    id::SessionId,
    line::{hides_a_record, is_whole, says_more},
};

/// Returns where the last whole batch ends. Reads the end of the file and no more of it than it takes.
pub(super) fn whole_batches<T: Text + ?Sized>(id: &SessionId, text: &T) -> Result<u64, Unread> {
    let length = text.length();
    // As if a line feed stood behind the end: where the last line begins that is one, or that was to be.
    let mut end = text.start_of_line(length + 1)?;
    let tail = text.range(end, length)?;
    refuse_hidden(id, text, end, &tail)?;
    if end > 0 && tail.is_empty() {
        let start = text.start_of_line(end)?;
        let last = text.range(start, end - 1)?;
        if !is_whole(id, &last) {
            refuse_hidden(id, text, start, &last)?;
            end = start;
        }
    }
    // What a batch has before its torn end goes with it.
    while end > 0 {
        let start = text.start_of_line(end)?;
        if !says_more(&text.range(start, end - 1)?) {
            break;
        }
        end = start;
    }
    Ok(end)
}

/// Tells damage from what a write leaves that was cut off: no cut joins a whole record with the beginning of another.
fn refuse_hidden<T: Text + ?Sized>(id: &SessionId, text: &T, start: u64, torn: &[u8]) -> Result<(), Unread> {
    if !hides_a_record(id, torn) {
        return Ok(());
    }
    let place = place_of(text.lines_before(start)? + 1, start);
    Err(Flaw::Line { place, source: DecodeError::Malformed("two records stand on one line".into()) }.into())
}

/// Tells whether an end that is passed over had been written whole and was changed afterwards. A write that is cut off ends where the file ends or leaves
/// a hole, so that a whole line is as it was written.
pub(super) fn is_damaged(id: &SessionId, rest: &[u8]) -> bool {
    let mut lines = rest.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    match rest.last() {
        Some(b'\n') => !has_hole(rest) && lines.any(|line| !is_whole(id, line)),
        // Where a line feed stood that was changed, another byte follows a whole record; of a hole it would be a NUL.
        Some(1..) => lines.next_back().and_then(|line| line.split_last()).is_some_and(|(_, line)| is_whole(id, line)),
        _ => false,
    }
}

/// Tells whether bytes were never written: a run of NUL bytes that no flipped bit makes.
pub(super) fn has_hole(bytes: &[u8]) -> bool {
    const HOLE: usize = 4;
    bytes.windows(HOLE).any(|window| window.iter().all(|&byte| byte == 0))
}
