//! Deaths of the runtime's own actors while a thousand messages are under way: whoever was told that a message was accepted finds it, once, and nothing is left over.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use greenroom::{
    Host, Runtime, RuntimeBuilder, SessionId, Turn, TurnEnd,
    actors::chaos::{Generation, Residency, Victim, kill},
};
use greenroom_session::{
    event::{Body, EpochEnd},
    id::MessageId,
};

use crate::{
    publish::sound,
    world::{World, mid, sid},
};

crate::on_every_store!(async
    whichever_actor_dies_under_a_thousand_sends_whoever_has_an_id_is_served_once,
    whoever_is_live_dies_alone_and_what_was_accepted_is_served_once,
);

const SENDERS: usize = 8;
const EACH: usize = 125;
const RECEIVERS: [&str; 4] = ["a", "b", "c", "r"];

fn clerks() -> RuntimeBuilder {
    let clerk = |turn: Turn| async move {
        turn.step().await?;
        if turn.parent().is_some() {
            turn.report("done", true).await?;
        }
        Ok(TurnEnd::Completed)
    };
    Runtime::builder()
        .closure("worker", clerk)
        .closure("editor", clerk)
        .closure("reporter", clerk)
        .max_live(3)
        .max_starting(2)
        .interrupt_grace(Duration::from_millis(5))
}

/// Sends under ids of its own, and returns those that were accepted.
async fn send_all(host: &Host, sender: usize) -> Vec<(SessionId, MessageId)> {
    let mut accepted = Vec::new();
    for number in 0..EACH {
        let to = sid(RECEIVERS[(sender + number) % RECEIVERS.len()]);
        let id = mid(&format!("s{sender}-{number}"));
        // Whoever is not told tries again under the same id, a few times.
        for _ in 0..6 {
            match host.send(&to, "work", Some(id.clone())).await {
                Ok(_) => {
                    accepted.push((to.clone(), id.clone()));
                    break;
                }
                Err(error) => assert!(["INDETERMINATE", "BUSY", "NOT_DELIVERED"].contains(&error.code()), "{error}"),
            }
        }
        tokio::task::yield_now().await;
    }
    accepted
}

/// How often each message came to its end, by the logs alone.
fn served(world: &World) -> BTreeMap<(SessionId, MessageId), usize> {
    let mut served = BTreeMap::new();
    for receiver in RECEIVERS {
        let mut open = BTreeMap::new();
        for event in world.reader().load(&sid(receiver)).unwrap().events {
            match event.body {
                Body::TurnStart { turn, message, .. } => drop(open.insert(turn, message)),
                Body::TurnEnd { turn, reason } if reason.is_final() => *served.entry((sid(receiver), open[&turn].clone())).or_default() += 1,
                _ => {}
            }
        }
    }
    served
}

