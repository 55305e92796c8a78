//! What a client's sessions have left to do goes on when the agent starts again, whether the client asks for them or not.

use std::sync::Arc;

use greenroom_actors::{catalog::Entry, query::Page};
use tokio_util::sync::CancellationToken;

use super::{
    house::House,
    list::{folder_of, opened},
};

/// Roots that are listed at once.
const ROOTS: usize = 256;

/// Wakes what waits in the trees of the roots that a client has opened and this program plays. What another process runs is left alone.
pub(super) async fn recover(house: Arc<House>) {
    let mut page = Page { after: None, limit: Some(ROOTS) };
    loop {
        let listing = match house.host.list(None, page, false, CancellationToken::new()).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(code = error.code(), "what waits is not looked for: {error}");
                return;
            }
        };
        for entry in &listing.entries {
            let Entry::Root(listed) = entry else { continue };
            if listed.held || listed.agent != house.options.agent {
                continue;
            }
            let Some(opened) = opened(&house.host, &listed.id).await else { continue };
            // A root of another program may have an agent of the same name.
            if folder_of(&opened).is_none() || opened.program_sha256 != house.options.program_sha256 || opened.vars != house.options.vars {
                continue;
            }
            match house.host.recover(Some(&listed.id)).await {
                Ok(woken) if woken.is_empty() => {}
                Ok(woken) => tracing::info!(root = %listed.id, sessions = woken.len(), "what was left to do goes on"),
                Err(error) => tracing::warn!(root = %listed.id, code = error.code(), "what waits is not looked for: {error}"),
            }
        }
        match listing.next_cursor {
            Some(after) => page = Page { after: Some(after), limit: Some(ROOTS) },
            None => return,
        }
    }
}
