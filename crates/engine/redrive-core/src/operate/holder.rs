//! Who may hide entries of a shelf from a look.

use std::fmt;

/// A client that may hold entries of a shelf. On RabbitMQ a message that one client holds is seen by no other, so a look may be
/// incomplete, and what it does not find may still be on the shelf.
///
/// ```
/// use redrive_core::shelves::Holder;
///
/// let text = Holder::Consumers(2).to_string();
/// assert_eq!(text, "2 clients consume the shelf: messages that they hold are not seen");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// This many clients, which are not redrive's operators, consume the shelf.
    Consumers(u32),
    /// A run or another work in many steps has the [lease](super::Shelves::lease) of the shelf.
    Lease,
    /// The user of the connection may not know who holds entries.
    Unknown,
    /// Another look or action has not given the shelf back in time.
    Look,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumers(1) => {
                f.write_str("a client consumes the shelf: messages that it holds are not seen")
            }
            Self::Consumers(count) => {
                write!(f, "{count} clients consume the shelf: messages that they hold are not seen")
            }
            Self::Lease => f.write_str(
                "a run or an edit of redrive works on the shelf: messages that it holds are not seen",
            ),
            Self::Unknown => f.write_str(
                "the broker does not tell this user whether others hold messages of the shelf, which cannot be seen then: on RabbitMQ grant \
                 configure and read on `^redrive-(lease|look)\\.`",
            ),
            Self::Look => {
                f.write_str("another look or action of redrive has the shelf: messages that it holds are not seen")
            }
        }
    }
}
