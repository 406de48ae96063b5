//! Whatever frames and tables consist of; and what can be read comes back the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redrive_rabbitmq_emulator::replay_codec(bytes));
