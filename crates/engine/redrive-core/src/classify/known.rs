//! Classes of errors whose numbers or kinds have a known meaning. Uses the numbers, not the types of client libraries: those
//! libraries are large, and their versions change.

use std::io;
use std::time::Duration;

use super::ErrorClass;

impl ErrorClass {
    /// Returns the class of an `io::Error` by its kind, for [`ByType::classed`](super::ByType::classed). `None`: the kind has no
    /// class, and the cause decides.
    ///
    /// Transient: failed connections, timeouts, and resources that are exhausted now (storage, memory, a busy resource). Permanent:
    /// what does not exist, is not allowed or is not valid.
    ///
    /// ```
    /// use std::io;
    /// use redrive_core::{ByType, ErrorClass, ErrorClassifier};
    ///
    /// let by_type = ByType::new().classed(ErrorClass::of_io_error);
    /// assert_eq!(by_type.classify(&io::Error::from(io::ErrorKind::ConnectionRefused)), ErrorClass::Transient);
    /// assert_eq!(by_type.classify(&io::Error::from(io::ErrorKind::PermissionDenied)), ErrorClass::Permanent);
    /// ```
    #[must_use]
    pub fn of_io_error(error: &io::Error) -> Option<Self> {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::AddrInUse
            | Kind::AddrNotAvailable
            | Kind::BrokenPipe
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::Deadlock
            | Kind::ExecutableFileBusy
            | Kind::HostUnreachable
            | Kind::Interrupted
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::NotConnected
            | Kind::OutOfMemory
            | Kind::QuotaExceeded
            | Kind::ResourceBusy
            | Kind::StaleNetworkFileHandle
            | Kind::StorageFull
            | Kind::TimedOut
            | Kind::UnexpectedEof
            | Kind::WouldBlock
            | Kind::WriteZero => Some(Self::Transient),
            Kind::AlreadyExists
            | Kind::ArgumentListTooLong
            | Kind::CrossesDevices
            | Kind::DirectoryNotEmpty
            | Kind::FileTooLarge
            | Kind::InvalidData
            | Kind::InvalidFilename
            | Kind::InvalidInput
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::NotFound
            | Kind::NotSeekable
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::TooManyLinks
            | Kind::Unsupported => Some(Self::Permanent),
            // `Other`, and kinds that the standard library has no name for yet.
            _ => None,
        }
    }

    /// Returns the class of an HTTP status, given as a number: every client library has it. `None`: a status below 400 is no error.
    ///
    /// 408, 425 and 5xx except 501 and 505 are transient. 429 is throttled: the wait is the policy's, unless
    /// [`not_before`](Self::not_before) asks for a longer one. Every other 4xx is permanent.
    ///
    /// ```
    /// use redrive_core::{ErrorClass, secs};
    ///
    /// assert_eq!(ErrorClass::of_http_status(503), Some(ErrorClass::Transient));
    /// assert_eq!(ErrorClass::of_http_status(404), Some(ErrorClass::Permanent));
    ///
    /// // With `Retry-After: 30`.
    /// let class = ErrorClass::of_http_status(429).map(|class| class.not_before(secs(30)));
    /// assert_eq!(class, Some(ErrorClass::Throttled(secs(30))));
    /// ```
    #[must_use]
    pub fn of_http_status(status: u16) -> Option<Self> {
        match status {
            429 => Some(Self::Throttled(Duration::ZERO)),
            408 | 425 => Some(Self::Transient),
            501 | 505 => Some(Self::Permanent),
            400..500 => Some(Self::Permanent),
            500..600 => Some(Self::Transient),
            _ => None,
        }
    }

    /// Returns the class of a gRPC status code, as a number (`tonic::Code` converts into it). `None`: 0 is no error, and other numbers
    /// have no meaning.
    ///
    /// `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `ABORTED`, `CANCELLED`, `UNKNOWN` and `INTERNAL` are transient, `RESOURCE_EXHAUSTED` is
    /// throttled, every other code is permanent.
    ///
    /// ```
    /// use redrive_core::ErrorClass;
    ///
    /// const UNAVAILABLE: i32 = 14;
    /// assert_eq!(ErrorClass::of_grpc_code(UNAVAILABLE), Some(ErrorClass::Transient));
    /// ```
    #[must_use]
    pub fn of_grpc_code(code: i32) -> Option<Self> {
        const CANCELLED: i32 = 1;
        const UNKNOWN: i32 = 2;
        const DEADLINE_EXCEEDED: i32 = 4;
        const RESOURCE_EXHAUSTED: i32 = 8;
        const ABORTED: i32 = 10;
        const INTERNAL: i32 = 13;
        const UNAVAILABLE: i32 = 14;
        match code {
            CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | ABORTED | INTERNAL | UNAVAILABLE => {
                Some(Self::Transient)
            }
            RESOURCE_EXHAUSTED => Some(Self::Throttled(Duration::ZERO)),
            1..=16 => Some(Self::Permanent),
            _ => None,
        }
    }

    /// Returns the class of an SQLSTATE, the five characters with which PostgreSQL, MySQL and others report a failure. `None`: the
    /// text is no SQLSTATE, or its class is not known.
    ///
    /// Lost connections (class 08), transactions that were rolled back (40: serialization failures, deadlocks), missing resources (53),
    /// interventions (57), system errors (58), locks that are not available (55P03, 55006) and a standby (25006) are transient. Data
    /// (22), constraints (23), statements and rights (0A, 28, 3D, 3F, 42, 44, 54) are permanent.
    ///
    /// ```
    /// use redrive_core::ErrorClass;
    ///
    /// assert_eq!(ErrorClass::of_sql_state("40001"), Some(ErrorClass::Transient)); // serialization failure
    /// assert_eq!(ErrorClass::of_sql_state("23505"), Some(ErrorClass::Permanent)); // unique violation
    /// ```
    #[must_use]
    pub fn of_sql_state(state: &str) -> Option<Self> {
        if state.len() != 5 || !state.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()) {
            return None;
        }
        match (&state[..2], state) {
            // A rollback for a violated constraint; a database that was dropped.
            (_, "40002" | "57P04") => Some(Self::Permanent),
            ("08" | "40" | "53" | "57" | "58", _) | (_, "25006" | "25P03" | "55006" | "55P03") => {
                Some(Self::Transient)
            }
            ("0A" | "22" | "23" | "28" | "3D" | "3F" | "42" | "44" | "54", _) => Some(Self::Permanent),
            _ => None,
        }
    }

    /// Adds a minimum wait, for a `Retry-After` header. A permanent error stays permanent. Without a wait, the class does not change.
    ///
    /// ```
    /// use redrive_core::{ErrorClass, secs};
    ///
    /// assert_eq!(ErrorClass::Transient.not_before(secs(9)), ErrorClass::Throttled(secs(9)));
    /// assert_eq!(ErrorClass::Throttled(secs(20)).not_before(secs(9)), ErrorClass::Throttled(secs(20)));
    /// assert_eq!(ErrorClass::Permanent.not_before(secs(9)), ErrorClass::Permanent);
    /// assert_eq!(ErrorClass::Transient.not_before(None), ErrorClass::Transient);
    /// ```
    #[must_use]
    pub fn not_before(self, wait: impl Into<Option<Duration>>) -> Self {
        match (self, wait.into()) {
            (Self::Transient, Some(wait)) => Self::Throttled(wait),
            (Self::Throttled(before), Some(wait)) => Self::Throttled(before.max(wait)),
            (class, _) => class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByType, ErrorClassifier, Permanent};

    const TRANSIENT: Option<ErrorClass> = Some(ErrorClass::Transient);
    const PERMANENT: Option<ErrorClass> = Some(ErrorClass::Permanent);
    const THROTTLED: Option<ErrorClass> = Some(ErrorClass::Throttled(Duration::ZERO));

    #[test]
    fn an_io_error_without_a_class_is_decided_by_its_cause() {
        let by_type = ByType::new().classed(ErrorClass::of_io_error).permanent::<std::fmt::Error>();
        assert_eq!(by_type.classify(&io::Error::other(std::fmt::Error)), ErrorClass::Permanent);
        let timed_out = io::Error::new(io::ErrorKind::TimedOut, std::fmt::Error);
        assert_eq!(by_type.classify(&timed_out), ErrorClass::Transient);
        let marked = io::Error::new(io::ErrorKind::TimedOut, Permanent::new("too late"));
        assert_eq!(by_type.classify(&marked), ErrorClass::Permanent, "a marker wins");
        assert_eq!(ErrorClass::of_io_error(&io::Error::from(io::ErrorKind::NotFound)), PERMANENT);
    }

    #[test]
    fn a_status_is_worth_a_retry_or_not() {
        for (statuses, class) in [
            (&[500, 502, 503, 504, 507, 408, 425][..], TRANSIENT),
            (&[400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 501, 505], PERMANENT),
            (&[429], THROTTLED),
            (&[0, 100, 200, 304, 399, 600], None),
        ] {
            for &status in statuses {
                assert_eq!(ErrorClass::of_http_status(status), class, "{status}");
            }
        }
    }

    #[test]
    fn a_grpc_code_is_worth_a_retry_or_not() {
        for (codes, class) in [
            (&[1, 2, 4, 10, 13, 14][..], TRANSIENT),
            (&[3, 5, 6, 7, 9, 11, 12, 15, 16], PERMANENT),
            (&[8], THROTTLED),
            (&[-1, 0, 17], None),
        ] {
            for &code in codes {
                assert_eq!(ErrorClass::of_grpc_code(code), class, "{code}");
            }
        }
    }

    #[test]
    fn a_state_of_sql_is_worth_a_retry_or_not() {
        for (states, class) in [
            (
                &["08006", "25006", "40001", "40P01", "53300", "55P03", "57014", "57P01", "58030"][..],
                TRANSIENT,
            ),
            (&["22001", "23503", "23505", "28P01", "3D000", "40002", "42P01", "57P04"], PERMANENT),
            (&["", "00000", "HY000", "2067", "XX000", "4000é", "40p01x"], None),
        ] {
            for state in states {
                assert_eq!(ErrorClass::of_sql_state(state), class, "{state}");
            }
        }
    }
}
