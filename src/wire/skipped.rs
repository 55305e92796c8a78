//! What can be told of a line that is not kept.

/// Most bytes of an id that are remembered.
const ID_BYTES: usize = 256;

/// Follows the bytes of a line that is too long, remembering only the member `id` of its outermost object: whoever sent it is waiting for an answer under this id.
///
/// Of what is no JSON it may tell an id all the same. An answer that fits no request is ignored, and one is owed for the line anyway.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    depth: u64,
    within: Within,
    /// Whether the outermost object waits for a member's name.
    wants_name: bool,
    /// The bytes of the string or value that is being read at depth 1, as long as it may matter.
    token: Vec<u8>,
    name_is_id: bool,
    id: Option<Vec<u8>>,
}

/// What the next byte is read as.
#[derive(Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Structure,
    Text,
    /// The byte after a backslash.
    Escape,
    /// After what could tell an id.
    Nothing,
}

impl Skipped {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        match self.within {
            Within::Nothing => {}
            Within::Structure => self.structure(byte),
            Within::Text | Within::Escape => {
                self.keep(byte);
                self.within = match (&self.within, byte) {
                    (Within::Text, b'"') => Within::Structure,
                    (Within::Text, b'\\') => Within::Escape,
                    _ => Within::Text,
                };
            }
        }
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.within = Within::Text;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.wants_name = byte == b'{';
                    if byte == b'[' {
                        // An array has no id.
                        self.within = Within::Nothing;
                    }
                }
                self.spoil();
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_of_value();
                    self.within = Within::Nothing;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && self.wants_name => {
                self.name_is_id = self.token == b"\"id\"";
                self.wants_name = false;
                self.token.clear();
            }
            b',' if self.depth == 1 => {
                self.end_of_value();
                self.wants_name = true;
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    /// Remembers a byte of a member's name, or of the value of the one that matters.
    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && (self.wants_name || self.name_is_id) && self.token.len() <= ID_BYTES {
            self.token.push(byte);
        }
    }

    /// An object or an array is no id.
    fn spoil(&mut self) {
        if self.depth == 2 {
            self.name_is_id = false;
        }
    }

    fn end_of_value(&mut self) {
        let token = std::mem::take(&mut self.token);
        if self.name_is_id && token.len() <= ID_BYTES {
            self.id = Some(token);
        }
        self.name_is_id = false;
    }

    /// Returns the JSON text of the id.
    pub(super) fn id(self) -> Option<String> {
        String::from_utf8(self.id?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_the_outermost_object_is_told_wherever_it_stands() {
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#, Some("7")),
            (r#"{"params":{"id":1,"a":["id",{"id":2}]},"jsonrpc":"2.0","id" : "a\"b," }"#, Some(r#""a\"b,""#)),
            (r#"{"method":"x","params":{"text":"\\\",\"id\":5"}}"#, None),
            (r#"{"text":"a","id":3,"text":"{"#, Some("3")),
            (r#"{"id":{"a":1},"x":2}"#, None),
            (r#"[{"id":4}]"#, None),
            (r#""id":5"#, None),
            ("garbage", None),
            ("", None),
        ] {
            for size in [1, 3, 1_000] {
                let mut skipped = Skipped::default();
                line.as_bytes().chunks(size).for_each(|part| skipped.take(part));
                assert_eq!(skipped.id().as_deref(), id, "{line} by {size}");
            }
        }
    }

    #[test]
    fn no_more_is_remembered_than_an_id_may_have() {
        let mut skipped = Skipped::default();
        skipped.take(b"{\"id\":\"");
        for _ in 0..1_000 {
            skipped.take(&[b'x'; 1_000]);
        }
        assert!(skipped.token.len() <= ID_BYTES + 1);
        skipped.take(b"\"}");
        assert_eq!(skipped.id(), None);
    }
}
