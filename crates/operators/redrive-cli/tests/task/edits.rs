//! Many messages are edited by a program, and it is interrupted.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use redrive::{Message, Shelf, TransportErrorKind};
use serde_json::Value;
use tokio::process::Child;
use tokio::time::timeout;

use crate::common::{Cli, Output, Shop, tell_to_end};
use crate::terminal::Terminal;

const ORDERS: u32 = 60;
/// Only tells a hang from a slow machine.
const IN_TIME: Duration = Duration::from_secs(60);
const PROGRAM: &str = r#".headers.checked = true | .body |= sub("order"; "0rder")"#;

/// The process is killed in the middle: the same command edits the rest, and its plan and the audit log have all of them.
pub(crate) async fn a_killed_edit_goes_on(shop: &Shop) {
    let cli = failed(shop).await;
    let mut edit = begun(&cli, &shop.queue).await;
    edit.kill().await.expect("killed");
    let killed_at = edited(&cli);
    assert!(cli.audit().is_empty(), "it died before");
    goes_on(shop, &cli, killed_at, &[]).await;
}

/// The connection of a command that died still has the shelf, as far as the broker knows: nothing is judged before that has ended.
pub(crate) async fn an_edit_judges_nothing_beside_a_dead_one(shop: &Shop) {
    let cli = failed(shop).await;
    let mut edit = begun(&cli, &shop.queue).await;
    edit.kill().await.expect("killed");
    let killed_at = edited(&cli);
    let path = journals(&cli).remove(0);
    // It seems gone, as what a dead connection holds does.
    let text = std::fs::read_to_string(&path).expect("text");
    let whole = text.rfind('\n').expect("a line");
    let held =
        r#"{"handle":"dead-letter/00000000000000000000000000000000","copy":{"content":"","identity":""}}"#;
    let text = format!("{}\n{held}\n", &text[..whole]);
    std::fs::write(&path, &text).expect("written");
    let shelves = shop.shelves().await;
    let leased = async {
        loop {
            match shelves.lease(Shelf::DeadLetter).await {
                Ok(leased) => return leased.expect("RabbitMQ has leases"),
                Err(error) => assert_eq!(error.kind(), TransportErrorKind::Locked, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let leased = timeout(IN_TIME, leased).await.expect("the lease of a killed process ends");
    let again = ["edit", &shop.queue, "error~stock", "--jq", PROGRAM, "--yes", "--reason", "again"];
    let refused = cli.run(&again).await;
    assert_eq!(refused.code, 1, "{}\n{}", refused.out, refused.err);
    assert!(refused.err.contains("another run works on the dead-letter shelf"), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(&path).expect("text"), text, "nothing is judged");
    leased.lease.end().await;
    goes_on(shop, &cli, killed_at, &[]).await;
}

/// The process is told to end, as a machine that shuts down does it: it ends after its message, and says how it goes on.
pub(crate) async fn an_edit_that_is_told_to_end_goes_on(shop: &Shop) {
    let cli = failed(shop).await;
    let edit = begun(&cli, &shop.queue).await;
    tell_to_end(&edit);
    let ended = output(edit).await;
    let first = says_how_it_goes_on(&cli, &ended);
    assert!(ended.err.contains("interrupted"), "{}", ended.err);
    goes_on(shop, &cli, 0, &first).await;
}

/// The broker is killed in the middle.
pub(crate) async fn an_edit_goes_on_when_its_broker_is_back(shop: &Shop) {
    let cli = failed(shop).await;
    let edit = begun(&cli, &shop.queue).await;
    shop.crash().await;
    let ended = output(edit).await;
    let first = says_how_it_goes_on(&cli, &ended);
    assert!(!ended.err.contains("the name of the work queue"), "{}", ended.err);
    let unreachable = cli.run(&["browse", &shop.queue, "--timeout", "5s"]).await;
    assert!(!unreachable.err.contains("the name of the work queue"), "{}", unreachable.err);
    shop.restart().await;
    goes_on(shop, &cli, 0, &first).await;
}

/// On a terminal, a person sees how far it is.
pub(crate) async fn an_edit_shows_its_progress(shop: &Shop) {
    let cli = failed(shop).await;
    let arguments = ["edit", &shop.queue, "error~stock", "--jq", PROGRAM];
    let mut terminal = Terminal::start(&cli, &arguments);
    terminal.shows(&["and 40 more: --dry-run shows all of them", "type the number of messages, 60"]).await;
    terminal.press("60\r").await;
    terminal.shows(&["/60 ", "/s "]).await;
    terminal.shows(&["60 of 60 edited", "to send them back: redrive apply"]).await;
}

async fn failed(shop: &Shop) -> Cli {
    let order = |id| Message::new(format!("\"order {id}\"")).with_id(format!("order-{id}"));
    shop.publish_all((0..ORDERS).map(order).collect()).await;
    let service = shop.service_that(|_| Err("no answer from the stock".to_owned())).await;
    service.handled(ORDERS).await;
    service.stop().await;
    shop.has_shelved(ORDERS.into()).await;
    Cli::new(shop)
}

/// An edit of all that has edited some.
async fn begun(cli: &Cli, queue: &str) -> Child {
    let arguments = ["edit", queue, "error~stock", "--jq", PROGRAM, "--yes", "--reason", "a typing error"];
    let mut command = cli.command(&arguments);
    let mut edit = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let some = async {
        while edited(cli) < 3 {
            assert!(edit.try_wait().expect("a process").is_none(), "it has ended");
            tokio::task::yield_now().await;
        }
    };
    timeout(IN_TIME, some).await.expect("it edits");
    edit
}

/// How many are edited, as the journal says.
fn edited(cli: &Cli) -> usize {
    let text =
        journals(cli).first().map(|path| std::fs::read_to_string(path).expect("text")).unwrap_or_default();
    text.matches("\"state\":\"done\"").count()
}

fn journals(cli: &Cli) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cli.state().join("runs")).into_iter().flatten();
    let paths = files.map(|file| file.expect("a file").path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "edited")).collect()
}

async fn output(edit: Child) -> Output {
    let limit = std::time::Duration::from_secs(180);
    let ended = tokio::time::timeout(limit, edit.wait_with_output()).await.expect("it ends").expect("it ran");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Output { code: ended.status.code().expect("no signal"), out: text(ended.stdout), err: text(ended.stderr) }
}

/// The entries of a plan that was kept.
fn planned(cli: &Cli, plan: &str) -> Vec<Value> {
    let text = std::fs::read(cli.state().join("plans").join(format!("{plan}.json"))).expect("a plan");
    let plan: Value = serde_json::from_slice(&text).expect("JSON");
    plan["plan"]["entries"].as_array().expect("entries").clone()
}

/// Returns the entries of the plan of what was edited.
fn says_how_it_goes_on(cli: &Cli, ended: &Output) -> Vec<Value> {
    let done = edited(cli);
    assert_eq!(ended.code, 1, "{}\n{}", ended.out, ended.err);
    for said in [
        &format!("edited {done} of {ORDERS} messages, not the rest: run the same command again to continue"),
        "The originals are in ",
    ] {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
    assert!(ended.out.contains("to send them back: redrive apply p"), "{}\n{}", ended.out, ended.err);
    assert_eq!(cli.audit()[0]["counts"]["done"], done);
    let planned = planned(cli, ended.out.trim().rsplit(' ').next().expect("a plan"));
    assert_eq!(planned.len(), done);
    planned
}

/// The same command edits the rest, and makes a plan of all, also of what was planned first.
async fn goes_on(shop: &Shop, cli: &Cli, killed_at: usize, first: &[Value]) {
    let queue = &*shop.queue;
    let edit = ["--json", "edit", queue, "error~stock", "--jq", PROGRAM, "--yes", "--reason", "again"];
    let again = cli.run(&edit).await;
    assert_eq!(again.code, 0, "{}\n{}", again.out, again.err);
    let said: Value = serde_json::from_str(&again.out).expect("JSON");
    // What was stored, and not yet removed when the process died, is left to a person.
    let in_doubt = again.err.matches("is left out").count() as u64;
    let (now, before) = (said["edited"].as_u64().unwrap(), said["edited_before"].as_u64().unwrap());
    assert!(before >= 3.max(killed_at as u64) && in_doubt <= 1, "{said}\n{}", again.err);
    assert_eq!(now + before, u64::from(ORDERS) - in_doubt, "{said}\n{}", again.err);

    let plan = said["plan"].as_str().expect("a plan");
    let planned = planned(cli, plan);
    assert_eq!(planned.len() as u64, now + before);
    assert!(first.iter().all(|entry| planned.contains(entry)), "{first:?}\n{planned:?}");
    let audit = cli.audit();
    let counts = audit.iter().map(|record| record["counts"]["done"].as_u64().expect("a count"));
    assert_eq!(counts.sum::<u64>(), now + before, "{audit:?}");
    // An edit of which the broker's answer was lost is noted by itself, for the one who made it.
    let reasons: Vec<_> = audit.iter().map(|record| record["reason"].as_str().expect("a reason")).collect();
    let (last, earlier) = reasons.split_last().expect("two commands");
    assert_eq!(*last, "again");
    assert!(
        (1..=2).contains(&earlier.len()) && earlier.iter().all(|reason| *reason == "a typing error"),
        "{audit:?}"
    );
    assert!(audit[0]["filter"].as_str().expect("a filter").starts_with("error~stock --jq "), "{}", audit[0]);

    // Finished: the same command begins anew.
    let finished = cli.run(&edit).await;
    assert!(finished.err.contains("changes 0 of"), "{}", finished.err);
    assert!(finished.out.is_empty(), "{}", finished.out);
    let service = shop.repaired().await;
    let applied =
        cli.run(&["apply", plan, "--yes", "--canary", "1", "--rate", "1000", "--ramp-step", "10ms"]).await;
    assert_eq!(applied.code, 0, "{}\n{}", applied.out, applied.err);
    service.handled(u32::try_from(now + before).expect("few")).await;
    service.stop().await;
}
