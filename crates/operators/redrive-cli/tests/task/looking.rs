//! Looking at shelves: nothing changes, and what is missing or wrong is named.

#[cfg(unix)]
use std::process::Stdio;
#[cfg(unix)]
use std::time::Duration;

use redrive::Message;
#[cfg(unix)]
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[cfg(unix)]
use crate::common::signal;
use crate::common::{Cli, Shop};
use crate::export::{export_and_import, exported};
use crate::wrong_edits;

pub(crate) async fn looking(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &shop.queue;
    let before = shop.shelf().await;
    for _ in 0..5 {
        cli.ok(&["shelves", queue]).await;
        cli.ok(&["groups", queue]).await;
        cli.ok(&["browse", queue, "--limit", "2"]).await;
        cli.ok(&["show", queue, "--group", "g2"]).await;
        cli.ok(&["export", queue]).await;
        cli.ok(&["plan", queue, "--group", "g1"]).await;
        assert_eq!(cli.run(&["check", queue, "--warn", "4"]).await.code, 1);
    }
    where_says(&cli, queue).await;
    handles(&cli, queue).await;
    nothing_matches(&cli, queue).await;
    wrong_edits(&cli, queue).await;
    let after = shop.shelf().await;
    assert_eq!(before, after);
    export_and_import(shop, &cli).await;

    let wrong = cli.run(&["browse", queue, "age>soon"]).await;
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert_eq!(cli.run(&["show", queue, "dead-letter/00"]).await.code, 1);
    let missing = cli.run(&["redrive", queue, "g9", "--yes"]).await;
    assert!(missing.code == 2 && missing.err.contains("g9 is not known"), "{}", missing.err);
    shop.tidy_up().await;
}

/// Ctrl-C in the middle of a look: the messages are back in their order, and the broker counts nothing.
#[cfg(unix)]
pub(crate) async fn interrupted(shop: &Shop) {
    shop.fail().await;
    let before = shop.shelf().await;
    let proxy = shop.proxy().await;
    let cli = Cli::new(shop).through(proxy.addr());
    // What the broker has sent is on its way for so long, and so is what comes back.
    proxy.delay(Duration::from_millis(250));
    let mut looking = cli.command(&["groups", &shop.queue]).stderr(Stdio::piped()).spawn().expect("it runs");
    let holds_messages = async { while shop.shelved().await == 5 {} };
    tokio::time::timeout(Duration::from_secs(60), holds_messages).await.expect("it looks");
    proxy.freeze();
    signal(&looking, rustix::process::Signal::INT);
    let mut said = BufReader::new(looking.stderr.take().expect("piped")).lines();
    let said = said.next_line().await.expect("read").unwrap_or_default();
    assert!(said.contains("giving back the messages that were read"), "{said}");
    proxy.thaw();
    let ended = looking.wait().await.expect("it ends");
    assert_eq!(ended.code(), Some(130));
    shop.has_shelved(5).await;
    assert_eq!(before, shop.shelf().await);
    assert_eq!(shop.deaths_of_readers().await, [0; 5]);
}

