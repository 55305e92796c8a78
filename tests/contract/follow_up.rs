//! What is sent to a child: whom it reaches, what may keep it from being accepted, and that what was accepted is served.

use std::sync::Arc;

use greenroom::{Delegate, Occurrence, Runtime};
use greenroom_session::id::SessionId;
use tokio::sync::broadcast::Receiver;

use crate::{
    publish::{sound, until},
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    what_was_handed_over_is_served_though_nobody_waits_for_the_answer,
);

/// Waits until a turn of another session than this one has ended, and returns whose.
async fn served_but(occurrences: &mut Receiver<Occurrence>, not: &SessionId) {
    until(occurrences, |occurrence| {
        assert!(!matches!(occurrence, Occurrence::NotActivated { .. }), "{occurrence:?}");
        matches!(occurrence, Occurrence::TurnEnded { session, .. } if session != not)
    })
    .await;
}

async fn what_was_handed_over_is_served_though_nobody_waits_for_the_answer(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = Arc::new(world.runtime().await);
    let root = Arc::new(runtime.resume(&sid("r")).await.unwrap());
    world.root("lone");
    for what in ["a message of the host", "a follow-up", "a child"] {
        // Whoever is kept has looked into its inbox by then.
        root.quiescent().await.unwrap();
        world.watch.clear();
        let mut occurrences = runtime.subscribe();
        // Whichever write comes next.
        let pause = world.watch.pause("", Call::Commit, 1);
        let call = tokio::spawn({
            let (runtime, root) = (runtime.clone(), root.clone());
            async move {
                match what {
                    "a message of the host" => drop(runtime.host().send(&sid("lone"), what, None).await),
                    "a follow-up" => drop(root.agent().followup(&sid("c"), what).await),
                    _ => drop(root.agent().start_continuable(Delegate::new("worker", what, what)).await),
                }
            }
        });
        pause.reached().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        // Whoever was woken too early has looked by now, and has seen nothing.
        runtime.host().quiescent(&sid("r")).await.unwrap();
        pause.open();
        served_but(&mut occurrences, root.id()).await;
        root.quiescent().await.unwrap();
    }
    drop(root);
    Arc::into_inner(runtime).unwrap().shutdown().await;
    sound(world);
}

#[expect(dead_code, reason = "placeholder")]
fn unused(_: &Runtime) {}
