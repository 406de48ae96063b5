//! Measures the properties and headers of a message.

use redrive_core::{Message, Properties};

/// Returns the maximum size in bytes of the properties and headers as a content header of AMQP 0-9-1 (section 4.2.6.1). Other
/// brokers' encodings are of similar size, so it can be passed to [`HeaderLimit::new`](redrive_core::transport::HeaderLimit::new).
#[must_use]
pub fn header_size(message: &Message) -> usize {
    properties_size(message.properties()) + message.headers().encoded_len()
}

fn properties_size(properties: &Properties) -> usize {
    // Class, weight, body size, flags; then the maximum of delivery mode, priority, timestamp and expiration.
    const FIXED: usize = 14 + 1 + 1 + 8 + 21;
    FIXED + properties.texts().filter_map(|(_, text)| text).map(|text| 1 + text.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_and_headers_count_with_their_lengths() {
        let empty = header_size(&Message::new("any body"));
        let named = header_size(&Message::new("").with_id("order-1").with_header("a", "bc"));
        assert_eq!(named - empty, (1 + 7) + (1 + 1) + (1 + 4 + 2));
    }
}
