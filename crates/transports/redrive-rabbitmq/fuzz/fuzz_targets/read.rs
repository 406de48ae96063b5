//! Whatever a broker says: how it is cut changes nothing, and what is taken can be written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redrive_rabbitmq::replay_read(bytes));
