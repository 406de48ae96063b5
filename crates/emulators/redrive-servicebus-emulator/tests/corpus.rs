//! Nothing that a client sends may end the emulator: what SDKs said is replayed whole, cut off, and with bytes changed.

use std::fs;
use std::path::Path;

use redrive_servicebus_emulator::amqp::Message;
use redrive_servicebus_emulator::replay;

/// How often each file is changed. Each change is a replay.
const CHANGES: u64 = 60;

#[test]
fn what_sdks_said_is_taken_however_it_is_damaged() {
    for bytes in corpus("connection") {
        replay(&bytes);
        for nth in 0..CHANGES {
            replay(&damaged(&bytes, nth));
        }
    }
}

#[test]
fn a_damaged_message_is_read_or_refused() {
    for bytes in corpus("message") {
        for nth in 0..CHANGES * 20 {
            let _ = Message::decode(&damaged(&bytes, nth)).map(|message| (message.value(), message.data()));
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let corpus: Vec<_> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    corpus
}

/// The same on every run: one to four bytes changed, and every fourth time the end cut off.
fn damaged(bytes: &[u8], nth: u64) -> Vec<u8> {
    let mut random = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below.max(1) as u64).unwrap()
    };
    let mut bytes = bytes.to_vec();
    if nth.is_multiple_of(4) {
        bytes.truncate(next(bytes.len() + 1));
    }
    for _ in 0..=next(4) {
        if !bytes.is_empty() {
            let at = next(bytes.len());
            bytes[at] ^= 1 << next(8);
        }
    }
    bytes
}
