//! The reply codes of AMQP 0-9-1 that RabbitMQ uses.

/// The message was returned: nothing took it and it was `immediate`.
pub const NO_CONSUMERS: u16 = 313;
/// The message was returned: no queue is bound for it.
pub const NO_ROUTE: u16 = 312;
/// All is well.
pub const SUCCESS: u16 = 200;
/// The content is too large for the server (channel).
pub const CONTENT_TOO_LARGE: u16 = 311;
/// An operator closed the connection.
pub const CONNECTION_FORCED: u16 = 320;
/// There is no such virtual host.
pub const INVALID_PATH: u16 = 402;
/// Not permitted (channel; connection while it is opened).
pub const ACCESS_REFUSED: u16 = 403;
/// There is no such queue or exchange (channel).
pub const NOT_FOUND: u16 = 404;
/// Another connection has it exclusively (channel).
pub const RESOURCE_LOCKED: u16 = 405;
/// A condition does not hold (channel).
pub const PRECONDITION_FAILED: u16 = 406;
/// The bytes are no frame (connection).
pub const FRAME_ERROR: u16 = 501;
/// A frame's content cannot be decoded (connection).
pub const SYNTAX_ERROR: u16 = 502;
/// The method is not valid now (connection).
pub const COMMAND_INVALID: u16 = 503;
/// The channel is not open (connection).
pub const CHANNEL_ERROR: u16 = 504;
/// Another frame was expected (connection).
pub const UNEXPECTED_FRAME: u16 = 505;
/// Too many channels, or too little memory (connection).
pub const RESOURCE_ERROR: u16 = 506;
/// Not permitted by the server's settings (connection).
pub const NOT_ALLOWED: u16 = 530;
/// The server does not support it (connection).
pub const NOT_IMPLEMENTED: u16 = 540;
/// The server failed (connection).
pub const INTERNAL_ERROR: u16 = 541;
