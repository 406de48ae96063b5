//! How much CPU time and memory a process uses, as Linux tells it.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// User and system time of a process and its threads; 10 ms exact. None when there is no such process, or no `/proc`.
pub(crate) fn used(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // `pid (name) state …`: the name may hold spaces and parentheses.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    // Linux tells these in hundredths of a second on every platform that Rust runs on.
    Some(Duration::from_millis(ticks * 10))
}

/// Waits until a process does next to nothing, but not for ever: what was filled in is still being written to disk.
pub(crate) async fn until_quiet(process: u32) {
    const LOOK: Duration = Duration::from_millis(300);
    for _ in 0..20 {
        let before = used(process);
        tokio::time::sleep(LOOK).await;
        let busy = used(process).unwrap_or_default().saturating_sub(before.unwrap_or_default());
        if busy < LOOK / 10 {
            return;
        }
    }
}

/// The memory of a process that is in RAM, in MiB.
pub(crate) fn resident_mib(process: u32) -> Option<f64> {
    Some(status(process, "VmRSS:")?.parse::<f64>().ok()? / 1024.0)
}

/// How many threads a process has.
pub(crate) fn threads(process: u32) -> Option<u64> {
    status(process, "Threads:")?.parse().ok()
}

fn status(process: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// The process on this machine that listens on a TCP port; None when it is elsewhere, or somebody else's.
pub(crate) fn listener(port: u16) -> Option<u32> {
    // Read in pieces while sockets come and go: a line may slip through between two of them.
    let mut tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().cycle().take(10);
    let inode = tables.find_map(|table| inode_of(table, port))?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| has_open(Path::new(&format!("/proc/{id}/fd")), &socket))
}

fn inode_of(table: &str, port: u16) -> Option<String> {
    const LISTENING: &str = "0A";
    let text = fs::read_to_string(table).ok()?;
    let lines = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|fields| fields.len() > 9 && fields[3] == LISTENING).find_map(|fields| {
        let (_, hexadecimal) = fields[1].rsplit_once(':')?;
        (u16::from_str_radix(hexadecimal, 16) == Ok(port)).then(|| fields[9].to_owned())
    })
}

fn has_open(folder: &Path, socket: &str) -> bool {
    let Ok(files) = fs::read_dir(folder) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == socket))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_its_port_and_what_it_uses_can_be_read() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(std::process::id()));
        assert!(used(std::process::id()).is_some());
        assert!(resident_mib(std::process::id()).unwrap() > 0.1);
    }
}
