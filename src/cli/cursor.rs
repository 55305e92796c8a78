//! A place in a list as one opaque word: what a page ends with and the next one begins with.

use std::fmt::Write;

use greenroom::session::{id::SessionId, listing::Cursor};

use super::failure::Failure;

/// Writes a place. Ids may hold any character, hence the hexadecimal digits.
pub(crate) fn write(cursor: &Cursor) -> String {
    let plain = format!("{}:{}", cursor.created_at, cursor.id);
    plain.bytes().fold(String::with_capacity(plain.len() * 2), |mut word, byte| {
        // Writing to a string cannot fail.
        let _ = write!(word, "{byte:02x}");
        word
    })
}

/// Reads a place.
pub(crate) fn read(word: &str) -> Result<Cursor, Failure> {
    parse(word).ok_or_else(|| Failure::new("INVALID_CURSOR", format!("{word:?} is no place in a list")))
}

fn parse(word: &str) -> Option<Cursor> {
    if !word.len().is_multiple_of(2) || !word.is_ascii() {
        return None;
    }
    let digits = word.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect::<Option<Vec<u8>>>()?;
    let bytes = digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    let plain = String::from_utf8(bytes).ok()?;
    let (created_at, id) = plain.split_once(':')?;
    Some(Cursor { created_at: created_at.parse().ok()?, id: SessionId::new(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_nothing_else_does() {
        let cursor = Cursor { created_at: 1_764_512_345_678, id: SessionId::new("a:\n漢").unwrap() };
        assert_eq!(read(&write(&cursor)).unwrap(), cursor);
        for word in ["", "x", "zz", "3", "313a", "3a61", "ff", "é1"] {
            assert!(read(word).is_err(), "{word:?}");
        }
    }
}
