//! A repair of a store with an odd session in it: what it does, what it leaves, and that it touches nothing else.

use super::*;
use serde_json::Value;

/// What the command line says, and its exit.
fn run(world: &World, words: &[&str]) -> (Value, i32) {
    let said = Command::new(env!("CARGO_BIN_EXE_greenroom")).args(words).args(["--json", "--store", &world.url]).output().unwrap();
    (serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}")), said.status.code().unwrap())
}

fn actions(document: &Value) -> Vec<String> {
    let actions = document["repair"]["actions"].as_array().unwrap_or_else(|| panic!("{document}"));
    let word = |value: &Value| value.as_str().unwrap_or("the store").to_owned();
    let found = |action: &Value| action["found"].as_array().unwrap().iter().map(word).collect::<Vec<_>>().join(" ");
    actions.iter().map(|action| format!("{} {}: {}", word(&action["session"]), word(&action["action"]), found(action))).collect()
}

/// The lines of the healthy sessions, as they would be exported.
fn siblings(world: &World) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for sibling in ["desk", "above", "below"] {
        world
            .reader()
            .export(&id(sibling), &mut |line| {
                lines.push(line.to_vec());
                Ok(())
            })
            .unwrap();
    }
    lines
}

/// Repairs a store, twice, and says what was done and how it is afterwards.
pub(super) async fn mended(odd: &Odd, world: &World, said: &mut Said, wrong: &mut Vec<String>) {
    let mut must =
        |so: bool, what: &dyn Debug| wrong.extend((!so).then(|| format!("{} repaired in {}: {what:?}", odd.name, world.url.split(':').next().unwrap())));
    let (bytes, healthy, listed) = (world.bytes(), siblings(world), world.listed(true));
    let ids = |listed: &[String]| listed.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    let (plan, _) = run(world, &["check", "--repair"]);
    must(world.bytes() == bytes && plan["repair"]["backup"].is_null(), &"a dry run writes nothing");
    let planned = actions(&plan);
    said.put_all("repair", planned.iter().cloned());
    let (done, exit) = run(world, &["check", "--repair", "--apply"]);
    must(actions(&done) == planned, &("what is done is what was planned", &done));
    let left = planned.iter().all(|action| action.contains(" leave"));
    must(left == done["repair"]["backup"].is_null(), &("there is a backup if anything is done", &done));
    must(planned.iter().any(|action| action.contains(" leave")) == (exit == 7), &("nothing is left that is no word of warning", &done));
    must(siblings(world) == healthy, &"healthy sessions stay as they are");
    let (before, after) = (ids(&listed), ids(&world.listed(true)));
    // Whoever was listed nowhere may be a diagnostic now.
    must(before.iter().all(|id| after.contains(id)) && after.len() <= before.len() + 1, &("everybody is still listed", world.listed(true), listed));
    must(world.listed(false) == world.listed(true), &("the index says what the logs say", world.listed(false)));
    if world.is_folder() {
        let now = world.bytes();
        let moved: Vec<_> = bytes.iter().filter(|(name, then)| name.as_str() != ODD && now.get(*name) != Some(then)).map(|(name, _)| name).collect();
        must(moved.is_empty(), &("no other file is touched", moved));
        if let Some(backup) = done["repair"]["backup"].as_str() {
            let kept = below(Path::new(backup));
            must(kept.get(ODD).is_none_or(|kept| bytes.get(ODD) == Some(kept)) && !kept.is_empty(), &("the backup has it as it was", kept.keys()));
        }
    }
    let (again, _) = run(world, &["check", "--repair", "--apply"]);
    must(actions(&again).iter().all(|action| action.contains(" leave")), &("a repair is done once", &again));
    if planned.iter().any(|action| action.starts_with("odd quarantine")) {
        must(!before.contains(&"odd".to_owned()) || world.listed(false).contains(&"odd corrupt".to_owned()), &("it is a diagnostic", world.listed(false)));
        let (odd_end, sibling_end) = world.sent().await;
        must(odd_end == "NOT_RESUMABLE" || odd_end == "SESSION_CORRUPT", &("it takes no message", odd_end));
        must(sibling_end == "accepted, 4 turns, 0 messages wait", &("a sibling serves its messages", sibling_end));
        let (checked, exit) = run(world, &["check"]);
        must(exit == 0 && checked["findings"].as_array().unwrap().iter().any(|finding| finding["class"] == "quarantined"), &("it is known", &checked));
    }
}
