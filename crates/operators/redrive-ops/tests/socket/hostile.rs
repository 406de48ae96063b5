//! Bytes that no redrive sends.

use redrive_core::{Shelf, Shelves as _, TransportErrorKind};
use redrive_ops::SocketShelves;
use serde_json::json;
use tokio::net::UnixListener;

use crate::raw::Raw;
use crate::{BEFORE_A_STALL, Service, place};

/// Bytes that look random, and are the same in each run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn frames() -> Vec<Vec<u8>> {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    let mut deep_header =
        br#"{"ask":"restore","shelf":"parking","message":{"properties":{},"body":"","headers":{"h":"#
            .to_vec();
    deep_header.extend_from_slice(&deep);
    deep_header.extend_from_slice(b"}}}");
    let message = json!({ "properties": {}, "headers": {}, "body": "x" });
    let both = json!({ "properties": {}, "headers": {}, "body": "x", "body_base64": "eA==" });
    let more = json!({ "properties": {}, "headers": {}, "body": "x", "more": 1 });
    let tagged = json!({ "properties": {}, "headers": { "h": { "$u8": 256 } }, "body": "x" });
    let asked = [
        json!(null),
        json!([]),
        json!({}),
        json!({ "ask": "drop" }),
        json!({ "ask": "count" }),
        json!({ "ask": "count", "shelf": "elsewhere" }),
        json!({ "ask": "browse", "shelf": "dead-letter", "after": "17", "limit": 1 }),
        json!({ "ask": "browse", "shelf": "dead-letter", "after": "parking/", "limit": 1 }),
        json!({ "ask": "browse", "shelf": "dead-letter", "after": "dead-letter/x", "limit": 1 }),
        json!({ "ask": "browse", "shelf": "dead-letter", "after": null, "limit": -1 }),
        json!({ "ask": "browse", "shelf": "dead-letter", "after": null, "limit": 1e300 }),
        json!({ "ask": "redrive", "shelf": "dead-letter", "which": "some" }),
        json!({ "ask": "redrive", "shelf": "dead-letter", "which": { "handles": ["17"] } }),
        json!({ "ask": "discard", "shelf": "dead-letter", "which": { "handles": [1] } }),
        json!({ "ask": "replace", "entry": "dead-letter/x", "message": both }),
        json!({ "ask": "redrive-as", "entry": "dead-letter/", "message": message }),
        json!({ "ask": "restore", "shelf": "dead-letter", "message": more }),
        json!({ "ask": "restore", "shelf": "dead-letter", "message": tagged }),
        json!({ "ask": "restore", "shelf": "dead-letter" }),
        json!({ "ask": "take-reports" }),
    ];
    let mut frames: Vec<_> = asked.iter().map(|json| json.to_string().into_bytes()).collect();
    frames.extend([Vec::new(), vec![0xff, 0xfe], b"\"\\ud800\"".to_vec(), deep, deep_header]);
    frames.extend((0..20).map(|seed| noise(seed, 300)));
    frames
}

