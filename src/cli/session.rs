//! Which session is meant: a whole id, or the beginning of one.

use greenroom::session::{
    id::SessionId,
    store::{LoadError, Reader},
};
use serde_json::json;

use super::failure::Failure;

/// Fewest characters of an id that stand for it.
const SHORTEST_PREFIX: usize = 4;
/// Most candidates that an ambiguous prefix lists.
const MAX_CANDIDATES: usize = 10;

/// Finds the session that a user means by a whole id or by a unique beginning of four characters or more. A whole id goes first, also
/// where it begins another one.
pub(crate) fn resolve(reader: &mut dyn Reader, text: &str) -> Result<SessionId, Failure> {
    let id = SessionId::new(text)?;
    match reader.header(&id) {
        // A damaged header belongs to a session nevertheless.
        Ok(Some(_)) | Err(LoadError::Corrupt { .. } | LoadError::Fold { .. }) => return Ok(id),
        Ok(None) if reader.is_removed(&id)? => return Err(LoadError::Removed(id).into()),
        Ok(None) | Err(LoadError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let missing = || Failure::new("SESSION_NOT_FOUND", format!("there is no session {text:?}"));
    if text.chars().count() < SHORTEST_PREFIX {
        return Err(missing().help(format!("give the whole id or its first {SHORTEST_PREFIX} characters; `greenroom list` shows the roots")));
    }
    let mut found = reader.find(text, MAX_CANDIDATES + 1)?;
    match found.len() {
        0 => Err(missing()),
        1 => found.pop().ok_or_else(missing),
        n => {
            let more = n > MAX_CANDIDATES;
            found.truncate(MAX_CANDIDATES);
            let candidates: Vec<String> = found.iter().map(ToString::to_string).collect();
            let mut message = format!("{text:?} begins the ids of several sessions:");
            for candidate in &candidates {
                message.push_str("\n  ");
                message.push_str(candidate);
            }
            if more {
                message.push_str("\n  and more");
            }
            Err(Failure::new("AMBIGUOUS_ID", message).fact("candidates", json!(candidates)))
        }
    }
}

#[cfg(test)]
mod tests {
    use greenroom::session::{
        header::NewSession,
        store::{Create, Op, Store, memory::MemoryStore},
    };

    use super::*;

    #[test]
    fn a_unique_beginning_will_do() {
        let store = MemoryStore::new();
        for id in ["abcd", "abcdef", "abcxyz", "wxyz1"] {
            let create = Create::root(NewSession::root(SessionId::new(id).unwrap()), "a", "l");
            assert!(store.commit(&[Op::Create(create)]).unwrap().iter().all(Result::is_ok));
        }
        let mut reader = store.reader().unwrap();
        let mut find = |text: &str| resolve(&mut *reader, text).map(|id| id.to_string());
        assert_eq!(find("wxyz"), Ok("wxyz1".to_owned()));
        assert_eq!(find("abcd"), Ok("abcd".to_owned()), "a whole id goes first");
        assert_eq!(find("abcde"), Ok("abcdef".to_owned()));
        assert!(find("wxy").is_err(), "too short");
        assert!(find("nobody").is_err());
        for id in 0..20 {
            let create = Create::root(NewSession::root(SessionId::new(format!("many{id:02}")).unwrap()), "a", "l");
            store.commit(&[Op::Create(create)]).unwrap();
        }
        let mut reader = store.reader().unwrap();
        let failure = resolve(&mut *reader, "many").unwrap_err();
        assert!(format!("{failure:?}").contains("many09\\n  and more"), "{failure:?}");
    }
}
