//! What fits a frame. Pure.

use redrive_core::{Message, TransportError, TransportErrorKind};

/// How many bytes properties and headers of a copy may take: they must fit one frame, and the broker adds to them
/// later, unchecked.
pub(crate) fn max_header_bytes(frame_max: u32) -> Option<usize> {
    const ADDED_LATER: u32 = 16 * 1024;
    match frame_max {
        0 => None,
        small if small < 2 * ADDED_LATER => Some(small as usize / 2),
        usual => Some((usual - ADDED_LATER) as usize),
    }
}

/// The client library does not look: a header that is too large would end the connection, and everything on it.
pub(super) fn check(message: &Message, frame_max: u32) -> Result<(), TransportError> {
    let (size, Some(most)) = (message.encoded_header_len(), max_header_bytes(frame_max)) else {
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
        assert_eq!(check(&message, 131_072).unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert!(check(&Message::new("x"), 131_072).is_ok());
    }
}
