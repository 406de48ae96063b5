//! The samples are real output of cargo 1.95, shortened.

use super::*;

fn tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    output.lines().for_each(|line| tally.read(line));
    tally
}

const MIXED: &str = "\
   Compiling redrive-brokers v0.1.0 (/src/tests/brokers)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 1.10s
     Running unittests src/lib.rs (target/debug/deps/redrive_brokers-80b5dcf21f8b5a3d)

running 2 tests
test chroot::tests::the_candidate_is_read_from_apt_cache_policy ... ok
test version::tests::a_version_covers_its_own_releases_only ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/node.rs (target/debug/deps/node-6f0e4b1f4a4bd1ae)

running 5 tests
test v3_10::extra_configuration_is_used ... ok
test v4_3::a_node_does_not_outlive_a_killed_test ... ok
test v3_10::data_survives_sigkill_and_an_orderly_stop ... FAILED
test v4_3::slow ... ignored, takes 180 s
test v4_3::extra_configuration_is_used ... ok

failures:

---- v3_10::data_survives_sigkill_and_an_orderly_stop stdout ----

thread 'v3_10::data_survives_sigkill_and_an_orderly_stop' (11642) panicked at tests/brokers/tests/node.rs:37:5:
a killed node still listens
stack backtrace:
   0: rust_begin_unwind
test v3_10::printed_by_the_failed_test ... ok


failures:
    v3_10::data_survives_sigkill_and_an_orderly_stop

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 2 filtered out; finished in 14.15s

error: test failed, to rerun pass `-p redrive-brokers --test node`
   Doc-tests redrive_brokers

running 2 tests
test tests/brokers/src/lib.rs - one (line 3) ... ok
test tests/brokers/src/lib.rs - two (line 9) - compile ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.21s

running 1 test
test tests/brokers/src/lib.rs - three (line 15) - compile fail ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s

all doctests ran in 0.53s; merged doctests compilation took 0.30s
error: 1 target failed:
    `-p redrive-brokers --test node`
";

#[test]
fn binaries_totals_names_and_versions_are_read() {
    let tally = tally(MIXED);
    assert_eq!(tally.total(), Counts { passed: 8, failed: 1, ignored: 1, filtered: 2 });
    assert_eq!(tally.failed, ["tests/node.rs: v3_10::data_survives_sigkill_and_an_orderly_stop"]);
    let panic = "thread 'v3_10::data_survives_sigkill_and_an_orderly_stop' (11642) panicked at tests/brokers/tests/node.rs:37:5:";
    assert_eq!(tally.panics, [panic, "a killed node still listens"]);
    assert_eq!(tally.ignored, ["tests/node.rs: v4_3::slow: takes 180 s"]);
    assert_eq!(tally.ran_on, BTreeMap::from([(Version::V3_10, 2), (Version::V4_3, 2)]));
    let names: Vec<_> = tally.binaries.iter().map(|binary| binary.name.as_str()).collect();
    assert_eq!(names, ["unittests src/lib.rs", "tests/node.rs", "doc tests of redrive_brokers"]);
    assert_eq!(tally.binaries[2].counts.unwrap().passed, 3);
    assert_eq!((tally.unnamed, tally.crashed().len()), (0, 0));
}

#[test]
fn a_binary_without_a_summary_has_crashed() {
    let tally = tally(
        "     Running tests/abort.rs (target/debug/deps/abort-6f0e4b1f4a4bd1ae)

running 2 tests
test fine ... ok
error: test failed, to rerun pass `-p redrive-core --test abort`

Caused by:
  process didn't exit successfully: `/src/target/debug/deps/abort-6f0e4b1f4a4bd1ae` (signal: 6, SIGABRT)
     Running tests/next.rs (target/debug/deps/next-1f0e4b1f4a4bd1ae)

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
    );
    assert_eq!(tally.crashed(), ["tests/abort.rs"]);
}

#[test]
fn a_torn_line_is_put_together_and_what_cannot_be_is_counted() {
    let tally = tally(
        "     Running tests/torn.rs (target/debug/deps/torn-6f0e4b1f4a4bd1ae)
running 3 tests
test v4_3::prints ... a line of a child process
another
ok
test v4_3::panics - should panic ... ok
half a line test v4_3::lost ... ok

test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
    );
    assert_eq!(tally.total().passed, 3);
    assert_eq!(tally.ran_on[&Version::V4_3], 2);
    assert_eq!(tally.unnamed, 1);
}

#[test]
fn colours_are_looked_through() {
    let tally = tally(
        "\u{1b}[1m\u{1b}[92m     Running\u{1b}[0m tests/node.rs (target/debug/deps/node-6f0e4b1f4a4bd1ae)
test v3_10::one ... \u{1b}[32mok\u{1b}(B\u{1b}[m
test v3_10::two ... \u{1b}[31mFAILED\u{1b}[m
test result: \u{1b}[31mFAILED\u{1b}[m. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
    );
    assert_eq!(tally.binaries[0].name, "tests/node.rs");
    assert_eq!(tally.total(), Counts { passed: 1, failed: 1, ..Counts::default() });
    assert_eq!(tally.failed, ["tests/node.rs: v3_10::two"]);
}

#[test]
fn what_did_not_compile_has_no_tests() {
    let tally =
        tally("error[E0425]: cannot find value `x` in this scope\nerror: could not compile `redrive-core`");
    assert_eq!((tally.total(), tally.binaries.len()), (Counts::default(), 0));
}

#[test]
fn clauses_that_do_not_apply_are_counted() {
    let mut tally = Tally::default();
    for _ in 0..2 {
        tally.read("conformance: `release_counts` does not apply: it counts nothing");
    }
    assert_eq!(tally.not_applying["`release_counts` does not apply: it counts nothing"], 2);
}

#[test]
fn a_program_that_ends_with_an_error_has_failed() {
    let output = "     Running core tests/a.rs (/target/debug/deps/a-6f)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    let mut tally = Tally::default();
    tally.read_program(output, true);
    assert!(tally.failed.is_empty());
    tally.read_program(output, false);
    assert_eq!(tally.failed, ["core tests/a.rs: ended with an error, although no test failed"]);
}

#[test]
fn the_slowest_are_named() {
    let tally = tally(
        "     Running core tests/a.rs (/target/debug/deps/a-6f)
test one ... ok <0.012s>
test two ... ok <61.500s>
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.51s",
    );
    assert_eq!(tally.slowest(1), [(61.5, "core tests/a.rs: two")]);
    assert_eq!((tally.slowest(20).len(), tally.unnamed), (2, 0));
}
