//! Idle live Activations: what each keeps in memory.

use std::sync::Arc;

use greenroom::{Runtime, TurnEnd};
use greenroom_session::{
    header::NewSession,
    id::SessionId,
    store::{Create, Op, Store, memory::MemoryStore},
};

use crate::{
    measure::{Outcome, resident_bytes, to_f64, two_workers},
    table::{Row, Target},
};

/// Brings up sessions that are in the store and have nothing to do, and keeps them.
pub(crate) fn idle(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let count = (10_000.0 * scale) as usize;
    two_workers()?.block_on(async move {
        let before = resident_bytes()?;
        let store = Arc::new(MemoryStore::new());
        let ids: Vec<SessionId> = (0..count).map(|_| SessionId::from_uuid(uuid::Uuid::new_v4())).collect();
        for id in &ids {
            for done in store.commit(&[Op::Create(Create::root(NewSession::root(id.clone()), "idle", "idle"))])? {
                done?;
            }
        }
        let runtime = Runtime::builder().closure("idle", |_| async { Ok(TurnEnd::Completed) }).start(store).await?;
        // One that is up already, so that what all of them share is there.
        let extra = runtime.root("idle", "first").await?;
        extra.quiescent().await?;
        let stored = resident_bytes()?;
        let mut handles = Vec::with_capacity(count);
        for id in &ids {
            handles.push(runtime.resume(id).await?);
        }
        extra.quiescent().await?;
        let live = resident_bytes()?;
        if runtime.host().live_count() != count + 1 {
            return Err("not all of them are live".into());
        }
        let each = (live - stored) / to_f64(count);
        let note = format!("{:.0} B of resident memory; its records in the store take {:.0} B more", each, (stored - before) / to_f64(count));
        drop(handles);
        drop(extra);
        runtime.shutdown().await;
        Ok(vec![Row {
            what: format!("memory of each of {count} idle live sessions"),
            ours: format!("{:.1} KB", each / 1024.0),
            floor: "0".into(),
            ratio: each / 1024.0,
            target: Target::Other("<= 10 KB", each <= 10.0 * 1024.0),
            note,
        }])
    })
}
