//! The plan: who sends what to whom, what the receiver does with it, and what the sender does next. A pure function of the seed and the numbers.
//!
//! The senders, the agents and the audit each make it for themselves; nothing of it is kept anywhere.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Streams of random numbers: one per sender below these.
const AGENTS_STREAM: u64 = u64::MAX;
/// The stream from which a supervisor takes how long its workers live.
const KILLS_STREAM: u64 = u64::MAX - 1;
/// Words of a stream that one message may use.
const WORDS_PER_MESSAGE: u128 = 64;
/// Deepest agent; children of the root have depth 1.
const MAX_DEPTH: u32 = 4;

/// The numbers that decide everything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) agents: u32,
    pub(super) senders: u32,
    pub(super) messages: u32,
    pub(super) min_size: u32,
    pub(super) max_size: u32,
}

/// Names a message: the sender's number, and the message's number among the sender's own, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) sender: u32,
    pub(super) number: u32,
}

/// A message as it is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Post {
    pub(super) name: Name,
    /// The agent that it goes to.
    pub(super) to: u32,
    pub(super) deed: Deed,
    pub(super) size: u32,
    /// What the sender does when it is accepted.
    pub(super) next: Option<Request>,
}

/// What a sender asks of the receiver once its message is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// To give the message back.
    Withdraw,
    /// To end the turn that is under way, whose ever it is.
    Interrupt,
}

/// What the receiver does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Says something.
    Say,
    /// Notes something, and says something.
    Memo,
    /// Reports to its parent.
    Report { quiet: bool },
    /// Lets others go first, a few times.
    Yield,
    /// Works in several steps, at whose boundaries notes join.
    Steps,
    /// Sends to one of its own children; without one it says something.
    Send,
    /// Starts a helper.
    Delegate,
    /// Fails.
    Fail,
}

impl Name {
    /// Returns the message's id.
    pub(super) fn id(self) -> String {
        format!("s{}-{}", self.sender, self.number)
    }

    /// Reads an id that [`Name::id`] wrote.
    pub(super) fn read(id: &str) -> Option<Self> {
        let (sender, number) = id.strip_prefix('s')?.split_once('-')?;
        let name = Self { sender: sender.parse().ok()?, number: number.parse().ok()? };
        // `s01-+2` is no id that a sender uses.
        (name.id() == id).then_some(name)
    }
}

impl Plan {
    fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        random
    }

    /// Returns the numbers from which a supervisor takes how long its workers live.
    pub(super) fn kills(&self) -> ChaCha8Rng {
        self.random(KILLS_STREAM)
    }

    /// Returns the parent of each agent; `None` is the root. A parent comes before its children.
    pub(super) fn parents(&self) -> Vec<Option<u32>> {
        let mut random = self.random(AGENTS_STREAM);
        let mut depths: Vec<u32> = Vec::new();
        let mut parents = Vec::new();
        for agent in 0..self.agents {
            let below = if agent == 0 || random.random_bool(0.5) { None } else { Some(random.random_range(0..agent)) };
            let above = below.and_then(|parent| Some((parent, *depths.get(usize::try_from(parent).ok()?)?))).filter(|(_, depth)| *depth < MAX_DEPTH);
            parents.push(above.map(|(parent, _)| parent));
            depths.push(above.map_or(1, |(_, depth)| depth + 1));
        }
        parents
    }

    /// Tells whether a message of this name is planned.
    pub(super) fn has(&self, name: Name) -> bool {
        name.sender < self.senders && name.number < self.messages
    }

    /// Returns the message of a name.
    pub(super) fn post(&self, name: Name) -> Post {
        let mut random = self.random(u64::from(name.sender));
        random.set_word_pos(u128::from(name.number) * WORDS_PER_MESSAGE);
        // The smaller of two: some agents are sent to far more often than others.
        let to = random.random_range(0..self.agents).min(random.random_range(0..self.agents));
        let size = random.random_range(self.min_size..=self.max_size);
        let deed = match random.random_range(0..100u32) {
            0..40 => Deed::Say,
            40..58 => Deed::Memo,
            58..66 => Deed::Report { quiet: true },
            66..74 => Deed::Report { quiet: false },
            74..84 => Deed::Yield,
            84..88 => Deed::Steps,
            88..94 => Deed::Send,
            94..95 => Deed::Delegate,
            _ => Deed::Fail,
        };
        let next = match random.random_range(0..100u32) {
            0..6 => Some(Request::Withdraw),
            6..12 => Some(Request::Interrupt),
            _ => None,
        };
        Post { name, to, deed, size, next }
    }

    /// Returns the messages in all.
    pub(super) fn total(&self) -> u64 {
        u64::from(self.senders) * u64::from(self.messages)
    }
}

