//! What is written to the log of the program while a model is asked.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use greenroom::model::{Api, ModelEvent};
use serde_json::json;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{
    KEY, heard, hello, model,
    server::{Reply, Server},
    wire::{anthropic, openai},
};

/// Keeps all that is logged, at every level and by everybody.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{field}: {value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut self.clone());
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

#[tokio::test]
async fn the_key_is_logged_by_nobody_even_if_the_provider_repeats_it() {
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    tracing::info!("this is heard");
    let said = format!("no such key: {KEY}");
    let body = || json!({"error": {"type": "authentication_error", "message": said}});
    for api in Api::ALL {
        let within = match api {
            Api::Anthropic => anthropic("error", body()),
            Api::Ollama => format!("{}\n", json!({"error": said})),
            _ => format!("data: {}\n\n", body()),
        };
        let odd = match api {
            Api::Anthropic => anthropic(KEY, body()),
            _ => openai(json!({ KEY: KEY, "content": [KEY] }), None),
        };
        for reply in [Reply::error(401, body().to_string()), Reply::frames([within]), Reply::frames([odd]), Reply::page("text/html", KEY)] {
            let server = Server::start([reply]).await;
            let (events, failure) = heard(&model(api, &server), hello()).await;
            let failure = failure.unwrap();
            assert!(!format!("{failure} {failure:?} {:?}", greenroom::TurnError::from(failure.clone())).contains(KEY), "{api} {failure:?}");
            assert!(events.iter().all(|event| matches!(event, ModelEvent::Text(_))), "{events:?}");
        }
    }
    let log = log.0.lock().unwrap();
    assert!(log.contains("this is heard") && !log.contains(KEY), "{log}");
}