#[tokio::test]
async fn a_service_survives_whatever_it_is_sent() {
    let service = Service::with(3).await;
    let path = service.socket.path();
    let mut sent = 0;
    for frame in frames() {
        // Instead of an opening, and instead of a request.
        let mut stranger = Raw::greeted(path).await;
        stranger.send_frame(&frame).await;
        let answer = stranger.receive().await.expect("an answer");
        assert!(answer["refused"]["text"].is_string(), "{answer}");
        assert_eq!(stranger.receive().await, None, "it is not let in");
        let mut operator = Raw::opened(path).await;
        operator.send_frame(&frame).await;
        let answer = operator.receive().await.expect("an answer");
        assert!(answer["refused"]["text"].is_string(), "{answer}: {:?}", String::from_utf8_lossy(&frame));
        sent += 1;
    }
    assert!(sent > 40);
    for bytes in [
        &b""[..],
        b"\0",
        b"\0\0\0\x09short",
        b"\xff\xff\xff\xff",
        b"\x04\0\0\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        &noise(7, 5000),
    ] {
        for open in [false, true] {
            let mut raw = if open { Raw::opened(path).await } else { Raw::greeted(path).await };
            raw.send_bytes(bytes).await;
            tokio::io::AsyncWriteExt::shutdown(&mut raw.0).await.expect("shut down");
            while raw.receive().await.is_some() {}
        }
    }
    // What is announced as too large is not waited for.
    let mut raw = Raw::opened(path).await;
    raw.send_bytes(&(64 * 1024 * 1024 + 1_u32).to_be_bytes()).await;
    let closed = tokio::time::timeout(BEFORE_A_STALL, raw.receive()).await;
    assert_eq!(closed.expect("it is closed at once"), None);
    // What is no request ends the connection: nothing that follows is believed.
    let mut raw = Raw::opened(path).await;
    raw.send_frame(&noise(7, 50)).await;
    raw.send(&json!({ "ask": "discard", "shelf": "dead-letter", "which": "all" })).await;
    assert!(raw.receive().await.expect("an answer")["refused"]["text"].is_string());
    assert_eq!(raw.receive().await, None);
    assert_eq!(service.shelved(), 3);
    assert_eq!(service.operator().await.count(Shelf::DeadLetter).await.expect("counted"), 3);
}

#[tokio::test]
async fn an_operator_survives_whatever_it_is_told() {
    let (_folder, path) = place();
    let listener = UnixListener::bind(&path).expect("bound");
    let (greeting, first) = ("a greeting", "an answer");
    let cases: Vec<(&str, Vec<u8>)> = [
        (greeting, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        (greeting, b"\0\0\0\x02{}".to_vec()),
        (greeting, b"\0\0\0\x1e{\"protocol\":\"docker\",\"v\":1}   ".to_vec()),
        (greeting, b"\xff\xff\xff\xff".to_vec()),
        (greeting, noise(1, 200)),
        (greeting, Vec::new()),
        (first, b"\0\0\0\x02{}".to_vec()),
        (first, b"\0\0\0\x0b{\"count\":-1}".to_vec()),
        (first, b"\0\0\0\x09{\"count\":".to_vec()),
        // Entries that never come, and ones that are none.
        (first, frame(&json!({ "page": { "entries": 3, "next": null } }))),
        (first, frame(&json!({ "page": { "entries": 0, "next": "17" } }))),
        (
            first,
            [frame(&json!({ "page": { "entries": u64::MAX, "next": null } })), frame(&json!({}))].concat(),
        ),
        (first, [frame(&json!({ "page": { "entries": 1, "next": null } })), frame(&json!("x"))].concat()),
        (
            first,
            [
                frame(&json!({ "report": { "results": 1, "stopped": null, "left_out": 0, "held": 0 } })),
                frame(&json!({})),
            ]
            .concat(),
        ),
        (first, frame(&json!("done"))),
        (first, noise(2, 200)),
    ]
    .into();
    for (place, bytes) in cases {
        let service = async {
            if place == greeting {
                let mut raw = Raw(listener.accept().await.expect("an operator").0);
                raw.send_bytes(&bytes).await;
            } else {
                let mut raw = Raw::accepted(&listener).await;
                raw.receive().await;
                raw.send_bytes(&bytes).await;
            }
        };
        let operator = async {
            let shelves = SocketShelves::connect(&path, "orders").await?;
            shelves.browse(Shelf::DeadLetter, None, 10).await
        };
        let ((), error) = tokio::join!(service, operator);
        let error = error.expect_err("it is no answer");
        let kinds =
            [TransportErrorKind::Topology, TransportErrorKind::Unreachable, TransportErrorKind::Other];
        assert!(kinds.contains(&error.kind()), "{error}: {bytes:?}");
    }
}

fn frame(json: &serde_json::Value) -> Vec<u8> {
    let text = json.to_string();
    [&u32::try_from(text.len()).expect("small").to_be_bytes()[..], text.as_bytes()].concat()
}
