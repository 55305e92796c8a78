//! The pair of an epoch whose actor is ended from outside, and what was set up for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use greenroom_session::event::{EpochEnd, TurnEnd as Reason};

use super::{
    pairs::Pairs,
    support::{Barrier, Witness, on_paused_time, play, until},
};
use crate::{
    Config, Occurrence, TurnEnd,
    setup::{Installation, Setup, SetupError},
};

/// Counts its release.
struct Counted(Arc<AtomicUsize>);

impl Installation for Counted {
    fn release(&mut self) -> Result<(), SetupError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn an_epoch_whose_actor_is_killed_is_told_once_as_failed_and_so_is_its_generation() {
    let store = Witness::new();
    let root = store.root("root", "hung");
    let gate = Barrier::new();
    let released = Arc::new(AtomicUsize::new(0));
    let mut config = Config::default();
    let at = gate.clone();
    play(&mut config, "hung", move |turn| {
        let at = at.clone();
        async move {
            turn.say(format!("attempt {}", turn.attempt()))?;
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let (mut told, mut ends) = (host.subscribe(), host.subscribe());
        let count = released.clone();
        let _counted = host.register_setup(move |_: &Setup| Ok(Box::new(Counted(count.clone())) as Box<dyn Installation>));
        host.send(&root, "hang", None).await.unwrap();
        for epoch in 1..=2 {
            gate.reached().await;
            assert_eq!(released.load(Ordering::SeqCst), epoch - 1);
            match epoch {
                1 => host.services().live.get(&root).unwrap().cell().kill(),
                // With the registry everything ends that is linked to it, and a new generation begins.
                _ => host.services().registry.get_cell().kill(),
            }
            until(&mut ends, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
            assert_eq!(released.load(Ordering::SeqCst), epoch, "it is released before its end is told");
        }
        gate.reached().await;
        gate.open(1);
        until(&mut ends, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
        let mut pairs = Pairs::default();
        assert!(pairs.hear(&mut told));
        assert_eq!(pairs.wrong(), Vec::<String>::new());
        let failed = || Reason::error("ACTIVATION_FAILED", "its actor ended without order");
        let expected =
            [(1, EpochEnd::Failed, failed(), None), (2, EpochEnd::Failed, failed(), None), (3, EpochEnd::Settled, Reason::Completed, Some("attempt 3"))];
        assert_eq!(pairs.ends(&root), expected);
        system.shutdown().await;
    });
    assert_eq!(released.load(Ordering::SeqCst), 3);
    assert_eq!(store.judge_pairs(), Vec::<String>::new());
}

#[test]
fn an_occurrence_is_small() {
    // The ring of what was told is there from the start: what an occurrence takes, every runtime pays four thousand times.
    assert!(size_of::<Occurrence>() <= 128, "an occurrence takes {} bytes", size_of::<Occurrence>());
}
