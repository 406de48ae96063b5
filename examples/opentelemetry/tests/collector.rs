//! Runs the example against a collector that only listens.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;

#[test]
fn the_example_sends_its_traces_and_its_metrics() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let requests = requests.clone();
            std::thread::spawn(move || answer(stream, &requests));
        }
    });
    let output = Command::new(env!("CARGO_BIN_EXE_opentelemetry-example"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "shipping a lamp\n1 handled, 1 retried\n");
    let (mut traces, mut metrics) = (String::new(), String::new());
    while let Ok((path, body)) = received.try_recv() {
        let body = String::from_utf8_lossy(&body).into_owned();
        if path.contains("traces") { traces.push_str(&body) } else { metrics.push_str(&body) }
    }
    for name in
        ["publish orders", "process orders", "reschedule orders", "complete orders", "previous-attempt"]
    {
        assert!(traces.contains(name), "no {name}: {traces}");
    }
    for name in ["messages_retried_total", "messaging.process.duration"] {
        assert!(metrics.contains(name), "no {name}: {metrics}");
    }
}

/// Answers every request of a connection, and passes its path and body on.
fn answer(stream: TcpStream, requests: &mpsc::Sender<(String, Vec<u8>)>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            (reader.read_until(b'\n', &mut head).ok()? > 0).then_some(())?;
        }
        let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        requests.send((head.lines().next()?.to_owned(), body)).ok()?;
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}
