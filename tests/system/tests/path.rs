//! The path of one message through the code: docs/architecture.md names the files that act, and no others.
//!
//! A service runs under callgrind, which counts every call. A function that is called once more for each further message is on the
//! path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use redrive::rabbitmq::RabbitMq;
use redrive::{Message, Transport as _};
use redrive_brokers::install::installed;
use redrive_brokers::{Version, emulator};
use redrive_system_tests::rabbit::publish;
use redrive_system_tests::within;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const PAGE: &str = include_str!("../../../docs/architecture.md");

/// One message after the other, so that nothing is done for several at once.
const FEW: u64 = 20;
const MANY: u64 = 70;

/// A busy machine takes five times as long as an idle one.
const LIMIT: Duration = Duration::from_secs(300);

/// Without the feature of the tests an empty function.
const FOR_TESTS_ONLY: &str = "engine/redrive-core/src/fail_point.rs";

/// Calls of each function, by its file and its name.
type Calls = BTreeMap<(String, String), u64>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_passes_the_files_that_the_page_names() {
    let acting = within(LIMIT, "walking a message that is handled", acting("good")).await;
    let steps: BTreeSet<_> = files(table("| | file | what happens |", 0)).collect();
    let used: BTreeSet<_> = files(table("| folder | files | what they are |", 0)).collect();
    assert!(steps.len() <= 28, "a success has {} steps", steps.len());
    let both: Vec<_> = steps.intersection(&used).collect();
    assert!(both.is_empty(), "these are steps, and used by steps: {both:#?}");
    let named: BTreeSet<_> = steps.union(&used).cloned().collect();
    let unnamed: Vec<_> = acting.difference(&named).collect();
    let idle: Vec<_> = named.difference(&acting).collect();
    assert!(unnamed.is_empty() && idle.is_empty(), "not on the page: {unnamed:#?}; does nothing: {idle:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_passes_the_files_that_the_page_names() {
    let acting = within(LIMIT, "walking a message that is tried again", acting("fail")).await;
    let idle: Vec<_> =
        files(table("| | file | what happens |", 1)).filter(|file| !acting.contains(file)).collect();
    assert!(idle.is_empty(), "these do nothing: {idle:#?}");
}

/// Returns the rows of the table with this heading; the first has number 0.
fn table(heading: &str, number: usize) -> impl Iterator<Item = &'static str> {
    let rows = PAGE.split(heading).nth(number + 1).expect("the page has this table");
    // After the line below the heading.
    rows.lines().skip(2).take_while(|row| row.starts_with('|'))
}

/// Returns the files that rows name, below `crates`: each by its path, or a folder that is followed by names in it.
fn files(rows: impl Iterator<Item = &'static str>) -> impl Iterator<Item = String> {
    let files: Vec<_> = rows.flat_map(files_of).collect();
    assert!(!files.is_empty(), "the table has no rows");
    files.into_iter()
}

fn files_of(row: &str) -> Vec<String> {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let code = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    match code(cells[1]).first() {
        Some(folder) => code(cells[2]).into_iter().map(|file| format!("{folder}/{file}")).collect(),
        None => code(cells[2]),
    }
}

/// Returns the files below `crates` with a function that each of these messages passes.
async fn acting(ids: &str) -> BTreeSet<String> {
    let (few, many) = tokio::join!(walked(FEW, ids), walked(MANY, ids));
    let mut acting = BTreeSet::new();
    for ((file, function), calls) in many {
        let key = (file, function);
        // Called at least once for two messages: what follows a read of the socket may be done for two of them.
        let more = calls.saturating_sub(few.get(&key).copied().unwrap_or_default());
        if more * 2 >= MANY - FEW {
            acting.extend(key.0.strip_prefix("crates/").map(str::to_owned));
        }
    }
    acting.remove(FOR_TESTS_ONLY);
    acting
}

/// Returns the calls of a service that handles so many messages, one after the other.
async fn walked(messages: u64, ids: &str) -> Calls {
    let broker = emulator(Version::V4_3).await;
    let valgrind = tokio::task::spawn_blocking(|| installed("/usr/bin/valgrind", &["valgrind"]));
    let valgrind = valgrind.await.expect("no panic").expect("callgrind");
    let queue = format!("path-{ids}-{:08x}", fastrand::u32(..));
    let figures = tempfile::NamedTempFile::new().expect("a file");
    let mut service = Command::new(valgrind)
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--quiet"])
        .arg(format!("--callgrind-out-file={}", figures.path().display()))
        .arg(env!("CARGO_BIN_EXE_walker"))
        .args([&broker.url, &queue])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("valgrind starts");
    let mut lines = BufReader::new(service.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("started"));
    let transport = RabbitMq::options(&queue).connect(&broker.url).await.expect("connected");
    let publisher = transport.publisher();
    for number in 0..messages {
        let id = format!("{ids}-{number}");
        publish(&publisher, Message::new("{}").with_id(&id)).await;
        assert_eq!(lines.next_line().await.expect("a line"), Some(id), "the next message is handled");
    }
    transport.close().await;
    drop(service.stdin.take());
    let status = service.wait().await.expect("it ends");
    assert!(status.success(), "{status}");
    calls(&std::fs::read_to_string(figures.path()).expect("callgrind's figures"))
}

/// Reads callgrind's format without compression: <https://valgrind.org/docs/manual/cl-format.html>.
fn calls(figures: &str) -> Calls {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository");
    let root = format!("{}/", root.display());
    let mut calls = Calls::new();
    let (mut file, mut called_file, mut called) = ("", None, "");
    for line in figures.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "fl" | "fi" | "fe" => file = value,
            "cfi" | "cfl" => called_file = Some(value),
            "cfn" => called = value,
            "calls" => {
                let times: u64 = value.split(' ').next().and_then(|it| it.parse().ok()).expect("a number");
                // Without a file of its own, the function is in that of its caller.
                if let Some(file) = called_file.take().unwrap_or(file).strip_prefix(&root) {
                    *calls.entry((file.to_owned(), called.to_owned())).or_default() += times;
                }
            }
            _ => {}
        }
    }
    assert!(!calls.is_empty(), "the service has no debug information");
    calls
}
