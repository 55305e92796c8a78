//! The surface: what a model sees, as an ordered list of current events.

use std::sync::Arc;

use crate::{
    event::{Body, Event, SurfaceMessage, SurfaceOp},
    head::FoldError,
    id::Seq,
};

/// Current nodes in the order in which a model sees them.
///
/// ```
/// use greenroom_session::{event::Body, message::{Message, Source}, surface::Surface};
/// let mut surface = Surface::default();
/// surface.apply(&Body::user_message(&Message::turn("m0", "Begin.", Source::User, 1_000)?).at(0, 1_000))?;
/// surface.apply(&Body::StepStart { turn: 1, step: 1 }.at(1, 1_000))?; // no model sees this
/// assert_eq!(surface.messages().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Surface {
    nodes: Vec<Node>,
    replacements: u64,
}

/// One current node.
///
/// ```
/// use greenroom_session::{event::Body, message::{Message, Source}, surface::{Node, Surface}};
/// let mut surface = Surface::default();
/// surface.apply(&Body::user_message(&Message::turn("m0", "Begin.", Source::User, 1_000)?).at(0, 1_000))?;
/// let node: &Node = &surface.nodes()[0];
/// assert_eq!((node.seq, node.message.id.as_str()), (0, "m0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The event.
    pub seq: Seq,
    /// What it says.
    pub message: Arc<SurfaceMessage>,
    tool_result: bool,
}

/// A change that was checked and not yet made.
#[derive(Debug)]
enum Change {
    None,
    Append,
    Replace { from: usize, to: usize },
}

impl Surface {
    /// Returns the current nodes, first to last.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns how many replacements were made.
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Returns the messages that a model sees; an assistant message without content is left out.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Arc<SurfaceMessage>> {
        self.nodes.iter().map(|node| &node.message).filter(|message| !message.content.is_empty())
    }

    /// Moves on by one event. Nothing changes when the event is refused.
    ///
    /// # Errors
    /// [`FoldError`] if the event breaks a rule of `docs/log-format.md` section 3.3.
    pub fn apply(&mut self, event: &Event) -> Result<(), FoldError> {
        match self.plan(event)? {
            Change::None => {}
            Change::Append => self.nodes.extend(node(event)),
            Change::Replace { from, to } => {
                self.nodes.splice(from..=to, node(event));
                self.replacements += 1;
            }
        }
        Ok(())
    }

    fn plan(&self, event: &Event) -> Result<Change, FoldError> {
        let refuse = |reason: &str| Err(FoldError::new(event.seq, reason));
        let sources = event.source_event_seqs.as_deref();
        let Some(op) = event.surface_op else {
            return match event.body {
                ref body if body.is_surface() => refuse("a surface event without `surface_op`"),
                _ if sources.is_some() => refuse("`source_event_seqs` on an event that is not on the surface"),
                _ => Ok(Change::None),
            };
        };
        if !event.body.is_surface() {
            return refuse("`surface_op` on an event that is not on the surface");
        }
        if let Some(sources) = sources {
            if !sources.is_sorted_by(|a, b| a < b) || sources.last().is_some_and(|&last| last >= event.seq) {
                return refuse("`source_event_seqs` must name earlier events in ascending order");
            }
            if sources.is_empty() && !matches!(event.body, Body::AssistantMessage { .. }) {
                return refuse("`source_event_seqs` must not be empty here");
            }
        }
        let SurfaceOp::Replace { start, end } = op else { return Ok(Change::Append) };
        let position = |seq: Seq| self.nodes.iter().position(|node| node.seq == seq);
        let (Some(from), Some(to)) = (position(start), position(end)) else {
            return refuse("a replacement must name current events");
        };
        let Some(shadowed) = self.nodes.get(from..=to).filter(|nodes| !nodes.is_empty()) else {
            return refuse("a replacement must not end before it starts");
        };
        if !shadowed.iter().all(|node| sources.is_some_and(|sources| sources.binary_search(&node.seq).is_ok())) {
            return refuse("a replacement must list every event that it shadows");
        }
        if matches!(event.body, Body::ToolResult { .. }) && !matches!(shadowed, [only] if only.tool_result) {
            return refuse("a tool result replaces exactly one tool result");
        }
        Ok(Change::Replace { from, to })
    }
}

fn node(event: &Event) -> Option<Node> {
    let message = event.body.surface_message()?;
    Some(Node { seq: event.seq, message: Arc::new(message.clone()), tool_result: matches!(event.body, Body::ToolResult { .. }) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Role,
        id::MessageId,
        message::{Block, Source},
    };

    fn said(seq: Seq, op: Option<SurfaceOp>, sources: Option<Vec<Seq>>) -> Event {
        let message =
            SurfaceMessage { id: MessageId::new(format!("m{seq}")).unwrap(), role: Role::User, content: vec![Block::text("x")], source: Source::User };
        Event { seq, time: 0, body: Body::UserMessage(message), surface_op: op, source_event_seqs: sources, ignorable: false }
    }

    fn three() -> Surface {
        let mut surface = Surface::default();
        for seq in 0..3 {
            surface.apply(&said(seq, Some(SurfaceOp::Append), None)).unwrap();
        }
        surface
    }

    #[test]
    fn a_replacement_takes_the_place_of_a_run() {
        for (start, end, expected) in [(0, 0, vec![3, 1, 2]), (1, 1, vec![0, 3, 2]), (1, 2, vec![0, 3]), (0, 2, vec![3])] {
            let mut surface = three();
            surface.apply(&said(3, Some(SurfaceOp::Replace { start, end }), Some((start..=end).collect()))).unwrap();
            assert_eq!(surface.nodes().iter().map(|node| node.seq).collect::<Vec<_>>(), expected);
            assert_eq!(surface.replacements(), 1);
        }
    }

    #[test]
    fn a_refused_event_changes_nothing() {
        let replace = |start, end| Some(SurfaceOp::Replace { start, end });
        for (op, sources) in [
            (None, None),
            (replace(1, 0), Some(vec![0, 1])),
            (replace(0, 7), Some(vec![0, 1, 2])),
            (replace(0, 1), Some(vec![0])),
            (replace(0, 1), None),
            (Some(SurfaceOp::Append), Some(vec![])),
            (Some(SurfaceOp::Append), Some(vec![1, 1])),
            (Some(SurfaceOp::Append), Some(vec![3])),
        ] {
            let mut surface = three();
            assert!(surface.apply(&said(3, op, sources.clone())).is_err(), "{op:?} {sources:?}");
            assert_eq!(surface, three());
        }
        let mut memo = Body::EndSeed {}.at(3, 0);
        memo.surface_op = Some(SurfaceOp::Append);
        assert!(three().apply(&memo).is_err());
    }
}
