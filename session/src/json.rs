//! What the text of a record must hold so that nothing of it is lost between a writer and a reader.
//!
//! JSON says more than the values that it is read into: a key may stand twice, a zero may have a sign, an integer may have any number of digits, a string
//! may hold half a character. Each of these would come back as something else, so none is taken, neither to be written nor as read. One pass over the
//! bytes and no recursion, so that what is looked at is what is kept, and no nesting exhausts the stack.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Why a text is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It nests deeper than it may.
    TooDeep,
    /// Something would be lost.
    Lossy(Loss),
}

/// What would be lost, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    what: &'static str,
    /// Offset in the text.
    byte: usize,
    /// The keys and indices that lead there.
    path: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (byte {})", self.what, self.path, self.byte)
    }
}

/// Keys of an object up to which each new one is compared with all before it. Most objects have fewer.
const FEW: usize = 16;

/// An object or an array that is not closed yet.
#[derive(Debug)]
struct Frame<'a> {
    is_object: bool,
    /// Where its keys begin in the list of all open objects' keys.
    keys: usize,
    /// Its keys, once they are many.
    many: Option<HashSet<Cow<'a, [u8]>>>,
    /// Commas so far.
    index: usize,
}

#[derive(Debug)]
struct Look<'a> {
    json: &'a [u8],
    at: usize,
    open: Vec<Frame<'a>>,
    keys: Vec<Cow<'a, [u8]>>,
    /// Whether the next string is a key.
    key_next: bool,
}

/// A value that is written with the keys of every object in order. A dependency of whoever links this crate decides whether a map keeps the order in which it
/// was filled, and neither what is written nor whether a creation is the same again may depend on that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordered<'a>(pub(crate) &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => map_in_order(map, to),
            Value::Array(items) => to.collect_seq(items.iter().map(Ordered)),
            other => other.serialize(to),
        }
    }
}

/// Writes a value as [`Ordered`] does.
pub(crate) fn in_order<S: Serializer>(value: &Value, to: S) -> Result<S::Ok, S::Error> {
    Ordered(value).serialize(to)
}

/// Writes a value that may be absent as [`Ordered`] does.
#[expect(clippy::ref_option, reason = "serde hands a field over like this")]
pub(crate) fn maybe_in_order<S: Serializer>(value: &Option<Value>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Ordered).serialize(to)
}

/// Writes an object as [`Ordered`] does.
pub(crate) fn map_in_order<S: Serializer>(map: &Map<String, Value>, to: S) -> Result<S::Ok, S::Error> {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    to.collect_map(entries.into_iter().map(|(key, value)| (key, Ordered(value))))
}

/// Looks at a JSON text that nests at most `deepest` levels. What is no JSON at all is left to whoever parses it.
///
/// Within `fields` levels no value may be `null`: there, a field that is absent and one that is null are the same.
pub(crate) fn look(json: &[u8], deepest: usize, fields: usize) -> Result<(), Flaw> {
    let mut look = Look { json, at: 0, open: Vec::with_capacity(8), keys: Vec::with_capacity(FEW), key_next: false };
    while let Some(&byte) = json.get(look.at) {
        match byte {
            b'"' => look.string()?,
            b'{' | b'[' => {
                if look.open.len() == deepest {
                    return Err(Flaw::TooDeep);
                }
                look.key_next = byte == b'{';
                look.open.push(Frame { is_object: look.key_next, keys: look.keys.len(), many: None, index: 0 });
            }
            b'}' | b']' => {
                if let Some(closed) = look.open.pop() {
                    look.keys.truncate(closed.keys);
                }
                look.key_next = false;
            }
            b',' => {
                if let Some(frame) = look.open.last_mut() {
                    frame.index += 1;
                    look.key_next = frame.is_object;
                }
            }
            b'-' | b'0'..=b'9' => {
                look.number()?;
                continue;
            }
            b'n' if (1..=fields).contains(&look.open.len()) => return Err(look.lossy("a field that is null", look.at)),
            _ => {}
        }
        look.at += 1;
    }
    Ok(())
}

impl<'a> Look<'a> {
    fn lossy(&self, what: &'static str, byte: usize) -> Flaw {
        let mut path = String::new();
        for (at, frame) in self.open.iter().enumerate() {
            let end = self.open.get(at + 1).map_or(self.keys.len(), |next| next.keys);
            match self.keys.get(frame.keys..end).and_then(<[_]>::last) {
                Some(key) if frame.is_object => path.extend(['/'].into_iter().chain(String::from_utf8_lossy(key).chars())),
                _ => path.extend(['/'].into_iter().chain(frame.index.to_string().chars())),
            }
        }
        Flaw::Lossy(Loss { what, byte, path })
    }

