//! What of a model's answer was sent while it was said, so that the log has only the rest to tell.

use greenroom_actors::occurrence::Chunk;

/// Turn and step: where an answer has its place.
pub(super) type Place = (u64, u32);

/// What was sent of the answer under way.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    place: Option<Place>,
    text: Said,
    thought: Said,
    /// The newest answer that the log has told.
    told: Option<Place>,
    /// Whether chunks may have been missed, so that the next one may not be the first of its answer.
    missed: bool,
    /// An answer whose beginning was missed: the log tells all of it.
    left_to_log: Option<Place>,
}

/// What the log still has to tell of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) thought: String,
    pub(super) text: String,
}

impl Streamed {
    /// Takes note that chunks were missed.
    pub(super) fn missed(&mut self) {
        self.missed = true;
        self.left_to_log = self.place.filter(|place| self.told.is_none_or(|told| *place > told));
    }

    /// Takes a chunk; tells whether it is to be sent.
    pub(super) fn chunk(&mut self, place: Place, chunk: &Chunk) -> bool {
        if self.told.is_some_and(|told| place <= told) {
            return false;
        }
        if std::mem::take(&mut self.missed) {
            self.left_to_log = Some(place);
        }
        if self.left_to_log == Some(place) {
            return false;
        }
        if self.place != Some(place) {
            (self.place, self.text, self.thought) = (Some(place), Said::default(), Said::default());
        }
        match chunk {
            Chunk::Text(text) => self.text.add(text),
            Chunk::Reasoning(text) => self.thought.add(text),
        }
        true
    }

    /// Takes an answer as the log has it, and returns what of it was not sent.
    pub(super) fn answered(&mut self, place: Place, thought: String, text: String) -> Rest {
        self.told = Some(place);
        if self.place != Some(place) {
            return Rest { thought, text };
        }
        self.place = None;
        let (said, thoughts) = (std::mem::take(&mut self.text), std::mem::take(&mut self.thought));
        Rest { thought: thoughts.rest_of(thought), text: said.rest_of(text) }
    }
}

#[derive(Debug, Default)]
struct Said {
    all: String,
    /// Where each chunk begins: an answer that was asked for again begins at one of them.
    begins: Vec<usize>,
}

impl Said {
    fn add(&mut self, text: &str) {
        self.begins.push(self.all.len());
        self.all.push_str(text);
    }

    fn rest_of(&self, whole: String) -> String {
        let sent = self.begins.iter().filter_map(|begin| self.all.get(*begin..)).find(|sent| whole.starts_with(sent));
        match sent {
            Some(sent) => whole.get(sent.len()..).unwrap_or_default().to_owned(),
            // Something else was sent, or nothing.
            None => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Chunk {
        Chunk::Text(text.into())
    }

    fn rest(streamed: &mut Streamed, place: Place, whole: &str) -> String {
        streamed.answered(place, String::new(), whole.into()).text
    }

    #[test]
    fn what_was_sent_is_not_told_again() {
        let mut streamed = Streamed::default();
        assert!(streamed.chunk((1, 1), &Chunk::Reasoning("hm".into())) && streamed.chunk((1, 1), &text("Hel")));
        assert_eq!(streamed.answered((1, 1), "hm, yes".into(), "Hello".into()), Rest { thought: ", yes".into(), text: "lo".into() });
        assert!(!streamed.chunk((1, 1), &text("lo")), "the log was quicker");
        assert!(streamed.chunk((1, 2), &text("Bye")));
        assert_eq!(rest(&mut streamed, (1, 2), "Bye"), "");
        assert_eq!(rest(&mut streamed, (1, 3), "by one who does not stream"), "by one who does not stream");
    }

    #[test]
    fn an_answer_that_was_asked_for_again_is_told_once_more_at_most_as_far_as_it_had_come() {
        let mut streamed = Streamed::default();
        for part in ["Hel", "Hel", "lo, wor"] {
            assert!(streamed.chunk((1, 1), &text(part)));
        }
        assert_eq!(rest(&mut streamed, (1, 1), "Hello, world"), "ld");
        assert!(streamed.chunk((1, 2), &text("Good")));
        assert_eq!(rest(&mut streamed, (1, 2), "Bad"), "Bad", "something else was sent");
    }

    #[test]
    fn who_has_missed_chunks_leaves_that_answer_to_the_log() {
        let mut streamed = Streamed::default();
        assert!(streamed.chunk((1, 1), &text("a")));
        streamed.missed();
        assert!(!streamed.chunk((1, 1), &text("c")));
        assert_eq!(rest(&mut streamed, (1, 1), "abc"), "bc");
        streamed.missed();
        assert!(!streamed.chunk((2, 1), &text("e")) && !streamed.chunk((2, 1), &text("f")));
        assert_eq!(rest(&mut streamed, (2, 1), "def"), "def");
        assert!(streamed.chunk((2, 2), &text("g")), "that one is heard from its beginning");
    }
}
