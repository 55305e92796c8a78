//! When a failed request is made again.

use std::time::Duration;

use greenroom_actors::rand::Rng;

use super::ModelError;

/// When a failed request is made again: a few times, after pauses that double, unless the provider names one.
///
/// ```
/// use std::time::Duration;
/// use greenroom::{actors::rand::{SeedableRng, rngs::SmallRng}, model::{ModelError, ModelErrorCode, RetryPolicy}};
/// let (policy, mut rng) = (RetryPolicy { jitter: 0.0, ..RetryPolicy::default() }, SmallRng::seed_from_u64(7));
/// let busy = ModelError::new(ModelErrorCode::RateLimit, "slow down");
/// assert_eq!(policy.delay(0, &busy, &mut rng), Some(Duration::from_millis(500)));
/// assert_eq!(policy.delay(1, &busy.clone().retry_after(Some(Duration::from_secs(3))), &mut rng), Some(Duration::from_secs(3)));
/// assert_eq!(policy.delay(2, &busy, &mut rng), None); // two retries
/// assert_eq!(policy.delay(0, &ModelError::new(ModelErrorCode::Auth, "no key"), &mut rng), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// How many times a request is made again.
    pub retries: u32,
    /// The first pause.
    pub first: Duration,
    /// The longest pause, also where the provider asks for more.
    pub cap: Duration,
    /// By which part of itself a pause may be longer or shorter, by chance; 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 2, first: Duration::from_millis(500), cap: Duration::from_secs(10), jitter: 0.1 }
    }
}

impl RetryPolicy {
    /// Returns the pause before the request is made again that has failed `failed` times before; `None` if it is not.
    pub fn delay(&self, failed: u32, error: &ModelError, rng: &mut impl Rng) -> Option<Duration> {
        if failed >= self.retries || !error.is_passing() {
            return None;
        }
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(failed));
        // What the provider asks for is not made shorter.
        let chance = f64::from(rng.next_u32()) / f64::from(u32::MAX);
        let own = doubled.mul_f64((1.0 + self.jitter * (2.0 * chance - 1.0)).max(0.0));
        Some(error.retry_after.unwrap_or(own).min(self.cap))
    }
}
