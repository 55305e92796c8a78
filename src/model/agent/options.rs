//! What is said of a model agent.

use greenroom_session::descriptor::ModelRoute;

use crate::model::{RetryPolicy, Usage};

/// What is said of a model agent, whatever session it plays.
///
/// ```
/// use greenroom::model::{ModelOptions, Price};
/// let mut options = ModelOptions::new("gpt-5-mini").persona("You check facts.");
/// options.price = Some(Price { input: 0.25, output: 2.0, cached_input: 0.025, cache_write: 0.25 });
/// assert_eq!((options.max_steps, options.parallel, options.max_tokens), (64, 10, None));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelOptions {
    /// The route to the model where a session has none of its own.
    pub route: Option<ModelRoute>,
    /// Who the agent is, where its delegation says nothing else.
    pub persona: Option<String>,
    /// How many requests a turn may make; at least 1.
    pub max_steps: u32,
    /// How many tokens an answer may have; the model's own limit if `None`.
    pub max_tokens: Option<u64>,
    /// How many tool calls of one answer run at once; at least 1.
    pub parallel: usize,
    /// When a failed request is made again.
    pub retry: RetryPolicy,
    /// How many tokens the model can take in at once. What comes near is compacted; nothing is if `None`, unless the model says that it is full.
    pub window: Option<u64>,
    /// What tokens cost; only counted if `None`.
    pub price: Option<Price>,
}

impl ModelOptions {
    /// Names a model.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            route: Some(ModelRoute { provider: None, name: model.into() }),
            persona: None,
            max_steps: 64,
            max_tokens: None,
            parallel: 10,
            retry: RetryPolicy::default(),
            window: None,
            price: None,
        }
    }

    /// Says who the agent is.
    #[must_use]
    pub fn persona(mut self, persona: impl Into<String>) -> Self {
        self.persona = Some(persona.into());
        self
    }
}

/// What a model costs, in dollars for a million tokens.
///
/// ```
/// use greenroom::model::{Price, Usage};
/// let price = Price { input: 1.0, output: 10.0, cached_input: 0.1, cache_write: 1.25 };
/// let usage = Usage { input: 1_000, cached_input: 400, output: 100, ..Usage::default() };
/// // 600 at the full price, 400 at that of the cache, 100 of output: 0.00164 dollars.
/// assert_eq!(price.nanodollars(&usage), 1_640_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Of what is taken in.
    pub input: f64,
    /// Of what comes out.
    pub output: f64,
    /// Of what is taken in from the provider's cache.
    pub cached_input: f64,
    /// Of what is taken in and written to that cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns what this many tokens cost, in billionths of a dollar, rounded.
    pub fn nanodollars(&self, usage: &Usage) -> u64 {
        let plain = usage.input.saturating_sub(usage.cached_input).saturating_sub(usage.cache_write);
        let parts = [(plain, self.input), (usage.cached_input, self.cached_input), (usage.cache_write, self.cache_write), (usage.output, self.output)];
        #[expect(clippy::cast_precision_loss, reason = "far fewer tokens than a float can count")]
        let sum: f64 = parts.iter().map(|(tokens, price)| *tokens as f64 * price * 1_000.0).sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float saturates")]
        let rounded = sum.round() as u64;
        rounded
    }
}
