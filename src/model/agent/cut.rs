//! Calls that a crash cut off: which of them are made again.

use greenroom_actors::{Turn, TurnError, turn::CutCall};

use super::{
    cancelled,
    pool::{cut_off, result_of, run},
};
use crate::tool::Tools;

/// Makes the calls again that an earlier attempt has left without a result, where that does no harm: those that had not begun, and those of tools that may run twice.
/// What is left of the others stays as it is, an error that says that their outcome is unknown.
pub(super) async fn mend(turn: &Turn, tools: &Tools) -> Result<(), TurnError> {
    for call in turn.cut_calls() {
        if turn.cancelled().is_cancelled() {
            return Err(cancelled());
        }
        let Some(tool) = tools.find(Some(turn), &call.name) else { continue };
        let begun = begun(&call);
        let again = turn.recorded(&begun).is_some();
        if !tool.is_repeatable() {
            if call.started {
                continue;
            }
            if again {
                turn.mend_call(&call, cut_off(true)).await?;
                continue;
            }
            // Its own step is over, so that its beginning is written down as an input of the turn.
            turn.record(begun, call.name.clone()).await?;
        }
        let output = run(turn, tools, &call.id, &call.name, &call.arguments).await.ok_or_else(cancelled)?;
        turn.mend_call(&call, result_of(output)).await?;
    }
    Ok(())
}

fn begun(call: &CutCall) -> String {
    format!("tool call begun: {}", call.id)
}
