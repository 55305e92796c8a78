//! The calls of one answer: several at once, their results in the order in which they were asked for.

use std::collections::VecDeque;

use futures::{StreamExt as _, stream::FuturesUnordered};
use greenroom_actors::{Turn, TurnError, turn::CallResult};
use greenroom_session::recover::said_of_cut_call;

use super::{answer::Asked, cancelled};
use crate::tool::{ToolError, ToolMode, ToolOutput, Tools, run_call};

/// The code of a call that was not begun because its turn was cancelled.
pub const ABORTED_BEFORE_DISPATCH: &str = "ABORTED_BEFORE_DISPATCH";

/// What becomes of the turn after its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooled {
    /// The model is asked again.
    Goes,
    /// A result has concluded it.
    Concluded,
}

/// Makes the calls of one answer. Those that are exclusive run alone; `parallel` others run at once, in the order of their beginnings. When the turn is cancelled, those that
/// have begun come to their end, and the others are answered as not begun; where it is to be served again, as after a shutdown,
/// what was given up and what has not begun has only something that stands in for its result until then.
pub(super) async fn run_all(turn: &Turn, tools: &Tools, calls: &[Asked], parallel: usize) -> Result<Pooled, TurnError> {
    let mut waiting: VecDeque<(usize, &Asked)> = calls.iter().enumerate().collect();
    let mut running = FuturesUnordered::new();
    let mut done: Vec<Option<Done>> = calls.iter().map(|_| None).collect();
    let (mut next, mut alone, mut concluded) = (0, false, false);
    let token = turn.cancelled();
    loop {
        while !token.is_cancelled()
            && !alone
            && running.len() < parallel.max(1)
            && let Some((_, call)) = waiting.front()
        {
            // Looked at here and not before: what is exclusive may have changed with the calls before it.
            let exclusive = tools.mode(Some(turn), &call.name, &call.arguments) == ToolMode::Exclusive;
            if exclusive && !running.is_empty() {
                break;
            }
            let Some((index, call)) = waiting.pop_front() else { break };
            alone = exclusive;
            running.push(async move { (index, make(turn, tools, call).await) });
        }
        let Some((index, result)) = running.next().await else { break };
        alone = false;
        if let Some(slot) = done.get_mut(index) {
            *slot = Some(result?);
        }
        concluded |= commit(turn, calls, &mut done, &mut next)?;
    }
    for (index, _) in waiting {
        if let Some(slot) = done.get_mut(index) {
            let aborted = || CallResult::failed("Error: tool call aborted before dispatch", "ToolAbortedError", ABORTED_BEFORE_DISPATCH);
            let result = if turn.is_cut_off() { cut_off(false) } else { aborted() };
            *slot = Some(Done { result, concludes: false });
        }
    }
    concluded |= commit(turn, calls, &mut done, &mut next)?;
    if token.is_cancelled() {
        return Err(cancelled());
    }
    Ok(if concluded { Pooled::Concluded } else { Pooled::Goes })
}

struct Done {
    result: CallResult,
    concludes: bool,
}

/// Writes the results down whose turn it is.
fn commit(turn: &Turn, calls: &[Asked], done: &mut [Option<Done>], next: &mut usize) -> Result<bool, TurnError> {
    let mut concluded = false;
    while let (Some(call), Some(Some(result))) = (calls.get(*next), done.get_mut(*next).map(Option::take)) {
        turn.end_call(&call.id, result.result)?;
        concluded |= result.concludes;
        *next += 1;
    }
    Ok(concluded)
}

async fn make(turn: &Turn, tools: &Tools, call: &Asked) -> Result<Done, TurnError> {
    turn.start_call(&call.id, &call.name, &call.arguments).await?;
    Ok(match run(turn, tools, &call.id, &call.name, &call.arguments).await {
        Some(output) => {
            let concludes = output.as_ref().is_ok_and(|output| output.concludes_turn);
            Done { result: result_of(output), concludes }
        }
        None => Done { result: cut_off(true), concludes: false },
    })
}

/// Returns what stands in for the result of a call until its message is served again.
pub(super) fn cut_off(started: bool) -> CallResult {
    let (name, code, text) = said_of_cut_call(started);
    CallResult::failed(text, name, code)
}

/// Runs one call. `None` if it was given up in a turn that is served again: a tool that may be repeated is called again then, and of any other nobody knows what it has done.
pub(super) async fn run(turn: &Turn, tools: &Tools, id: &str, name: &str, arguments: &str) -> Option<Result<ToolOutput, ToolError>> {
    let repeatable = tools.find(Some(turn), name).is_some_and(|tool| tool.is_repeatable());
    let output = run_call(tools, Some(turn), id, name, arguments).await;
    let given_up = output.as_ref().is_err_and(|error| repeatable || error.is_aborted());
    (!given_up || !turn.is_cut_off() || !turn.cancelled().is_cancelled()).then_some(output)
}

/// Returns what a model sees of a call.
pub(super) fn result_of(output: Result<ToolOutput, ToolError>) -> CallResult {
    match output {
        Ok(output) => CallResult::done(output.text),
        Err(error) => CallResult::failed(error.text(), error.name(), error.code()),
    }
}
