//! A quick way to read derived rows as this program writes them.
//!
//! A listing decodes two of them per child, and a general JSON reader takes as long for that as SQLite takes to find them. What is not exactly of
//! the expected form is left to the general reader: this one only ever says less.

use crate::{
    descriptor::Mode,
    head::{Head, Outcome},
    listing::Verdict,
};

/// Reads a head that has neither an open turn nor a retry, and ended its last turn well.
pub(super) fn head(text: &[u8]) -> Option<Head> {
    let mut scan = Scan(text);
    let mut head = Head {
        next_seq: scan.number(br#"{"next_seq":"#)?,
        next_order: scan.number(br#","next_order":"#)?,
        epoch: scan.number(br#","epoch":"#)?,
        ..Head::default()
    };
    scan.token(br#","live":"#)?;
    head.live = scan.token(b"true").is_some();
    if !head.live {
        scan.token(b"false")?;
    }
    head.turns = scan.number(br#","turns":"#)?;
    scan.token(br#","open":null,"retry":null,"last":"#)?;
    if scan.token(b"null").is_none() {
        let turn = scan.number(br#"{"turn":"#)?;
        scan.token(br#","kind":"completed"}"#)?;
        head.last = Some(Outcome { turn, kind: "completed".into(), code: None });
    }
    head.pending_turns = scan.number(br#","pending_turns":"#)?;
    head.pending_wakes = scan.number(br#","pending_wakes":"#)?;
    head.pending_quiet = scan.number(br#","pending_quiet":"#)?;
    head.pending_controls = scan.number(br#","pending_controls":"#)?;
    head.held = scan.number(br#","held":"#)?;
    scan.end(b"}")?;
    Some(head)
}

/// Reads the verdict of a child whose texts need no escapes.
pub(super) fn verdict(text: &[u8]) -> Option<Verdict> {
    let mut scan = Scan(text);
    scan.token(br#"{"child":{"mode":"#)?;
    let mode = match scan.text(b"")? {
        "continuable" => Mode::Continuable,
        "one-shot" => Mode::OneShot,
        _ => return None,
    };
    let (mut label, mut alias) = (None, None);
    scan.maybe_text(br#","label":"#, &mut label)?;
    let agent = scan.text(br#","agent":"#)?.to_owned();
    scan.maybe_text(br#","as":"#, &mut alias)?;
    let descriptor = scan.number(br#","descriptor":"#)?;
    scan.end(b"}}")?;
    Some(Verdict::Child { mode, label, agent, alias, descriptor })
}

/// What is left of a text.
struct Scan<'a>(&'a [u8]);

impl<'a> Scan<'a> {
    fn token(&mut self, token: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(token)?;
        Some(())
    }

    fn end(mut self, token: &[u8]) -> Option<()> {
        self.token(token)?;
        self.0.is_empty().then_some(())
    }

    /// Reads a number after `before`, as JSON writes it.
    fn number(&mut self, before: &[u8]) -> Option<u64> {
        self.token(before)?;
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.0.split_at(digits);
        if digits == 0 || (digits > 1 && number.first() == Some(&b'0')) {
            return None;
        }
        self.0 = rest;
        number.iter().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }

    /// Reads a text without escapes after `before`.
    fn text(&mut self, before: &[u8]) -> Option<&'a str> {
        self.token(before)?;
        let (first, rest) = self.0.split_first()?;
        let plain = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)).count();
        let (text, rest) = rest.split_at(plain);
        self.0 = rest.strip_prefix(b"\"")?;
        if *first == b'"' { std::str::from_utf8(text).ok() } else { None }
    }

    /// Reads a text that may be left out together with what comes before it.
    fn maybe_text(&mut self, before: &[u8], into: &mut Option<String>) -> Option<()> {
        if self.0.starts_with(before) {
            *into = Some(self.text(before)?.to_owned());
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settled() -> Head {
        let last = Some(Outcome { turn: 7, kind: "completed".into(), code: None });
        Head { next_seq: 100, next_order: 3, epoch: 1, turns: 7, last, pending_quiet: 2, ..Head::default() }
    }

    fn child(label: Option<&str>, alias: Option<&str>) -> Verdict {
        let (label, alias) = (label.map(str::to_owned), alias.map(str::to_owned));
        Verdict::Child { mode: Mode::Continuable, label, agent: "worker".into(), alias, descriptor: 4 }
    }

    #[test]
    fn what_is_written_of_a_settled_child_is_read_quickly() {
        for written in [Head::default(), settled(), Head { live: true, ..settled() }] {
            assert_eq!(head(&serde_json::to_vec(&written).unwrap()), Some(written));
        }
        for written in [child(None, None), child(Some("Grüße"), None), child(Some("a"), Some("b"))] {
            assert_eq!(verdict(&serde_json::to_vec(&written).unwrap()), Some(written));
        }
    }

    #[test]
    fn what_is_of_another_form_is_left_to_the_general_reader() {
        let failed = Head { last: Some(Outcome { turn: 1, kind: "error".into(), code: Some("E".into()) }), ..Head::default() };
        assert_eq!(head(&serde_json::to_vec(&failed).unwrap()), None);
        for written in [child(Some("a \"b\""), None), Verdict::Plain, Verdict::Root { label: "l".into(), agent: "a".into() }] {
            assert_eq!(verdict(&serde_json::to_vec(&written).unwrap()), None);
        }
    }

    proptest! {
        /// A changed text is never read as something that the general reader does not read.
        #[test]
        fn it_never_says_anything_else(at in 0_usize..400, byte: u8, cut in 0_usize..400, insert: bool) {
            let change = |mut text: Vec<u8>| {
                let at = at % text.len();
                if insert { text.insert(at, byte) } else { text[at] = byte }
                text.truncate(text.len().max(1) - usize::from(cut == 0));
                text
            };
            let text = change(serde_json::to_vec(&settled()).unwrap());
            if let Some(quick) = head(&text) {
                prop_assert_eq!(serde_json::from_slice::<Head>(&text).ok(), Some(quick));
            }
            let text = change(serde_json::to_vec(&child(Some("a label"), Some("alias"))).unwrap());
            if let Some(quick) = verdict(&text) {
                prop_assert_eq!(serde_json::from_slice::<Verdict>(&text).ok(), Some(quick));
            }
        }
    }
}
