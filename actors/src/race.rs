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
    use std::{cell::RefCell, collections::BTreeMap, future::pending, sync::Arc};

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use tokio::sync::Notify;

    struct Plan {
        rng: ChaCha8Rng,
        hits: BTreeMap<&'static str, u64>,
        crash: Option<Crash>,
        left: u64,
        /// One end of this many does not come; 0 if all do.
        sticks: u32,
    }

    struct Crash {
        points_left: u64,
        told: Arc<Notify>,
        /// Whether nothing goes on from there.
        stops: bool,
    }

    enum Order {
        Yield(u32),
        Stop,
    }

    /// How often whoever comes to a point yields to whoever is told of it.
    const WHILE: u32 = 60;

    /// Points that one world may pass; more are a circle that never ends.
    const MOST_POINTS: u64 = 200_000;

    thread_local! {
        // A sweep runs on a current-thread runtime, so one thread is one schedule.
        static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    }

    /// Begins the schedule of `seed` on this thread.
    pub(crate) fn begin(seed: u64) {
        PLAN.set(Some(Plan { rng: ChaCha8Rng::seed_from_u64(seed), hits: BTreeMap::new(), crash: None, left: MOST_POINTS, sticks: 0 }));
    }

    /// Stops every task at the next point it comes to after `points` more, and tells; `None` lets tasks run again.
    pub(crate) fn crash_after(points: Option<u64>) -> Arc<Notify> {
        set(points, true)
    }

    /// Tells at the point that comes after `points` more, and has whoever came to it wait a while for whoever is told.
    pub(crate) fn tell_after(points: u64) -> Arc<Notify> {
        set(Some(points), false)
    }

    fn set(points: Option<u64>, stops: bool) -> Arc<Notify> {
        let told = Arc::new(Notify::new());
        PLAN.with_borrow_mut(|plan| {
            if let Some(plan) = plan {
                plan.crash = points.map(|points_left| Crash { points_left, told: told.clone(), stops });
            }
        });
        told
    }

    /// Has one end of this many not come; 0 if all are to come.
    pub(crate) fn stick(one_of: u32) {
        PLAN.with_borrow_mut(|plan| {
            if let Some(plan) = plan {
                plan.sticks = one_of;
            }
        });
    }

    /// Never comes back, if the plan says so.
    pub(crate) async fn may_stick() {
        let sticks = PLAN.with_borrow_mut(|plan| plan.as_mut().is_some_and(|plan| plan.sticks > 0 && plan.rng.random_range(0..plan.sticks) == 0));
        if sticks {
            pending::<()>().await;
        }
    }

    /// Returns a number below `bound`, by the plan; 0 if there is none.
    pub(crate) fn roll(bound: u32) -> u32 {
        PLAN.with_borrow_mut(|plan| plan.as_mut().map_or(0, |plan| plan.rng.random_range(0..bound.max(1))))
    }

    /// Ends the schedule and returns how often each point was hit.
    pub(crate) fn end() -> BTreeMap<&'static str, u64> {
        PLAN.take().map(|plan| plan.hits).unwrap_or_default()
    }

    /// Yields as often as the plan says.
    pub(crate) async fn point(name: &'static str) {
        let order = PLAN.with_borrow_mut(|plan| {
            plan.as_mut().map_or(Order::Yield(0), |plan| {
                *plan.hits.entry(name).or_default() += 1;
                plan.left = plan.left.saturating_sub(1);
                assert!(plan.left > 0, "the world runs in a circle");
                if let Some(crash) = &mut plan.crash {
                    if crash.points_left == 0 {
                        crash.told.notify_one();
                        if crash.stops {
                            return Order::Stop;
                        }
                        plan.crash = None;
                        return Order::Yield(WHILE);
                    }
                    crash.points_left -= 1;
                }
                // Mostly few, sometimes long enough to let another task run to its end.
                Order::Yield(if plan.rng.random_ratio(1, 8) { plan.rng.random_range(8..40) } else { plan.rng.random_range(0..4) })
            })
        });
        match order {
            Order::Stop => pending().await,
            Order::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}
