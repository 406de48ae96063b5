//! Checks which properties and headers fit into one frame. Pure.

use super::Form;
use redrive_core::{Message, TransportError, TransportErrorKind};
use redrive_transport::header_size;

/// What the broker may add to the headers of a message that goes on from its queue.
const ADDED_LATER: u32 = 16 * 1024;
/// What it may add to those of a message that stays there: its counts.
const ADDED_ON_A_SHELF: u32 = 512;

/// Returns the maximum size of a message's properties and headers; `None`: any size. They must fit into one frame, and the broker
/// adds to them later without a check.
pub(crate) fn max_header_bytes(frame_max: u32) -> Option<usize> {
    match frame_max {
        0 => None,
        small if small < 2 * ADDED_LATER => Some(small as usize / 2),
        usual => Some((usual - ADDED_LATER) as usize),
    }
}

/// Refuses headers that do not fit into a frame: the client library does not check, and the broker would close the connection.
pub(crate) fn check_header_size(message: &Message, frame_max: u32, form: Form) -> Result<(), TransportError> {
    let stays = form == Form::Shelved;
    let usual = max_header_bytes(frame_max);
    // What arrived whole can be stored as it is.
    let most =
        usual.map(|usual| if stays { frame_max.saturating_sub(ADDED_ON_A_SHELF) as usize } else { usual });
    let (size, Some(most)) = (header_size(message), most) else {
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
        let refused = |bytes, form| {
            let message = Message::new("x").with_header("large", "l".repeat(bytes));
            check_header_size(&message, 131_072, form).err().map(|refused| refused.kind())
        };
        for (bytes, waits, stays) in [(0, true, true), (120_000, false, true), (131_000, false, false)] {
            let expected = |fits| if fits { None } else { Some(TransportErrorKind::TooLarge) };
            assert_eq!(refused(bytes, Form::Copy), expected(waits), "{bytes}");
            assert_eq!(refused(bytes, Form::Shelved), expected(stays), "{bytes}");
        }
    }
}
