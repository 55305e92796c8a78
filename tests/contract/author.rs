//! Sessions written by hand: any header and any events, with the checksums that they should have.

use greenroom_session::{
    codec::{decode_event, encode_event, event_crc},
    descriptor::{Descriptor, Mode},
    event::{Body, Event, RootOpened, SurfaceOp},
    header::{HEADER_VERSION, Header},
    id::SessionId,
};
use serde_json::Value;

use crate::world::sid;

/// A session as a test wants it, whatever the rules say.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    /// What its header says, unless another text stands for it.
    pub(crate) header: Header,
    other_header: Option<String>,
    /// Below whom it lies, if its header says otherwise.
    lies_below: Option<SessionId>,
    events: Vec<String>,
    /// The event whose checksum does not fit.
    spoilt: Option<usize>,
    spoilt_header: bool,
}

impl Author {
    fn new(id: &str, parent: Option<&str>, depth: u32) -> Self {
        let header = Header { version: HEADER_VERSION, id: sid(id), parent: parent.map(sid), created_at: 1_000, seed_length: 0, depth, cwd: None };
        Self { header, other_header: None, lies_below: None, events: Vec::new(), spoilt: None, spoilt_header: false }
    }

    /// A root that the behaviour `worker` plays.
    pub(crate) fn root(id: &str) -> Self {
        let opened = RootOpened {
            label: format!("root {id}"),
            agent: "worker".into(),
            program_sha256: None,
            vars: std::collections::BTreeMap::new(),
            seed: None,
            params: None,
            model: None,
        };
        Self::new(id, None, 0).event(Body::RootOpened(opened)).sealed()
    }

    /// A child by its header, of a parent at depth 0, without an event.
    pub(crate) fn child(id: &str, parent: &str) -> Self {
        Self::new(id, Some(parent), 1)
    }

    /// A fork by its header, without an event.
    pub(crate) fn fork(id: &str, parent: &str) -> Self {
        Self::new(id, Some(parent), 0)
    }

    /// A healthy continuable child, labelled `child ID`.
    pub(crate) fn listed(id: &str, parent: &str) -> Self {
        Self::child(id, parent).described(&descriptor(&format!("child {id}"))).sealed()
    }

    /// Sets the creation time.
    pub(crate) fn at(mut self, created_at: u64) -> Self {
        self.header.created_at = created_at;
        self
    }

    /// Sets the depth.
    pub(crate) fn depth(mut self, depth: u32) -> Self {
        self.header.depth = depth;
        self
    }

    /// Says that everything so far was inherited.
    pub(crate) fn inherited(mut self) -> Self {
        self.header.seed_length = self.events.len() as u64;
        self
    }

    /// Writes this text in the place of the header, with the checksum that it should have.
    pub(crate) fn header_text(mut self, text: impl Into<String>) -> Self {
        self.other_header = Some(text.into());
        self
    }

    /// Puts it where the children of another parent are than the one that its header names.
    pub(crate) fn lying_below(mut self, parent: &str) -> Self {
        self.lies_below = Some(sid(parent));
        self
    }

    /// Gives the header a checksum that does not fit.
    pub(crate) fn spoilt_header(mut self) -> Self {
        self.spoilt_header = true;
        self
    }

    /// Gives the newest event a checksum that does not fit.
    pub(crate) fn spoilt(mut self) -> Self {
        self.spoilt = self.events.len().checked_sub(1);
        self
    }

    /// Adds an event; one of the surface is appended to it.
    pub(crate) fn event(self, body: Body) -> Self {
        let event = body.at(self.next_seq(), 1_000);
        self.push(&event)
    }

    /// Adds a surface event in the place of others.
    pub(crate) fn replacing(self, body: Body, start: u64, end: u64, shadowed: Vec<u64>) -> Self {
        let mut event = body.at(self.next_seq(), 1_000);
        event.surface_op = Some(SurfaceOp::Replace { start, end });
        event.source_event_seqs = Some(shadowed);
        self.push(&event)
    }

