//! Sessions that are their own ancestors: they can be read, and nobody runs for ever because of them.

use greenroom_session::{
    header::NewSession,
    store::{Create, Op},
};

use crate::{
    author::descriptor,
    world::{World, sid},
};

crate::on_every_store!(async messages_to_a_cycle_of_parents_come_to_rest);

async fn messages_to_a_cycle_of_parents_come_to_rest(world: &World) {
    let cycles: [&[&str]; 3] = [&["own"], &["x", "y"], &["a", "b", "c"]];
    for cycle in cycles {
        for (at, id) in cycle.iter().enumerate() {
            let parent = cycle[(at + cycle.len() - 1) % cycle.len()];
            let session = NewSession::child(sid(id), sid(parent), u32::try_from(at).unwrap());
            world.one(Op::Create(Create::child(session, vec![], &descriptor(id), None, 1_000).unwrap())).unwrap();
        }
    }
    let runtime = world.runtime().await;
    let host = runtime.host();
    for id in cycles.concat() {
        host.send(&sid(id), "Go on.", None).await.unwrap();
    }
    for cycle in cycles {
        // One of each cycle is not brought up, and tells nobody that it has settled.
        let stuck = host.quiescent(&sid(cycle[0])).await.unwrap();
        assert_eq!(stuck.len(), 1, "{stuck:?} of {cycle:?}");
        for id in cycle {
            let turns = host.load(&sid(id)).await.unwrap().fold.head().turns;
            assert!((turns == 0) == (*id == stuck[0].as_str()) && turns <= 2, "{id} of {cycle:?} had {turns} turns");
        }
    }
    runtime.shutdown().await;
}
