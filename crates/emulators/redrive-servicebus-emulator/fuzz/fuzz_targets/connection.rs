//! Whatever a client says, from its first byte on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redrive_servicebus_emulator::replay(bytes));
