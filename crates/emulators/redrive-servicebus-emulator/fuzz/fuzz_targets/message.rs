//! Whatever a message consists of; and what can be read comes back the same.
#![no_main]

use redrive_servicebus_emulator::amqp::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        let written = message.to_bytes();
        // Compared as bytes: NaN is not equal to itself.
        let again = Message::decode(&written).expect("what we write can be read");
        assert_eq!(again.to_bytes(), written);
        let _ = (message.value(), message.data());
    }
});
