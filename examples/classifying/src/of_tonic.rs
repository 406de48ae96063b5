//! Errors of `tonic`.

use redrive::ErrorClass;
use tonic::Status;

/// The rule for a [`Status`]: by its code.
pub fn of_tonic(status: &Status) -> Option<ErrorClass> {
    ErrorClass::of_grpc_code(status.code().into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    #[test]
    fn a_status_goes_by_its_code() {
        let class = |code| of_tonic(&Status::new(code, "")).unwrap();
        for transient in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::Cancelled,
            Code::Unknown,
            Code::Internal,
        ] {
            assert_eq!(class(transient), ErrorClass::Transient, "{transient:?}");
        }
        assert_eq!(class(Code::ResourceExhausted), ErrorClass::Throttled(Duration::ZERO));
        for permanent in [
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::FailedPrecondition,
            Code::OutOfRange,
            Code::Unimplemented,
            Code::DataLoss,
            Code::Unauthenticated,
        ] {
            assert_eq!(class(permanent), ErrorClass::Permanent, "{permanent:?}");
        }
    }
}
