//! The bodies of the fuzz targets over their corpus, without a fuzzer: what once was found stays mended. `fuzz/README.md` says how they are fuzzed.

#[path = "../../fuzz/src/bodies.rs"]
#[allow(unreachable_pub, reason = "it is public in the crate of the fuzz targets")]
mod bodies;
#[cfg(feature = "mcp")]
#[path = "../../fuzz/src/wire.rs"]
#[allow(unreachable_pub, reason = "it is public in the crate of the fuzz targets")]
mod wire;

use std::{fs, path::PathBuf};

fn replay(target: &str, body: fn(&[u8]), least: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let input = fs::read(entry.unwrap().path()).unwrap();
        body(&input);
        // Cut short, and with one byte another, it is as odd again.
        for at in [input.len() / 3, input.len() / 2, input.len().saturating_sub(2)] {
            body(&input[..at]);
            let mut other = input.clone();
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 0x11;
            }
            body(&other);
        }
        inputs += 1;
    }
    assert!(inputs >= least, "{inputs} inputs");
}

#[test]
fn every_file_of_the_corpus_is_read_whole_or_with_a_word() {
    replay("jsonl_reader", bodies::jsonl_reader, 50);
}

#[test]
fn every_record_of_the_corpus_is_written_as_it_was_read() {
    replay("event_codec", bodies::event_codec, 50);
}

#[test]
fn every_descriptor_of_the_corpus_says_the_same_once_more() {
    replay("descriptor", bodies::descriptor, 3);
}

#[test]
fn every_mistake_in_a_program_of_the_corpus_has_a_place() {
    replay("program_file", bodies::program_file, 20);
}

#[cfg(feature = "mcp")]
#[test]
fn every_client_of_the_corpus_gets_messages_only_and_one_for_each_line() {
    replay("wire", wire::wire, 40);
}

#[cfg(feature = "mcp")]
#[test]
fn every_client_of_the_corpus_has_each_request_answered_by_the_server() {
    replay("mcp", wire::mcp, 40);
}