    /// Goes to the closing quote of a string.
    fn string(&mut self) -> Result<(), Flaw> {
        let begin = self.at + 1;
        let mut end = begin;
        let mut escaped = false;
        loop {
            let rest = self.json.get(end..).unwrap_or_default();
            let Some(stop) = rest.iter().position(|&byte| byte == b'"' || byte == b'\\') else {
                self.at = self.json.len();
                return Ok(());
            };
            end += stop;
            if self.json.get(end) == Some(&b'"') {
                break;
            }
            escaped = true;
            end += self.escape(end)?;
        }
        self.at = end;
        if std::mem::take(&mut self.key_next) {
            let raw = self.json.get(begin..end).unwrap_or_default();
            // Two texts may be one key.
            let quoted = self.json.get(begin - 1..=end).unwrap_or_default();
            let key = match escaped.then(|| serde_json::from_slice::<String>(quoted)) {
                Some(Ok(key)) => Cow::Owned(key.into_bytes()),
                _ => Cow::Borrowed(raw),
            };
            self.key(key, begin - 1)?;
        }
        Ok(())
    }

    /// Returns the length of the escape at `at`.
    fn escape(&self, at: usize) -> Result<usize, Flaw> {
        let unit = |at: usize| {
            let digits = self.json.get(at..at + 6).filter(|text| text.starts_with(b"\\u")).and_then(|text| text.get(2..))?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => Ok(12),
            Some(0xD800..=0xDFFF) => Err(self.lossy("a lone surrogate", at)),
            Some(_) => Ok(6),
            None => Ok(2),
        }
    }

    fn key(&mut self, key: Cow<'a, [u8]>, at: usize) -> Result<(), Flaw> {
        let Some(frame) = self.open.last_mut() else { return Ok(()) };
        let before = self.keys.get(frame.keys..).unwrap_or_default();
        let twice = match &mut frame.many {
            Some(many) => !many.insert(key.clone()),
            None if before.len() < FEW => before.contains(&key),
            None => {
                let mut many: HashSet<_> = before.iter().cloned().collect();
                let twice = !many.insert(key.clone());
                frame.many = Some(many);
                twice
            }
        };
        self.keys.push(key);
        if twice { Err(self.lossy("a key that stands there twice", at)) } else { Ok(()) }
    }

