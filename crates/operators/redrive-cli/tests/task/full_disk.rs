//! The disk with the journal is full in the middle of a run.

use std::path::{Path, PathBuf};
use std::process::Command;

use redrive::Message;

use crate::common::{Cli, Shop};

/// What a run of these writes to its journal takes more than a page of the disk, also in one step.
const ORDERS: u32 = 100;
const PAGE: u64 = 4096;

/// Each time the disk has room for one page more, the run goes on: nothing is lost, and nothing is sent twice.
pub(crate) async fn a_run_goes_on_when_there_is_room(shop: &Shop) {
    let order = |id: u32| Message::new(format!("\"order {id}\"")).with_id(format!("order-{id}"));
    for id in 0..ORDERS {
        shop.publish(order(id)).await;
    }
    let service = shop.service_that(|_| Err("no answer from the stock".to_owned())).await;
    service.handled(ORDERS).await;
    service.stop().await;
    let cli = Cli::new(shop);
    let disk = SmallDisk::mount(&cli.state());
    let queue = &*shop.queue;
    let plan = cli.json(&["plan", queue, "--all"]).await["id"].as_str().expect("an id").to_owned();

    let (service, handled) = shop.counting().await;
    let apply = [
        "apply",
        &plan,
        "--yes",
        "--canary",
        "1",
        "--canary-wait",
        "1h",
        "--rate",
        "1000",
        "--ramp-step",
        "10ms",
    ];
    let (mut room, mut full, mut said) = (disk.used(), 0, Vec::new());
    loop {
        disk.resize(room);
        let run = cli.last_run();
        let resume = ["runs", "resume", run.as_deref().unwrap_or_default()];
        let output = cli.run(if run.is_some() { &resume } else { &apply }).await;
        said.push(format!("{} bytes, {}: {}{}", room, output.code, output.out, output.err));
        // The last thing for which there is no room may be the line of the audit log.
        if output.code == 0 || output.err.contains("the run is over") {
            break;
        }
        if output.err.contains("cannot write the journal") {
            let listed = cli.run(&["runs", "list"]).await.out;
            assert!(!listed.contains("killed"), "{listed}");
        }
        full += 1;
        room += PAGE;
        assert!(full < 100, "{}", said.join("\n"));
    }
    let in_the_middle = said.iter().any(|said| said.contains("cannot write the journal"));
    assert!(
        in_the_middle && said.iter().any(|said| said.contains("nothing was changed")),
        "{}",
        said.join("\n")
    );
    service.handled(ORDERS).await;
    shop.has_shelved(0).await;
    assert!(handled.lock().unwrap().values().all(|times| *times == 1), "{:?}", handled.lock().unwrap());
    service.stop().await;
}

/// A file system in memory, which needs the right to mount.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Self {
        std::fs::create_dir_all(path).expect("a folder");
        mount(&["-t", "tmpfs", "-o", "size=16m", "none"], path);
        Self(path.to_owned())
    }

    fn used(&self) -> u64 {
        let output =
            Command::new("df").args(["--output=used", "-B1"]).arg(&self.0).output().expect("df runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number")
    }

    fn resize(&self, bytes: u64) {
        mount(&["-o", &format!("remount,size={bytes}")], &self.0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], path: &Path) {
    let output = Command::new("mount").args(arguments).arg(path).output().expect("mount runs");
    assert!(output.status.success(), "a small disk needs root: {}", String::from_utf8_lossy(&output.stderr));
}
