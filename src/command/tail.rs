//! The end of a stream, and how to print it safely.

use greenroom_session::text::EscapedLines;

/// How much of standard error is kept.
pub(super) const TAIL_BYTES: usize = 4 * 1024;

/// The last [`TAIL_BYTES`] of what went through it, in at most twice the memory.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// Appends a piece of the stream.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let skip = piece.len().saturating_sub(TAIL_BYTES);
        let piece = piece.get(skip..).unwrap_or_default();
        self.cut |= skip > 0;
        // Trimming only at twice the size moves each byte once, not once per piece.
        if self.bytes.len() + piece.len() > 2 * TAIL_BYTES {
            self.trim(TAIL_BYTES - piece.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Returns the tail as text that a terminal cannot obey.
    pub(super) fn into_text(mut self) -> String {
        self.trim(TAIL_BYTES);
        // A cut may have gone through a character; its rest would read as garbage.
        let start = if self.cut {
            let rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
            self.bytes.iter().take(3).take_while(rest).count()
        } else {
            0
        };
        let text = String::from_utf8_lossy(self.bytes.get(start..).unwrap_or_default());
        let dots = if self.cut { "..." } else { "" };
        format!("{dots}{}", EscapedLines(&text))
    }

    /// Keeps only the last `keep` bytes.
    fn trim(&mut self, keep: usize) {
        let excess = self.bytes.len().saturating_sub(keep);
        self.cut |= excess > 0;
        self.bytes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(pieces: &[&[u8]]) -> String {
        let mut tail = Tail::default();
        for piece in pieces {
            tail.push(piece);
        }
        tail.into_text()
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        assert_eq!(tail_of(&[b"one ", b"two\n"]), "one two\n");
        assert_eq!(tail_of(&[]), "");
    }

    #[test]
    fn only_the_end_of_a_long_stream_is_kept() {
        let pieces: Vec<Vec<u8>> = (0..5000).map(|n| format!("{n:04}").into_bytes()).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let text = tail_of(&pieces);
        assert_eq!(text.len(), TAIL_BYTES + 3);
        assert!(text.starts_with("...3976") && text.ends_with("4999"), "{text}");
    }

    #[test]
    fn a_piece_larger_than_the_tail_is_cut_between_characters() {
        let text = tail_of(&[b"lost", "\u{20ac}".repeat(TAIL_BYTES).as_bytes()]);
        assert_eq!(text, format!("...{}", "\u{20ac}".repeat(TAIL_BYTES / 3)));
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(
            tail_of(&[b"\x1b[2Jgone\r\n\tok \xff", "\u{9b}1m\u{202e}\u{2028}".as_bytes()]),
            "\\u{1b}[2Jgone\\r\n\tok \u{fffd}\\u{9b}1m\\u{202e}\\u{2028}"
        );
    }
}
