//! One answer of a model, as it comes.

use futures::StreamExt as _;
use greenroom_actors::{Turn, occurrence::Chunk, turn::Spoken};
use greenroom_session::{
    compact::COMPACT_SOURCE,
    descriptor::ModelRoute,
    message::{Block, Source},
};
use serde_json::json;

use super::Price;
use crate::model::{Model, ModelError, ModelErrorCode, ModelEvent, ModelRequest, Stop, Usage};

/// Why an answer ended that was broken off: in the log beside what had come of it.
pub(super) const CUT: &str = "cut";

/// What a model has said, thought and asked for, in order.
#[derive(Debug, Default)]
pub(super) struct Answer {
    content: Vec<Block>,
    /// Absent if it was broken off.
    pub(super) stop: Option<Stop>,
    pub(super) usage: Usage,
}

/// A tool call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// The turn was cancelled; this had come by then.
    Cancelled(Answer),
    /// The model failed. What had come by then is nobody's business.
    Failed(ModelError),
}

/// Who hears an answer as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Whoever has subscribed.
    ByAll,
    /// Nobody: it is the agent's own affair.
    ByNone,
}

/// Asks a model and takes its answer in.
pub(super) async fn stream(model: &dyn Model, turn: &Turn, request: ModelRequest, heard: Heard) -> Result<Answer, Broken> {
    let mut answer = Answer::default();
    let cancelled = turn.cancelled();
    let mut events = tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Broken::Cancelled(answer)),
        events = model.answer(request) => events.map_err(Broken::Failed)?,
    };
    loop {
        let event = tokio::select! {
            biased;
            () = cancelled.cancelled() => return Err(Broken::Cancelled(answer.without_calls())),
            event = events.next() => event,
        };
        match event {
            Some(Ok(ModelEvent::End { stop, usage })) => return answer.ended(turn, stop, usage).map_err(Broken::Failed),
            Some(Ok(event)) => answer.take((heard == Heard::ByAll).then_some(turn), event),
            Some(Err(error)) => return Err(Broken::Failed(error)),
            None => return Err(Broken::Failed(ModelError::new(ModelErrorCode::Transport, "the answer broke off before its end"))),
        }
    }
}

impl Answer {
    fn take(&mut self, turn: Option<&Turn>, event: ModelEvent) {
        let tell = |chunk| turn.into_iter().for_each(|turn| turn.chunk(Chunk::clone(&chunk)));
        match event {
            ModelEvent::Text(more) => {
                tell(Chunk::Text(more.as_str().into()));
                match self.content.last_mut() {
                    Some(Block::Text { text }) => text.push_str(&more),
                    _ => self.content.push(Block::text(more)),
                }
            }
            ModelEvent::Reasoning { text: more, signature } => {
                if !more.is_empty() {
                    tell(Chunk::Reasoning(more.as_str().into()));
                }
                match self.content.last_mut() {
                    // What has its signature is whole.
                    Some(Block::Reasoning { text, signature: known @ None }) => {
                        text.push_str(&more);
                        *known = signature;
                    }
                    _ => self.content.push(Block::Reasoning { text: more, signature }),
                }
            }
            ModelEvent::ToolCall { id, name, arguments } => self.content.push(Block::ToolCall { id, name, arguments }),
            ModelEvent::End { .. } => {}
        }
    }

    fn ended(mut self, turn: &Turn, stop: Stop, usage: Usage) -> Result<Self, ModelError> {
        // A call that the end of the answer cut short is not what the model meant.
        if stop == Stop::MaxTokens {
            self = self.without_calls();
        }
        self.content.retain(|block| !matches!(block, Block::Text { text } if text.is_empty()));
        let says = self.content.iter().any(|block| !matches!(block, Block::Reasoning { .. }));
        if !says && stop == Stop::End {
            return Err(ModelError::new(ModelErrorCode::EmptyResponse, "the model said nothing"));
        }
        self.name_calls(turn);
        self.stop = Some(stop);
        self.usage = usage;
        Ok(self)
    }

    /// Makes the ids of the calls those of no other call of the session: some models count theirs anew with every answer, and what a call does to others is named by its id.
    fn name_calls(&mut self, turn: &Turn) {
        let surface = turn.surface();
        let mut taken: std::collections::HashSet<String> = std::collections::HashSet::new();
        for (_, message) in &surface {
            taken.extend(message.content.iter().filter_map(|block| if let Block::ToolCall { id, .. } = block { Some(id.clone()) } else { None }));
        }
        // Behind a summary nobody sees which ids were taken. What the agent sees last is another for each answer.
        let hides = surface.iter().any(|(_, message)| matches!(&message.source, Source::Plugin { name } if name == COMPACT_SOURCE));
        let last = hides.then(|| surface.iter().map(|(seq, _)| *seq).max()).flatten();
        let mut number = 0;
        for block in &mut self.content {
            let Block::ToolCall { id, .. } = block else { continue };
            let mut own = if id.is_empty() { "call".to_owned() } else { std::mem::take(id) };
            if let Some(last) = last {
                own = format!("{own}-{last}");
            }
            let mut name = own.clone();
            while taken.contains(&name) {
                number += 1;
                name = format!("{own}-{}.{number}", turn.number());
            }
            taken.insert(name.clone());
            *id = name;
        }
    }

    fn without_calls(mut self) -> Self {
        self.content.retain(|block| !matches!(block, Block::ToolCall { .. }));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Returns what it asks for, in its order.
    pub(super) fn calls(&self) -> Vec<Asked> {
        let asked = |block: &Block| match block {
            Block::ToolCall { id, name, arguments } => Some(Asked { id: id.clone(), name: name.clone(), arguments: arguments.clone() }),
            _ => None,
        };
        self.content.iter().filter_map(asked).collect()
    }

    /// Returns its text alone.
    pub(super) fn text(&self) -> String {
        greenroom_session::message::text_of(&self.content)
    }

    /// Returns how large it is, in bytes of text.
    pub(super) fn bytes(&self) -> u64 {
        self.content.iter().map(|block| block.len() as u64).sum()
    }

    /// Makes of it what stands in the log.
    pub(super) fn spoken(self, route: &ModelRoute, price: Option<Price>) -> Spoken {
        let provider = route.provider.clone().unwrap_or_default();
        let stop = self.stop.as_ref().map_or(CUT, Stop::as_str).to_owned();
        let mut spoken = Spoken::new(provider, route.name.clone(), self.content).stop(stop);
        if self.stop.is_some() {
            let mut usage = json!(self.usage);
            if let (Some(price), Some(fields)) = (price, usage.as_object_mut()) {
                fields.insert("nanodollars".into(), price.nanodollars(&self.usage).into());
            }
            spoken = spoken.usage(usage);
        }
        spoken
    }
}
