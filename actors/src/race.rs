//! Schedule points: places where tests let another task go first.
//!
//! `race_point!("name")` stands where the order of two tasks matters. Outside of this crate's tests it is nothing. In a test, a
//! seeded plan decides at each point how often to yield, so that a seed names a schedule and a failing seed can be run again.

/// Lets a test reorder tasks here.
macro_rules! race_point {
    ($name:literal) => {
        #[cfg(test)]
        crate::race::plan::point($name).await
    };
}
pub(crate) use race_point;

#[cfg(test)]
pub(crate) mod plan {
    use std::{cell::RefCell, collections::BTreeMap};

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    struct Plan {
        rng: ChaCha8Rng,
        hits: BTreeMap<&'static str, u64>,
    }

    thread_local! {
        // A sweep runs on a current-thread runtime, so one thread is one schedule.
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    }

    /// Begins the schedule of `seed` on this thread.
    pub(crate) fn begin(seed: u64) {
        PLAN.set(Some(Plan { rng: ChaCha8Rng::seed_from_u64(seed), hits: BTreeMap::new() }));
    }

    /// Ends the schedule and returns how often each point was hit.
    pub(crate) fn end() -> BTreeMap<&'static str, u64> {
        PLAN.take().map(|plan| plan.hits).unwrap_or_default()
    }

    /// Yields as often as the plan says.
    pub(crate) async fn point(name: &'static str) {
        let yields = PLAN.with_borrow_mut(|plan| {
            plan.as_mut().map_or(0, |plan| {
                *plan.hits.entry(name).or_default() += 1;
                // Mostly few, sometimes long enough to let another task run to its end.
                if plan.rng.random_ratio(1, 8) { plan.rng.random_range(8..40) } else { plan.rng.random_range(0..4) }
            })
        });
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }
}