    /// Goes behind a number.
    fn number(&mut self) -> Result<(), Flaw> {
        let begin = self.at;
        let rest = self.json.get(begin..).unwrap_or_default();
        let length = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')).unwrap_or(rest.len());
        self.at += length;
        let text = std::str::from_utf8(rest.get(..length).unwrap_or_default()).unwrap_or_default();
        let (signed, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // Up to here every integer is one of 64 bits.
            const SURELY: usize = 18;
            if digits.len() > SURELY && text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                return Err(self.lossy("an integer of more than 64 bits", begin));
            }
            if signed && digits == "0" {
                return Err(self.lossy("a negative zero", begin));
            }
        } else if text.parse::<f64>() == Ok(0.0) {
            if signed {
                return Err(self.lossy("a negative zero", begin));
            }
            if digits.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|byte| matches!(byte, b'1'..=b'9')) {
                return Err(self.lossy("a number too small to tell it from zero", begin));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn loss(json: &str) -> Option<String> {
        match look(json.as_bytes(), 128, 0) {
            Ok(()) => None,
            Err(Flaw::Lossy(loss)) => Some(loss.to_string()),
            Err(Flaw::TooDeep) => Some("too deep".into()),
        }
    }

    #[test]
    fn keys_are_put_in_order_at_every_depth_and_lists_stay_as_they_are() {
        let text = r#"{"b":[{"z":1,"y":[3,2]}],"a":{"d":null,"c":{}}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&Ordered(&value)).unwrap(), r#"{"a":{"c":{},"d":null},"b":[{"y":[3,2],"z":1}]}"#);
    }

    #[test]
    fn what_would_be_lost_is_told_with_its_place() {
        for (json, expected) in [
            (r#"{"a":1,"b":{"a":2}}"#, None),
            (r#"{"b":{"a":2},"a":1}"#, None),
            (r#"[{"a":1},{"a":1}]"#, None),
            (r#"{"a":"a","b":"a"}"#, None),
            (r#"{"a":1,"a":2}"#, Some("a key that stands there twice at /a (byte 7)")),
            (r#"{"x":[0,{"b":1,"c":{},"b":2}]}"#, Some("a key that stands there twice at /x/1/b (byte 22)")),
            (r#"{"a":1,"\u0061":2}"#, Some("a key that stands there twice at /a (byte 7)")),
            (r#"{"a\"b":1,"a\"c":2}"#, None),
            (r#"{"a":-0}"#, Some("a negative zero at /a (byte 5)")),
            ("[1,-0.0]", Some("a negative zero at /1 (byte 3)")),
            ("-0e7", Some("a negative zero at  (byte 0)")),
            ("-1e-400", Some("a negative zero at  (byte 0)")),
            ("1e-400", Some("a number too small to tell it from zero at  (byte 0)")),
            ("[0,0.0,0e5,-1,-0.5,5e-324,1.7976931348623157e308]", None),
            ("18446744073709551615", None),
            ("-9223372036854775808", None),
            ("[18446744073709551616]", Some("an integer of more than 64 bits at /0 (byte 1)")),
            ("-9223372036854775809", Some("an integer of more than 64 bits at  (byte 0)")),
            (r#"{"a":"\ud83d\ude00"}"#, None),
            (r#"{"a":"x\ud83d"}"#, Some("a lone surrogate at /a (byte 7)")),
            (r#"{"a":"\ud83dx\ude00"}"#, Some("a lone surrogate at /a (byte 6)")),
            (r#"["\ude00"]"#, Some("a lone surrogate at /0 (byte 2)")),
            (r#"{"a":"\\ud83d"}"#, None),
            (r#"{"a":"{\"b\":-0,[","b":"\\"}"#, None),
        ] {
            assert_eq!(loss(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_field_that_is_null_is_one_only_where_fields_are() {
        for (json, fields, null) in [
            (r#"{"a":null}"#, 0, false),
            (r#"{"a":null}"#, 1, true),
            (r#"{"a":{"b":null}}"#, 1, false),
            (r#"{"a":{"b":null}}"#, 2, true),
            (r#"{"a":{"b":[null]}}"#, 2, false),
            (r#"{"a":"null"}"#, 2, false),
            (r#"{"null":true}"#, 2, false),
        ] {
            assert_eq!(look(json.as_bytes(), 128, fields).is_err(), null, "{json} {fields}");
        }
    }

    #[test]
    fn however_many_keys_an_object_has_none_stands_twice() {
        for keys in [2, FEW, FEW + 1, FEW + 2, 5_000] {
            let text = |last: usize| {
                let keys: Vec<_> = (0..keys - 1).chain([last]).map(|key| format!("\"k{key}\":[]")).collect();
                format!("{{{}}}", keys.join(","))
            };
            assert_eq!(loss(&text(keys)), None);
            for again in [0, keys - 2] {
                assert!(loss(&text(again)).unwrap().starts_with("a key that stands there twice"), "{keys} {again}");
            }
        }
    }

    #[test]
    fn no_nesting_exhausts_the_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
            assert_eq!(look(nested(128).as_bytes(), 128, 0), Ok(()));
            assert_eq!(look(nested(129).as_bytes(), 128, 0), Err(Flaw::TooDeep));
            assert_eq!(look(nested(1_000_000).as_bytes(), 128, 0), Err(Flaw::TooDeep));
            assert_eq!(look(nested(1_000_000).as_bytes(), usize::MAX, 0), Ok(()));
        }
        // Side by side is not within.
        assert_eq!(look("[[],[],[]]".as_bytes(), 2, 0), Ok(()));
    }

    /// Any value that a program may hold.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(json!(-0.0)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_taken_comes_back_as_it_was(value in values()) {
            let text = value.to_string();
            // Within a text it may stand, too, where it is no number.
            let negative_zero = text.contains("-0.0");
            match loss(&text) {
                None => {
                    let back: Value = serde_json::from_str(&text).unwrap();
                    prop_assert_eq!(back.to_string(), text);
                    prop_assert_eq!(back, value);
                }
                Some(loss) => prop_assert!(negative_zero && loss.starts_with("a negative zero"), "{loss}"),
            }
        }

        #[test]
        fn what_is_no_json_is_left_to_the_parser(bytes in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\-0.e1nuDd8 \xff"[..]), 0..60)) {
            // It comes to an end and says something.
            assert!(look(&bytes, 5, 2).is_ok() || !bytes.is_empty());
        }
    }
}