/// Programs of jq select, and one that is wrong, or never ends, or eats memory, does no harm.
pub(crate) async fn where_says(cli: &Cli, queue: &str) {
    let selected = cli.json(&["browse", queue, "--where", r#".id == "order-1" or .attempt > 9"#]).await;
    assert_eq!(selected.as_array().unwrap().len(), 1, "{selected}");
    let planned =
        cli.json(&["plan", queue, "error~stock", "--where", r#".body | contains("order 2")"#]).await;
    assert_eq!(planned["entries"].as_array().unwrap().len(), 1, "{planned}");
    for (program, code, said) in [
        (".id ==", 2, "expected"),
        ("system(\"ls\")", 2, "unknown filter `system`"),
        (".id", 2, "it says a string, and not true or false"),
        ("error(.id)", 2, "--where fails for every message"),
        (".headers.nothing", 0, ""),
        (
            "if .id == \"order-1\" then error(.id) else .properties.id == \"order-2\" end",
            0,
            "--where failed for 1 message, which is left out",
        ),
        ("env | has(\"REDRIVE_BROKER\") or has(\"PATH\") | not", 0, ""),
        ("def f: f; f", 1, "--where"),
        ("[range(infinite)] | true", 1, "--where"),
    ] {
        // What ends a program that does not end by itself, long before its share of the processor is used up.
        let answer = cli.run(&["--timeout", "20s", "browse", queue, "--where", program]).await;
        assert_eq!(answer.code, code, "{program}: {}", answer.err);
        assert!(answer.err.contains(said), "{program}: {}", answer.err);
    }
}

/// A filter that matches nothing is told from an empty shelf, and is nothing to do.
async fn nothing_matches(cli: &Cli, queue: &str) {
    for arguments in [&["browse", queue, "reason:Foo"][..], &["groups", queue, "reason:Foo"]] {
        let answer = cli.ok(arguments).await;
        let said = format!("{queue} dead-letter: 0 of 5 messages match, read");
        assert!(answer.err.contains(&said), "{arguments:?}: {}", answer.err);
    }
    let empty = cli.run(&["browse", queue, "--shelf", "parking"]).await;
    assert!(empty.code != 0 || empty.err.contains("parking: no messages, read"), "{}", empty.err);
    let plans = || std::fs::read_dir(cli.state().join("plans")).expect("a folder").count();
    let before = plans();
    for arguments in [
        &["plan", queue, "reason:Foo"][..],
        &["redrive", queue, "reason:Foo"],
        &["park", queue, "reason:Foo", "--yes"],
        &["discard", queue, "--where", "false", "--yes"],
    ] {
        let answer = cli.ok(arguments).await;
        assert!(answer.out.is_empty(), "{arguments:?}: {}", answer.out);
        let said = "0 of 5 messages match: there is nothing to do";
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    }
    assert_eq!(plans(), before, "no plan is kept");
}

/// A handle is a selection: of this entry, and of nothing else.
pub(crate) async fn handles(cli: &Cli, queue: &str) {
    let listed = cli.json(&["browse", queue]).await;
    let handle = |place: usize| listed[place]["handle"].as_str().expect("a handle");
    let browsed = cli.json(&["browse", queue, handle(1), handle(3)]).await;
    assert_eq!([&browsed[0]["handle"], &browsed[1]["handle"]], [handle(1), handle(3)]);
    let planned = cli.json(&["plan", queue, handle(2)]).await;
    assert_eq!(planned["entries"].as_array().expect("entries").len(), 1, "{planned}");
    let edited = cli.ok(&["edit", queue, handle(1), "--jq", ".", "--yes"]).await;
    assert!(edited.err.contains("changes 0 of 1"), "{}", edited.err);
    let elsewhere = handle(0).replace("dead-letter", "parking");
    let missing = format!("{}0", handle(0));
    for (arguments, said) in [
        (&["redrive", queue, &elsewhere, "--yes"][..], "pass --shelf parking"),
        (&["redrive", queue, "--handle", &elsewhere, "--yes"], "pass --shelf parking"),
        (&["discard", queue, &missing, "--yes"], "is not on the dead-letter shelf"),
        (&["browse", queue, &missing], "is not on the dead-letter shelf"),
        (&["plan", queue], "which messages?"),
        (&["show", queue], "--group (-g)"),
        (&["show", queue, "error~stock"], "3 messages match, and one is meant"),
        (&["show", queue, "id:order-9"], "0 of 5 messages match"),
    ] {
        let answer = cli.run(arguments).await;
        assert_eq!(answer.code, 2, "{arguments:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    }
    assert_eq!(cli.json(&["plan", queue, "--all"]).await["entries"].as_array().expect("entries").len(), 5);
    let many = cli.run(&["apply", "p"]).await;
    assert!(many.code == 2 && many.err.contains("p") && many.err.contains(", "), "{}", many.err);
}

/// What could not be printed is no success: an export that a full disk cut is not complete, and a check that nobody read is not OK. A reader
/// that has gone wanted no more.
#[cfg(target_os = "linux")]
async fn unwritable(cli: &Cli) {
    for (arguments, code) in [
        (&["shelves"][..], 1),
        (&["export", "orders"], 1),
        (&["groups", "orders", "--json"], 1),
        (&["plan", "orders", "--all", "--json"], 1),
        (&["check", "--warn", "100"], 3),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it takes nothing");
        let output = printing_to(cli, arguments, full.into()).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(code == 3 || said.contains("the output is incomplete"), "{arguments:?}: {said}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = printing_to(cli, &["export", "orders"], writer.into()).await;
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(target_os = "linux")]
async fn printing_to(cli: &Cli, arguments: &[&str], stdout: Stdio) -> std::process::Output {
    let mut command = cli.command(arguments);
    let running = command.stdout(stdout).stderr(Stdio::piped()).spawn().expect("it runs");
    running.wait_with_output().await.expect("it ends")
}

/// Nobody needs to know the names of the queues, nor a secret; what is wrong is said.
#[cfg(unix)]
pub(crate) async fn queues(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let shelves = cli.ok(&["shelves"]).await;
    assert!(shelves.out.contains("orders") && shelves.out.contains("dead-letter  5"), "{}", shelves.out);
    assert_eq!(cli.run(&["check", "--warn", "4"]).await.code, 1);
    exported(&cli, "orders").await;
    let missing = cli.run(&["shelves", "order"]).await;
    assert!(missing.code == 1 && missing.err.contains("it serves `orders`"), "{}", missing.err);
    cli.write("service.toml", "MaxDeliveryCount = 3\nRetry = { Base = 1, Factor = 10 }\n");
    let file = cli.path("service.toml").display().to_string();
    let explained = cli.ok(&["explain", "orders", "--options", &file]).await;
    assert!(explained.out.contains("At most 3 attempts, 11s of waiting"), "{}", explained.out);
    assert!(explained.out.contains("grace at shutdown       30s"), "{}", explained.out);
    #[cfg(target_os = "linux")]
    unwritable(&cli).await;
    cli.write("bills.toml", "QueueName = \"bills\"\n");
    let bills = cli.path("bills.toml").display().to_string();
    let other = cli.run(&["explain", "orders", "--options", &bills]).await;
    assert!(
        other.code == 2 && other.err.contains("QueueName is `bills`, and this is about `orders`"),
        "{}",
        other.err
    );
    let preflight = cli.run(&["preflight", "orders", "--options", &file]).await;
    assert!(preflight.code == 2 && preflight.err.contains("redrive explain"), "{}", preflight.err);
    let nowhere = cli.run(&["--broker", "unix:/nowhere/redrive.sock", "shelves", "orders"]).await;
    assert!(nowhere.code == 1 && nowhere.err.contains("no service listens at /nowhere"), "{}", nowhere.err);
    let missing = cli.run(&["shelves", "order", "orders"]).await;
    assert!(missing.code == 1 && missing.out.contains("dead-letter  5"), "{}{}", missing.out, missing.err);
    contexts(&cli).await;
    let relative = cli.run(&["--broker", "unix:redrive.sock", "shelves", "orders"]).await;
    assert!(relative.code == 2 && relative.err.contains("must be absolute"), "{}", relative.err);
}

/// What is typed counts before the environment, and a wrong context concerns only who uses it.
#[cfg(unix)]
pub(crate) async fn contexts(cli: &Cli) {
    let broker = cli.broker();
    cli.write(
        "config.toml",
        &format!("[contexts.shop]\nbroker = {broker:?}\n[contexts.wrong]\nbroker = \"unix:x.sock\"\n"),
    );
    let config = cli.path("config.toml").display().to_string();
    let config = ["--config", &*config];
    let run = async |cli: &Cli, arguments: &[&str]| cli.run(&[&config[..], arguments].concat()).await;
    assert_eq!(run(cli, &["-c", "shop", "shelves", "orders"]).await.code, 0);
    let wrong = run(cli, &["-c", "wrong", "shelves", "orders"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("must be absolute"), "{}", wrong.err);
    let listed = run(cli, &["context", "list"]).await;
    assert!(
        listed.code == 0 && listed.out.contains("shop") && listed.out.contains("wrong"),
        "{}",
        listed.out
    );
    assert!(
        listed.err.contains("`wrong` cannot be used") && listed.err.contains("must be absolute"),
        "{}",
        listed.err
    );

    let chosen = cli.with("REDRIVE_CONTEXT", "wrong");
    assert_eq!(run(&chosen, &["shelves", "orders"]).await.code, 2, "before the broker of the environment");
    assert_eq!(run(&chosen, &["shelves", "orders", "--broker", broker]).await.code, 0);
    assert_eq!(run(&chosen, &["--broker", broker, "shelves", "orders"]).await.code, 0);
    assert_eq!(run(&chosen, &["--broker", "servicebus", "-c", "shop", "shelves", "orders"]).await.code, 0);
}

/// The command line says where the password is from, in its own words, and the broker's sentence once.
pub(crate) async fn refused_password(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    cli.write("secret", "hunter2");
    cli.write("service.toml", "MaxDeliveryCount = 3\n");
    let broker = cli.broker();
    let [secret, config, service] =
        ["secret", "config.toml", "service.toml"].map(|name| cli.path(name).display().to_string());
    let context =
        format!("[contexts.shop]\nbroker = {broker:?}\nsecret = {{ command = \"cat {secret}\" }}\n");
    cli.write("config.toml", &context);
    let of_file = format!("with the password of the file {secret} (--secret-file or REDRIVE_SECRET_FILE)");
    let of_context =
        format!("with the password of the command `cat {secret}` (`secret` of the context `shop`)");
    let nobody = broker.replace("//guest@", "//nobody@");
    let none = "No password was given: --secret-file, --secret-env, or `secret` of a context";
    for (arguments, has_file, said) in [
        (&["shelves", "orders"][..], true, &*of_file),
        (&["preflight", "orders", "--options", &service], true, &of_file),
        (&["--config", &config, "-c", "shop", "browse", "orders"], true, &of_context),
        (&["--broker", &nobody, "shelves", "orders"], false, none),
    ] {
        let mut command = cli.command(arguments);
        if !has_file {
            command.env_remove("REDRIVE_SECRET_FILE");
        }
        let refused = command.output().await.expect("it runs");
        let err = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {err}");
        assert!(err.contains(said) && err.contains(" refuses the user `"), "{arguments:?}: {err}");
        assert_eq!(err.matches("ACCESS_REFUSED").count(), 1, "{arguments:?}: {err}");
        assert!(!err.contains("hunter2"), "{arguments:?}: {err}");
        assert!(!err.contains("provider") && !err.contains("REDRIVE_AMQP"), "{arguments:?}: {err}");
    }
}

/// `REDRIVE_SECRET_FILE` is set, and another secret is typed.
pub(crate) async fn typed_secret(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop).with("THE_PASSWORD", "guest");
    cli.write("secret", "hunter2");
    cli.ok(&["--secret-env", "THE_PASSWORD", "shelves", "orders"]).await;
    cli.ok(&["shelves", "orders", "--secret-env", "THE_PASSWORD"]).await;
    let both = cli.run(&["--secret-env", "THE_PASSWORD", "--secret-file", "f", "shelves", "orders"]).await;
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{}", both.err);
}

/// A queue that the broker does not have keeps silent about none that it has.
pub(crate) async fn unknown(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let shelves = cli.run(&["shelves", "nosuch", &shop.queue]).await;
    assert_eq!(shelves.code, 1, "{}", shelves.err);
    assert!(shelves.out.contains("dead-letter  5"), "{}", shelves.out);
    for said in ["the broker has no queue `nosuch", "virtual host"] {
        assert!(shelves.err.contains(said), "{}", shelves.err);
    }
    assert!(!shelves.err.contains("Topology") && !shelves.err.contains("AMQP"), "{}", shelves.err);
    let browse = cli.run(&["browse", "nosuch"]).await;
    assert!(browse.code == 1 && browse.err.contains("the broker has no queue `nosuch"), "{}", browse.err);
}

/// A body of ten megabytes, and one that is no text.
pub(crate) async fn bodies(shop: &Shop) {
    const LARGE: usize = 10 << 20;
    let service = shop.service_that(|_| Err("too much".to_owned())).await;
    for (id, body) in [("large", vec![b'x'; LARGE]), ("binary", vec![0, 0x1b, b'[', b'2', b'J', 0xff])] {
        shop.publish(Message::new(body).with_id(id)).await;
    }
    service.handled(2).await;
    service.stop().await;
    shop.has_shelved(2).await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let before = shop.shelf().await;
    cli.ok(&["groups", queue]).await;
    let handle = async |id| {
        let found = cli.json(&["browse", queue, &format!("id:{id}")]).await;
        found[0]["handle"].as_str().expect("a handle").to_owned()
    };
    let binary = cli.ok(&["show", queue, &handle("binary").await]).await;
    assert!(!binary.out.contains('\u{1b}'), "{:?}", binary.out);
    let large = cli.ok(&["show", queue, &handle("large").await]).await;
    assert!(large.out.len() < 1 << 20, "{} bytes are shown", large.out.len());
    let file = cli.path("bodies.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    shop.has_shelved(0).await;
    cli.ok(&["import", queue, &file, "--yes"]).await;
    shop.has_shelved(2).await;
    assert!(shop.shelf().await == before, "what came back is not what was exported");
    shop.tidy_up().await;
}

/// Numbers, times and bodies that others write: compared exactly, believed within reason, looked into or said.
pub(crate) async fn foreign(shop: &Shop) {
    let service = shop.service_that(|_| Err("no such account".to_owned())).await;
    let packed = |encoding: &str, body: Vec<u8>| {
        let mut message = Message::new(body);
        message.properties_mut().content_encoding = Some(encoding.to_owned());
        message
    };
    // `{"id":7}`, by gzip.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\xabV\xcaLQ\xb22\xaf\x05\0C_\x07\x12\x08\0\0\0".to_vec();
    for (id, message) in [
        ("a", Message::new(r#"{"id":12345678901234567890123,"price":1.10,"id":12345678901234567890123}"#)),
        ("b", Message::new(r#"{"id":12345678901234567890124}"#)),
        ("c", Message::new("\u{feff}{\"id\":1e2}")),
        ("d", packed("gzip", gzip)),
        ("e", packed("br", vec![0xff; 9])),
    ] {
        shop.publish(message.with_id(id)).await;
    }
    service.handled(5).await;
    service.stop().await;
    shop.has_shelved(5).await;
    let (cli, queue) = (Cli::new(shop), &*shop.queue);
    let found = async |arguments: &[&str]| -> Vec<String> {
        let listed = cli.json(&[&["browse", queue], arguments].concat()).await;
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["properties"]["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(found(&["body.id=12345678901234567890123"]).await, ["a"]);
    assert_eq!(found(&["--where", ".body.id == 12345678901234567890124"]).await, ["b"]);
    assert_eq!(found(&["body.id=100"]).await, ["c"]);
    assert_eq!(found(&["body.id=7"]).await, ["d"]);
    let others = cli.ok(&["browse", queue, "--", "-body.id=7"]).await;
    assert!(
        others.err.contains("the filter left out 1 message: it cannot look into the body"),
        "{}",
        others.err
    );
    let groups =
        cli.json(&["groups", queue, "--since", "2020-01-01T00:00:00+01:00", "--", "-body.id=7"]).await;
    assert_eq!((&groups["count"], &groups["not_looked_into"]), (&3.into(), &1.into()), "{groups}");
    let planned = cli.json(&["plan", queue, "--", "-body.id=7"]).await;
    assert_eq!(planned["not_looked_into"], 1, "{planned}");
    let shown = cli.ok(&["show", queue, "id:a"]).await;
    assert!(
        shown.out.contains("\"price\": 1.10,\n") && shown.out.matches("12345678901234567890123").count() == 2,
        "{}",
        shown.out
    );
    let shown = cli.ok(&["show", queue, "id:e"]).await;
    assert!(shown.out.contains("`br` is not known"), "{}", shown.out);

    let line = cli.ok(&["export", queue, "id:b"]).await.out;
    let stamp = line.split("\"redrive-last-failed-at\":").nth(1).unwrap().split(['}', ',']).next().unwrap();
    let file = cli.path("nanoseconds.jsonl");
    let foreign = format!("\u{feff}{}", line.replace(stamp, "1800000000000000000"));
    std::fs::write(&file, foreign).unwrap();
    cli.ok(&["discard", queue, "body.id=12345678901234567890124", "--yes"]).await;
    shop.has_shelved(4).await;
    cli.ok(&["import", queue, &file.display().to_string(), "--yes"]).await;
    shop.has_shelved(5).await;
    let groups = cli.json(&["groups", queue, "id:b"]).await;
    assert_eq!(
        (&groups["count"], groups["groups"][0]["first_seen"].is_null()),
        (&1.into(), true),
        "{groups}"
    );
    let shown = cli.ok(&["show", queue, "id:b"]).await;
    assert!(shown.out.contains("1800000000000000000 ms since 1970 (not plausible)"), "{}", shown.out);
    shop.tidy_up().await;
}
