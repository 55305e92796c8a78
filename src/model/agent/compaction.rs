//! What is done when the context window is full: a summary takes the place of what was said longest ago.

use std::sync::Arc;

use greenroom_actors::{Turn, TurnError};
use greenroom_session::{
    compact::Summary,
    descriptor::ModelRoute,
    event::{Role, SurfaceMessage},
    id::Seq,
    message::{Block, Source},
};

use super::{
    ModelAgent, answer,
    answer::{Broken, Heard},
    cancelled, request,
};

/// How full the window may be before it is compacted, in parts of it.
const FULL: (u64, u64) = (4, 5);

/// How much of the window the newest messages keep, which are not summarized.
const KEPT: (u64, u64) = (1, 5);

/// How many bytes make a token, where nobody has counted.
const BYTES_PER_TOKEN: u64 = 4;

/// What the model is asked for.
const WISH: &str = "Summarize the conversation so far for yourself: you will go on with this summary in its place. Keep every fact, decision, open task, name, path and id \
                    (of subagents above all) that may still matter, and what was asked last. Leave out what is settled. Call no tool; answer with the summary alone.";

impl ModelAgent {
    /// Compacts if the next request comes near the window's size; tells whether it has.
    pub(super) async fn compact_if_full(&self, turn: &Turn, route: &ModelRoute) -> Result<bool, TurnError> {
        let Some(window) = self.options.window else { return Ok(false) };
        let request = request::assemble(turn, &self.tools, &self.options, route);
        if self.tokens(request::bytes(&request)) * FULL.1 < window * FULL.0 { Ok(false) } else { self.compact(turn, route).await }
    }

    /// Estimates how many tokens so many bytes are: by what the model's provider counted last.
    fn tokens(&self, bytes: u64) -> u64 {
        match self.measured {
            Some(measured) if measured.bytes > 0 => bytes.saturating_mul(measured.tokens).div_ceil(measured.bytes),
            _ => bytes.div_ceil(BYTES_PER_TOKEN),
        }
    }

    /// Puts a summary into the place of the older part of what the agent sees; false if there is nothing to summarize or no summary to be had.
    pub(super) async fn compact(&self, turn: &Turn, route: &ModelRoute) -> Result<bool, TurnError> {
        let surface = turn.surface();
        // Without a window to go by, the newer half stays.
        let bytes: u64 = surface.iter().map(|(_, message)| size(message)).sum();
        let kept = self.options.window.map_or(bytes / 2, |window| window * BYTES_PER_TOKEN * KEPT.0 / KEPT.1).min(bytes / 2);
        for (from, to) in runs(turn, &surface, kept) {
            let (Some((start, _)), Some((end, _))) = (surface.get(from), surface.get(to)) else { continue };
            match turn.plan_compaction(*start, *end).await {
                Ok(plan) => return self.summarize(turn, route, &surface, (from, to), &plan).await,
                // One message less: then a call and its result are on the same side.
                Err(error) if error.code == "COMPACTION_SPLITS_CALL" => {}
                Err(error) if error.code.starts_with("COMPACTION_") => {
                    tracing::debug!(session = %turn.session(), %error, "nothing is compacted");
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn summarize(
        &self,
        turn: &Turn,
        route: &ModelRoute,
        surface: &[(Seq, Arc<SurfaceMessage>)],
        (from, to): (usize, usize),
        plan: &greenroom_session::compact::Plan,
    ) -> Result<bool, TurnError> {
        let mut request = request::assemble(turn, &self.tools, &self.options, route);
        request.messages = surface
            .get(from..=to)
            .unwrap_or_default()
            .iter()
            .filter(|(_, message)| !message.content.is_empty())
            .map(|(_, message)| request::framed(message))
            .collect();
        let source = Source::Plugin { name: greenroom_session::compact::COMPACT_SOURCE.to_owned() };
        request.messages.push(Arc::new(SurfaceMessage { id: turn.new_message_id(), role: Role::User, content: vec![Block::text(WISH)], source }));
        let (text, tokens) = match answer::stream(self.model.as_ref(), turn, request, Heard::ByNone).await {
            Ok(answer) => (answer.text(), answer.usage.input),
            Err(Broken::Cancelled(_)) => {
                turn.give_up_compaction("CANCELLED").await?;
                return Err(cancelled());
            }
            Err(Broken::Failed(error)) => {
                tracing::warn!(session = %turn.session(), %error, "there is no summary");
                turn.give_up_compaction(error.code()).await?;
                return Ok(false);
            }
        };
        if text.trim().is_empty() {
            turn.give_up_compaction("EMPTY_RESPONSE").await?;
            return Ok(false);
        }
        let summary = Summary {
            provider: route.provider.clone(),
            model: Some(route.name.clone()),
            tokens: (tokens > 0).then_some(tokens),
            ..Summary::new(turn.new_message_id(), format!("Summary of the conversation so far:\n{text}"))
        };
        match turn.compact(plan, summary).await {
            Ok(()) => Ok(true),
            Err(error) if error.code.starts_with("COMPACTION_") => {
                turn.give_up_compaction(&error.code).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn size(message: &SurfaceMessage) -> u64 {
    message.content.iter().map(|block| block.len() as u64).sum()
}

/// Returns the runs of messages that may be summarized, by their first and last index, the longest first: what was before this turn's message, else what the turn has done
/// since, but for the newest messages of `kept` bytes.
fn runs(turn: &Turn, surface: &[(Seq, Arc<SurfaceMessage>)], kept: u64) -> Vec<(usize, usize)> {
    let own = surface.iter().rposition(|(_, message)| message.id == *turn.message_id()).unwrap_or(surface.len());
    let mut left = kept;
    // The first of the newest messages that stay.
    let stays = surface
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, (_, message))| match left.checked_sub(size(message)) {
            Some(rest) => {
                left = rest;
                None
            }
            None => Some(index + 1),
        })
        .unwrap_or(0);
    let before = stays.min(own);
    let (from, end) = if before >= 2 { (0, before) } else { (own + 1, stays) };
    (from + 1..end).rev().map(|last| (from, last)).collect()
}
