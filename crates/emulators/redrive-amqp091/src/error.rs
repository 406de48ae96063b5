/// Why received bytes are not AMQP 0-9-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload ends within a field.
    #[error("the payload ends within a field")]
    Truncated,
    /// The payload goes on after its last field.
    #[error("{0} bytes follow the last field of the payload")]
    TrailingBytes(usize),
    /// The frame is longer than agreed.
    #[error("a frame with a payload of {size} bytes: at most {limit} were agreed")]
    FrameTooLarge {
        /// Length of the payload in bytes.
        size: usize,
        /// Maximum length of a payload in bytes.
        limit: usize,
    },
    /// No such type of frame.
    #[error("{0} is no type of frame")]
    UnknownFrame(u8),
    /// The byte after the payload is not 0xCE.
    #[error("the frame ends with {0:#04x} instead of 0xce")]
    FrameEnd(u8),
    /// No such method.
    #[error("there is no method {method} in class {class}")]
    UnknownMethod {
        /// Number of the class.
        class: u16,
        /// Number of the method.
        method: u16,
    },
    /// The header belongs to a class without content.
    #[error("class {0} has no content")]
    NoContent(u16),
    /// No such type of field.
    #[error("{0:#04x} is no type of field")]
    UnknownFieldType(u8),
    /// Tables and arrays are nested deeper than [`Table::MAX_DEPTH`](crate::Table::MAX_DEPTH).
    #[error("tables and arrays are nested too deep")]
    TooDeep,
}
