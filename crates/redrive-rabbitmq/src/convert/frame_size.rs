//! Checks which properties and headers fit into one frame. Pure.

use redrive_core::{Message, TransportError, TransportErrorKind};
use redrive_transport::header_size;

/// Returns the maximum size of a message's properties and headers; `None`: any size. They must fit into one frame, and the broker
/// adds to them later without a check.
pub(crate) fn max_header_bytes(frame_max: u32) -> Option<usize> {
    const ADDED_LATER: u32 = 16 * 1024;
    match frame_max {
        0 => None,
        small if small < 2 * ADDED_LATER => Some(small as usize / 2),
        usual => Some((usual - ADDED_LATER) as usize),
    }
}

/// Refuses headers that do not fit into a frame: the client library does not check, and the broker would close the connection.
pub(crate) fn check_header_size(message: &Message, frame_max: u32) -> Result<(), TransportError> {
    let (size, Some(most)) = (header_size(message), max_header_bytes(frame_max)) else {
        return Ok(());
    };
    if size <= most {
        return Ok(());
    }
    let message = format!("the headers take {size} bytes, and a frame of RabbitMQ has room for {most}");
    Err(TransportError::new(TransportErrorKind::TooLarge, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_the_broker_adds() {
        assert_eq!(max_header_bytes(131_072), Some(114_688));
        assert_eq!(max_header_bytes(8192), Some(4096));
        assert_eq!(max_header_bytes(0), None);
    }

    #[test]
    fn headers_that_fit_no_frame_are_refused() {
        let message = Message::new("x").with_header("large", "l".repeat(200_000));
        assert_eq!(check_header_size(&message, 131_072).unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert!(check_header_size(&Message::new("x"), 131_072).is_ok());
    }
}
