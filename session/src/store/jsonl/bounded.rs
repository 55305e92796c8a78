//! A map that forgets what was not used for long.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// At most `limit` values; whoever is not used goes first.
#[derive(Debug)]
pub(super) struct Bounded<K, V> {
    limit: usize,
    clock: u64,
    values: HashMap<K, (u64, V)>,
}

impl<K: Hash + Eq, V> Bounded<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, clock: 0, values: HashMap::new() }
    }

    pub(super) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.clock += 1;
        let (used, value) = self.values.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.values.remove(key).map(|(_, value)| value)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        self.clock += 1;
        self.values.insert(key, (self.clock, value));
        if self.values.len() > self.limit {
            // Half at once, so that the search costs little per value.
            let mut used: Vec<u64> = self.values.values().map(|(used, _)| *used).collect();
            let middle = used.len() / 2;
            let (_, oldest_kept, _) = used.select_nth_unstable(middle);
            let oldest_kept = *oldest_kept;
            self.values.retain(|_, (used, _)| *used >= oldest_kept);
        }
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten_in_time() {
        let mut kept = Bounded::new(4);
        for n in 0..100 {
            kept.put(n, n);
            assert_eq!(kept.get(&0), Some(&mut 0));
            assert!(kept.len() <= 4);
        }
        assert_eq!((kept.get(&99).copied(), kept.get(&50).copied()), (Some(99), None));
    }
}
