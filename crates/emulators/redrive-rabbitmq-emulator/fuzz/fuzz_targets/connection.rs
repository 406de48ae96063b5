//! Whatever a client says, from its first byte on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redrive_rabbitmq_emulator::replay(bytes));