impl Post {
    /// Returns the text: the id again and again, cut to the size.
    pub(super) fn text(&self) -> String {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let mut unit = self.name.id();
        unit.push(' ');
        let mut text = String::with_capacity(size);
        while text.len() < size {
            let left = size - text.len();
            text.push_str(unit.get(..left).unwrap_or(&unit));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan { seed, agents: 50, senders: 3, messages: 400, min_size: 0, max_size: 300 }
    }

    fn all(plan: &Plan) -> Vec<Post> {
        (0..plan.senders).flat_map(|sender| (0..plan.messages).map(move |number| plan.post(Name { sender, number }))).collect()
    }

    #[test]
    fn the_same_seed_is_the_same_plan_and_another_is_another() {
        assert_eq!((plan(7).parents(), all(&plan(7))), (plan(7).parents(), all(&plan(7))));
        assert_ne!(plan(7).parents(), plan(8).parents());
        assert_ne!(all(&plan(7)), all(&plan(8)));
    }

    #[test]
    fn a_plan_says_the_same_on_every_machine() {
        let name = Name { sender: 2, number: 399 };
        assert_eq!(plan(7).post(name), Post { name, to: 3, deed: Deed::Memo, size: 98, next: None });
        assert_eq!(plan(7).parents()[..6], [None, None, Some(1), Some(0), None, None]);
    }

    #[test]
    fn every_deed_every_request_and_every_depth_occurs_and_sizes_are_kept() {
        let posts = all(&plan(1));
        let deeds = [
            Deed::Say,
            Deed::Memo,
            Deed::Report { quiet: true },
            Deed::Report { quiet: false },
            Deed::Yield,
            Deed::Steps,
            Deed::Send,
            Deed::Delegate,
            Deed::Fail,
        ];
        for deed in deeds {
            assert!(posts.iter().any(|post| post.deed == deed), "{deed:?}");
        }
        for next in [None, Some(Request::Withdraw), Some(Request::Interrupt)] {
            assert!(posts.iter().any(|post| post.next == next), "{next:?}");
        }
        for post in &posts {
            assert!(post.to < 50);
            assert_eq!(post.text().len(), post.size as usize);
        }
        let parents = plan(1).parents();
        let depth = |mut agent: u32| {
            let mut depth = 1;
            while let Some(parent) = parents[agent as usize] {
                assert!(parent < agent);
                (agent, depth) = (parent, depth + 1);
            }
            depth
        };
        let depths: std::collections::BTreeSet<u32> = (0..50).map(depth).collect();
        assert_eq!(depths, (1..=MAX_DEPTH).collect());
    }

    #[test]
    fn only_ids_of_senders_are_read_as_such() {
        let name = Name { sender: 3, number: 17 };
        assert_eq!(Name::read(&name.id()), Some(name));
        for id in ["layout", "s3", "s-1", "s3-", "s03-17", "s3-+17", "s3-17 ", "S3-17", "s3-99999999999"] {
            assert_eq!(Name::read(id), None, "{id}");
        }
    }
}
