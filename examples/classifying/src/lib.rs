//! Rules for errors of client libraries, one file each, to copy: redrive does not depend on these libraries, which are large and
//! change their versions on their own.

mod of_reqwest;
mod of_sqlx;
mod of_tonic;

pub use of_reqwest::{of_reqwest, or_retry_after};
pub use of_sqlx::of_sqlx;
pub use of_tonic::of_tonic;

use redrive::{ByType, ErrorClass};

/// All of them. The outermost error in the chain of causes that has a rule decides: `reqwest` before the `io::Error` in it.
pub fn classifier() -> ByType {
    ByType::new().classed(of_reqwest).classed(of_sqlx).classed(of_tonic).classed(ErrorClass::of_io_error)
}

#[cfg(test)]
mod tests {
    use std::io;

    use redrive::ErrorClassifier;

    use super::*;

    #[test]
    fn the_outermost_error_with_a_rule_decides() {
        let classifier = classifier();
        assert_eq!(classifier.classify(&io::Error::from(io::ErrorKind::NotFound)), ErrorClass::Permanent);
        let lost = sqlx::Error::Io(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(classifier.classify(&lost), ErrorClass::Transient, "the database's socket is gone");
        let status = io::Error::other(tonic::Status::invalid_argument("no such item"));
        assert_eq!(classifier.classify(&status), ErrorClass::Permanent);
    }
}
