//! Whoever writes, and whatever the socket takes: no frame is cut, and each side keeps its order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| redrive_rabbitmq::replay_write(bytes));
