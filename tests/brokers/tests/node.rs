//! Private nodes of both versions: start, die, come back with their data, and leave nothing behind.

use redrive_brokers::{Node, Version, handshake, own_node, own_node_with};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One test per claim and version; the version is in the path, so that `--skip v4_3` leaves it out.
macro_rules! on_each_version {
    ($($test:ident),+ $(,)?) => {
        mod v3_10 {
            $(#[test] fn $test() { super::$test(redrive_brokers::Version::V3_10); })+
        }
        mod v4_3 {
            $(#[test] fn $test() { super::$test(redrive_brokers::Version::V4_3); })+
        }
    };
}

on_each_version! {
    data_survives_sigkill_and_an_orderly_stop,
    a_node_does_not_outlive_a_killed_test,
    extra_configuration_is_used_and_a_restart_holds_up_no_runtime,
}

fn data_survives_sigkill_and_an_orderly_stop(version: Version) {
    let node = own_node(version);
    let opened = handshake::open(node.address(), Duration::from_secs(120)).unwrap();
    assert!(version.covers(&opened.release), "{version} expected, {} answered", opened.release);
    assert_eq!(opened.release, node.release());
    node.ctl(&["add_user", "survivor", "secret"]).unwrap();

    node.kill().unwrap();
    assert!(TcpStream::connect(node.address()).is_err(), "a killed node still listens");
    node.kill().unwrap();

    node.restart().unwrap();
    assert!(node.ctl(&["list_users"]).unwrap().contains("survivor"));

    node.stop().unwrap();
    assert!(TcpStream::connect(node.address()).is_err(), "a stopped node still listens");
    node.restart().unwrap();
    assert!(node.ctl(&["list_users"]).unwrap().contains("survivor"));

    let address = node.address();
    drop(node);
    assert!(TcpStream::connect(address).is_err(), "a dropped node still listens");
}

/// Runs this very test as another process, which holds a node; kills it as the kernel would.
fn a_node_does_not_outlive_a_killed_test(version: Version) {
    const HOLD: &str = "REDRIVE_BROKERS_HOLD";
    if std::env::var_os(HOLD).is_some() {
        let node = own_node(version);
        let data = std::env::temp_dir().join(node.name().replace("redrive-", "redrive-broker-"));
        println!("\nholding {} {}", node.address(), data.display().to_string().replace("@localhost", ""));
        std::thread::sleep(Duration::from_secs(600));
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
    let line =
        lines.map_while(Result::ok).find(|line| line.starts_with("holding")).expect("no node was held");
    let [_, address, data] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(TcpStream::connect(address).is_ok());
    assert!(Path::new(data).is_dir(), "{data} is no folder");

    holder.kill().unwrap();
    holder.wait().unwrap();
    let began = Instant::now();
    while TcpStream::connect(address).is_ok() || Path::new(data).exists() {
        assert!(began.elapsed() < Duration::from_secs(180), "the node outlived its process: {line}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn extra_configuration_is_used_and_a_restart_holds_up_no_runtime(version: Version) {
    let node = own_node_with(version, &["consumer_timeout = 5000"]);
    // Without rabbitmqctl, and read by it.
    node.ctl(&["set_policy", "ours", "^a\\.\"b", r#"{"max-length": 7}"#, "--apply-to", "queues"]).unwrap();
    let policies = node.ctl(&["list_policies"]).unwrap();
    assert!(policies.contains("ours\t^a\\.\"b\tqueues"), "{policies}");
    let refused = node.ctl(&["set_policy", "wrong", ".*", "{}", "--apply-to", "queues"]).unwrap_err();
    assert!(format!("{refused:#}").contains("set_policy"), "{refused:#}");
    let timeout = node.ctl(&["eval", "application:get_env(rabbit, consumer_timeout)."]).unwrap();
    assert_eq!(timeout.trim(), "{ok,5000}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut turns = 0;
        let restart = node.aside(Node::restart);
        tokio::pin!(restart);
        loop {
            tokio::select! {
                done = &mut restart => break done.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => turns += 1,
            }
        }
        // None, if it had been: how many there were depends on who was held up.
        assert!(turns > 0, "the runtime was held up while the node restarted");
    });
}
