//! Errors of `sqlx`.

use redrive::ErrorClass;
use sqlx::Error;

/// The rule for an [`Error`]: lost connections and an exhausted pool are transient, what the database says goes by its SQLSTATE, and
/// what does not fit the schema is permanent.
pub fn of_sqlx(error: &Error) -> Option<ErrorClass> {
    match error {
        Error::Io(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed => {
            Some(ErrorClass::Transient)
        }
        // SQLite has numbers of its own, and no SQLSTATE.
        Error::Database(error)
            if error.is_unique_violation()
                || error.is_foreign_key_violation()
                || error.is_check_violation() =>
        {
            Some(ErrorClass::Permanent)
        }
        Error::Database(error) => ErrorClass::of_sql_state(&error.code()?),
        Error::Configuration(_)
        | Error::RowNotFound
        | Error::TypeNotFound { .. }
        | Error::ColumnNotFound(_)
        | Error::ColumnIndexOutOfBounds { .. }
        | Error::ColumnDecode { .. }
        | Error::Encode(_)
        | Error::Decode(_) => Some(ErrorClass::Permanent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::{fmt, io};

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// What a driver makes of an answer of its database.
    #[derive(Debug)]
    struct Answer(&'static str);

    impl fmt::Display for Answer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Answer {}

    impl DatabaseError for Answer {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            // 2067: a unique constraint of SQLite.
            if self.0 == "2067" { ErrorKind::UniqueViolation } else { ErrorKind::Other }
        }
    }

    #[test]
    fn an_error_goes_by_its_variant_or_its_sql_state() {
        let said = |code| of_sqlx(&Error::Database(Box::new(Answer(code))));
        for transient in [said("40001"), said("40P01"), said("08006"), of_sqlx(&Error::PoolTimedOut)] {
            assert_eq!(transient, Some(ErrorClass::Transient));
        }
        let lost = Error::Io(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(of_sqlx(&lost), Some(ErrorClass::Transient));
        for permanent in [said("23505"), said("2067"), said("42P01"), of_sqlx(&Error::RowNotFound)] {
            assert_eq!(permanent, Some(ErrorClass::Permanent));
        }
        assert_eq!(said("5"), None, "SQLite is busy: transient by default");
    }
}
