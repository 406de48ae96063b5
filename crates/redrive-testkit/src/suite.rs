//! The list of clauses, once; the tests and [`CLAUSES`] are made from it.

/// Calls `$then` with its own arguments and the names of all clauses.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_clauses {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            complete_removes
            completing_one_leaves_the_others
            reschedule_comes_back
            reschedule_removes_the_original
            reschedule_is_never_early
            reschedule_by_zero_comes_back
            reschedule_keeps_the_whole_message
            a_shorter_wait_is_not_held_up_by_a_longer_one
            a_wait_longer_than_one_hop_is_never_cut_short
            what_waits_survives_its_transport
        }
    };
}

/// Makes a test of every clause, for one kind of broker.
///
/// `conformance!(name, harness)` makes a module of that name; `conformance!(harness)` puts the tests where it
/// stands. The harness is an expression; it is evaluated for every test. With `, paused` at the end the clauses
/// run on tokio's paused clock.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $harness:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__with_clauses! { __tests (($harness) Real) }
        }
    };
    ($name:ident, $harness:expr, paused) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__with_clauses! { __tests (($harness) Paused) }
        }
    };
    ($harness:expr) => {
        $crate::__with_clauses! { __tests (($harness) Real) }
    };
    ($harness:expr, paused) => {
        $crate::__with_clauses! { __tests (($harness) Paused) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    (($harness:tt $clock:ident) $($clause:ident)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::run(
                    stringify!($clause),
                    $harness,
                    $crate::Clock::$clock,
                    $crate::clauses::$clause,
                );
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    (() $($clause:ident)*) => {
        /// The names of all clauses, in the order of the suite. Each is a function in [`clauses`](crate::clauses),
        /// whose documentation is the clause's text.
        pub const CLAUSES: &[&str] = &[$(stringify!($clause)),*];
    };
}

crate::__with_clauses! { __names () }
