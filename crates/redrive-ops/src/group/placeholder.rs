//! The placeholders of a template. They contain no digits, and no form begins or ends within them.

pub(super) const NUMBER: &str = "<number>";
pub(super) const DURATION: &str = "<duration>";
pub(super) const TIME: &str = "<time>";
pub(super) const UUID: &str = "<uuid>";
pub(super) const HEX: &str = "<hex>";
pub(super) const ID: &str = "<id>";
pub(super) const IP: &str = "<ip>";
pub(super) const EMAIL: &str = "<email>";
pub(super) const QUERY: &str = "<query>";
pub(super) const QUOTED: &str = "<text>";
pub(super) const PLACEHOLDERS: [&str; 10] = [NUMBER, DURATION, TIME, UUID, HEX, ID, IP, EMAIL, QUERY, QUOTED];