/// Kills the first of these that runs. A session is not live at every moment.
async fn kill_one(host: &Host, victims: &[Victim]) -> bool {
    for _ in 0..3_000 {
        if victims.iter().any(|victim| kill(host, victim)) {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn whichever_actor_dies_under_a_thousand_sends_whoever_has_an_id_is_served_once(world: &World) {
    world.root("r");
    for child in ["a", "b", "c"] {
        world.child(child, "r");
    }
    let runtime = world.start(clerks()).await;
    let host = runtime.host();
    let senders = join_all((0..SENDERS).map(|sender| send_all(&host, sender)));
    let deaths = async {
        // The last is whoever is live.
        let sessions = RECEIVERS.map(|id| Victim::Activation(sid(id)));
        let victims = [&[Victim::Registry][..], &[Victim::Journal], &[Victim::Query], &[Victim::Catalog], &sessions];
        let mut killed = [0; 5];
        let mut generations = vec![Generation::of(&host)];
        for round in 0..60 {
            // Wherever the others are by then.
            for _ in 0..7 * round % 40 + 3 {
                tokio::task::yield_now().await;
            }
            let last = Generation::of(&host);
            let victim = round % victims.len();
            killed[victim] += usize::from(kill_one(&host, victims[victim]).await);
            // Every other time the next death may come before this one has had its effect. It must have one: each of these takes its generation along.
            if round % 2 == 0 && victim < 4 {
                let mut looks = 0;
                while Generation::of(&host).is(&last) {
                    looks += 1;
                    assert!(looks < 200_000, "{:?} was killed, and nothing came of it", victims[victim]);
                    tokio::task::yield_now().await;
                }
            }
            let newest = Generation::of(&host);
            if !generations.iter().any(|generation| generation.is(&newest)) {
                generations.push(newest);
            }
        }
        (killed, generations)
    };
    let (accepted, (killed, mut generations)) = tokio::join!(senders, deaths);
    assert!(killed.iter().all(|times| *times > 0), "not everybody was killed: {killed:?}");
    assert!(generations.len() > 5, "{} generations", generations.len());
    let accepted: Vec<_> = accepted.into_iter().flatten().collect();
    assert!(accepted.len() > SENDERS * EACH / 2, "{} of a thousand were accepted", accepted.len());
    runtime.recover(None).await.unwrap();
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    let served = served(world);
    for message in &accepted {
        assert_eq!(served.get(message), Some(&1), "{message:?}");
    }
    assert!(served.values().all(|times| *times == 1), "whoever was told nothing is served once at most");
    host.when_idle(&sid("r")).await.unwrap();
    // Nothing is left over, in this generation or in any before it: the table of those that are live died with its registry.
    let newest = Generation::of(&host);
    generations.push(newest.clone());
    for (number, generation) in generations.iter().enumerate() {
        let live = if generation.is(&newest) { 0 } else { generation.residency().live };
        let rest = Residency { live, turn_slots: 3, start_permits: 2 };
        let mut looks = 0;
        while generation.residency() != rest {
            looks += 1;
            assert!(looks < 10_000, "generation {number}: {:?}", generation.residency());
            tokio::task::yield_now().await;
        }
    }
    runtime.shutdown().await;
    sound(world);
}

/// How many epochs of these sessions were lost.
fn lost(world: &World) -> usize {
    let is_lost = |event: &greenroom_session::event::Event| matches!(event.body, Body::ActivationEnd { reason: EpochEnd::Lost, .. });
    RECEIVERS.iter().map(|id| world.reader().load(&sid(id)).unwrap().events.iter().filter(|event| is_lost(event)).count()).sum()
}

async fn whoever_is_live_dies_alone_and_what_was_accepted_is_served_once(world: &World) {
    world.root("r");
    for child in ["a", "b", "c"] {
        world.child(child, "r");
    }
    let runtime = world.start(clerks()).await;
    let host = runtime.host();
    let first = Generation::of(&host);
    let senders = join_all((0..SENDERS).map(|sender| send_all(&host, sender)));
    let deaths = async {
        let mut killed = 0;
        for round in 0..40 {
            for _ in 0..11 * round % 37 + 3 {
                tokio::task::yield_now().await;
            }
            killed += usize::from(kill_one(&host, &[Victim::Activation(sid(RECEIVERS[round % RECEIVERS.len()]))]).await);
        }
        killed
    };
    let (accepted, killed) = tokio::join!(senders, deaths);
    let accepted: Vec<_> = accepted.into_iter().flatten().collect();
    assert_eq!(accepted.len(), SENDERS * EACH, "nobody who sends depends on whoever serves");
    runtime.recover(None).await.unwrap();
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    assert!(Generation::of(&host).is(&first), "a session that dies takes nobody along");
    let (lost, served) = (lost(world), served(world));
    assert!(killed > 10 && lost > killed / 2, "{killed} were killed, and {lost} epochs were lost");
    for message in &accepted {
        assert_eq!(served.get(message), Some(&1), "{message:?}");
    }
    host.when_idle(&sid("r")).await.unwrap();
    let rest = Residency { live: 0, turn_slots: 3, start_permits: 2 };
    let mut looks = 0;
    while first.residency() != rest {
        looks += 1;
        assert!(looks < 10_000, "{:?}", first.residency());
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await;
    sound(world);
}
