//! The messages are those of the compiler that this project is developed with; after a change of either, look at the new
//! ones and keep them with `TRYBUILD=overwrite cargo test -p redrive-compile-fail`.

#[test]
fn what_must_not_compile_does_not_and_says_why() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