    /// Adds an event of any type with any data, and nothing else in its envelope.
    pub(crate) fn raw(mut self, type_name: &str, data: &Value) -> Self {
        self.events.push(format!(r#"{{"seq":{},"time":1000,"type":{type_name:?},"data":{data}}}"#, self.events.len()));
        self
    }

    /// Adds the text of an event.
    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.events.push(text.into());
        self
    }

    /// Adds a descriptor as it is.
    pub(crate) fn described_as(self, data: &Value) -> Self {
        self.raw("subagent/descriptor", data)
    }

    /// Adds a descriptor.
    pub(crate) fn described(self, descriptor: &Descriptor) -> Self {
        self.event(Body::Descriptor(serde_json::to_value(descriptor).unwrap()))
    }

    /// Adds the end of the creation seed.
    pub(crate) fn sealed(self) -> Self {
        self.event(Body::EndSeed {})
    }

    fn next_seq(&self) -> u64 {
        self.events.len() as u64
    }

    fn push(mut self, event: &Event) -> Self {
        let encoded = encode_event(&self.header.id, event).unwrap();
        self.events.push(String::from_utf8(encoded.body).unwrap());
        self
    }

    /// Returns the id.
    pub(crate) fn id(&self) -> &SessionId {
        &self.header.id
    }

    /// Returns below whom it is found.
    pub(crate) fn place(&self) -> Option<&SessionId> {
        self.lies_below.as_ref().or(self.header.parent.as_ref())
    }

    /// Returns the text of the header and its checksum.
    pub(crate) fn header_record(&self) -> (String, u32) {
        let text = self.other_header.clone().unwrap_or_else(|| serde_json::to_string(&self.header).unwrap());
        let crc = self.header_crc(&text);
        (text, crc)
    }

    fn header_crc(&self, text: &str) -> u32 {
        crc32c(&[b"h\0", text.as_bytes()].concat()) ^ u32::from(self.spoilt_header)
    }

    /// Returns the text of each event and its checksum.
    pub(crate) fn event_records(&self) -> Vec<(String, u32)> {
        let crc = |(at, text): (usize, &String)| self.event_crc(at, text);
        self.events.iter().enumerate().map(|event| (event.1.clone(), crc(event))).collect()
    }

    fn event_crc(&self, at: usize, text: &str) -> u32 {
        event_crc(self.id(), text.as_bytes()) ^ u32::from(self.spoilt == Some(at))
    }

    /// Returns the events as a reader decodes them; `None` if one of them is none, or the header is not where it should be.
    pub(crate) fn decoded(&self) -> Option<Vec<Event>> {
        if self.other_header.is_some() || self.lies_below.is_some() || self.spoilt_header {
            return None;
        }
        (0..).zip(self.event_records()).map(|(seq, (text, crc))| decode_event(self.id(), seq, text.as_bytes(), crc).ok()).collect()
    }

    /// Returns the lines of the session's file. What comes up to the end of the creation seed is one batch, as if it had been created so.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let created = self.events.iter().position(|text| text.contains(r#""type":"session/end-seed""#)).unwrap_or(self.events.len().saturating_sub(1)) + 1;
        let mut lines = Vec::new();
        let (header, crc) = self.header_record();
        let more = |text: &str| format!("{},\"more\":true}}", text.strip_suffix('}').unwrap_or(text));
        if self.events.is_empty() {
            seal(&mut lines, &header, crc);
        } else {
            let header = more(&header);
            seal(&mut lines, &header, self.header_crc(&header));
        }
        for (at, (text, crc)) in self.event_records().into_iter().enumerate() {
            if at + 1 < created {
                let text = more(&text);
                seal(&mut lines, &text, self.event_crc(at, &text));
            } else {
                seal(&mut lines, &text, crc);
            }
        }
        lines
    }
}

/// A continuable child of the behaviour `worker`.
pub(crate) fn descriptor(label: &str) -> Descriptor {
    Descriptor::continuable("spawn", label, "worker")
}

/// A one-shot child of the behaviour `worker`, perhaps without a label.
pub(crate) fn one_shot(label: Option<&str>) -> Descriptor {
    Descriptor { mode: Mode::OneShot, label: label.map(str::to_owned), ..descriptor("") }
}

/// Writes a record as a line, its checksum last.
pub(crate) fn seal(lines: &mut Vec<u8>, text: &str, crc: u32) {
    lines.extend_from_slice(format!("{},\"crc\":\"{crc:08x}\"}}\n", text.strip_suffix('}').unwrap_or(text)).as_bytes());
}

/// crc32c (Castagnoli), bit by bit: what the stores compute is compared with another's work.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn what_is_written_by_hand_is_what_the_codec_reads() {
    // The check value of RFC 3720's polynomial.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let author = Author::listed("c", "r");
    let (text, crc) = author.header_record();
    assert_eq!(greenroom_session::codec::decode_header(&sid("c"), text.as_bytes(), crc).unwrap(), author.header);
    assert_eq!(author.decoded().unwrap().len(), 2);
}
