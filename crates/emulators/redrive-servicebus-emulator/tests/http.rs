//! The run-time REST API, spoken as plainly as it can be: what is written here is what goes over the wire.
#![cfg(feature = "http")]

use std::time::Duration;

use redrive_servicebus_emulator::{Emulator, Settings, Topic};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn emulator() -> Result<Emulator> {
    let topic = Topic::new("events", Settings::default()).subscription("audit", Settings::default());
    let builder = Emulator::builder().queue("orders", Settings::default()).topic(topic);
    Ok(builder.listen_http("127.0.0.1:0").start().await?)
}

async fn ask(emulator: &Emulator, request: &str, headers: &str, body: &str) -> Result<Answer> {
    ask_as(emulator, request, &format!("Host: localhost\r\n{headers}"), body).await
}

async fn ask_as(emulator: &Emulator, request: &str, headers: &str, body: &str) -> Result<Answer> {
    let address = emulator.http_address().ok_or("it listens for HTTP")?;
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let text =
        format!("{request} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(text.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("it has a head")?;
    let status = head.split(' ').nth(1).ok_or("it has a status")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

#[tokio::test]
async fn a_message_goes_in_and_comes_out_locked() -> Result<()> {
    let emulator = emulator().await?;
    let headers = "Content-Type: text/plain\r\nPriority: \"High\"\r\nCount: 12\r\n\
                   BrokerProperties: {\"MessageId\":\"a\",\"Label\":\"new\",\"TimeToLive\":90}\r\n";
    assert_eq!(ask(&emulator, "POST /orders/messages", headers, "hello").await?.status, 201);
    let locked = ask(&emulator, "POST /orders/messages/head?timeout=1", "", "").await?;
    assert_eq!((locked.status, locked.body.as_str()), (201, "hello"));
    assert_eq!(locked.header("content-type"), Some("text/plain"));
    assert_eq!(locked.header("priority"), Some("\"High\""));
    assert_eq!(locked.header("count"), Some("12"));
    let properties: serde_json::Value =
        serde_json::from_str(locked.header("brokerproperties").ok_or("they are there")?)?;
    assert_eq!(properties["DeliveryCount"], 1);
    assert_eq!((&properties["MessageId"], &properties["Label"]), (&"a".into(), &"new".into()));
    assert_eq!(properties["TimeToLive"], 90.0);
    let location = locked.header("location").ok_or("it says where it is")?;
    assert_eq!(emulator.entity("orders")?.counts().locked, 1);

    assert_eq!(ask(&emulator, &format!("POST {location}"), "", "").await?.status, 200, "renewed");
    assert_eq!(ask(&emulator, &format!("PUT {location}"), "", "").await?.status, 200, "unlocked");
    assert_eq!(
        ask(&emulator, &format!("DELETE {location}"), "", "").await?.status,
        404,
        "not locked any more"
    );
    let again = ask(&emulator, "POST /orders/messages/head?timeout=1", "", "").await?;
    assert!(again.header("brokerproperties").is_some_and(|text| text.contains("\"DeliveryCount\":2")));
    let location = again.header("location").ok_or("it says where it is")?;
    assert_eq!(ask(&emulator, &format!("DELETE {location}"), "", "").await?.status, 200);
    assert!(emulator.entity("orders")?.messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn whoever_waits_gets_what_comes() -> Result<()> {
    let emulator = emulator().await?;
    assert_eq!(ask(&emulator, "POST /orders/messages/head?timeout=0", "", "").await?.status, 204);
    let waits = ask(&emulator, "DELETE /events/Subscriptions/audit/messages/head?timeout=60", "", "");
    let sends = async {
        // Bounded by the request, which is answered after a minute.
        while emulator.entity("events/Subscriptions/audit")?.waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ask(&emulator, "POST /events/messages", "", "news").await
    };
    let (waited, sent) = tokio::join!(waits, sends);
    assert_eq!(sent?.status, 201);
    let waited = waited?;
    assert_eq!((waited.status, waited.body.as_str()), (200, "news"));
    assert_eq!(emulator.entity("events/Subscriptions/audit")?.waiting(), 0);
    Ok(())
}

#[tokio::test]
async fn a_scheduled_message_waits_for_its_time() -> Result<()> {
    let builder = Emulator::builder().virtual_clock().queue("orders", Settings::default());
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let headers = "BrokerProperties: {\"ScheduledEnqueueTimeUtc\":\"Thu, 01 Jan 2099 00:00:00 +0000\"}\r\n";
    assert_eq!(ask(&emulator, "POST /orders/messages", headers, "").await?.status, 201);
    assert_eq!(emulator.entity("orders")?.counts().scheduled, 1);
    emulator.advance(Duration::from_secs(200 * 366 * 86_400));
    assert_eq!(emulator.entity("orders")?.counts().active, 1);
    Ok(())
}

#[tokio::test]
async fn what_is_refused_is_refused_by_its_status() -> Result<()> {
    let builder = Emulator::builder().key("root", "secret").queue("orders", Settings::default());
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let answer = ask(&emulator, "POST /orders/messages", "Authorization: nobody\r\n", "").await?;
    assert_eq!(answer.status, 401);
    assert!(answer.body.contains("<Code>401</Code>"), "{}", answer.body);
    let open = self::emulator().await?;
    for (request, status) in [
        ("POST /nowhere/messages", 410),
        ("POST /orders/messages/head/more/and/more", 404),
        ("GET /orders/messages/head", 405),
        ("DELETE /orders/messages/1/00000000-0000-0000-0000-000000000001", 404),
        ("POST /orders/$deadletterqueue/messages", 400),
    ] {
        assert_eq!(ask(&open, request, "", "").await?.status, status, "{request}");
    }
    let large = "x".repeat(300 * 1024);
    assert_eq!(ask(&open, "POST /orders/messages", "", &large).await?.status, 403);
    let broken = "BrokerProperties: {\r\n";
    assert_eq!(ask(&open, "POST /orders/messages", broken, "").await?.status, 400);
    Ok(())
}

#[cfg(feature = "websockets")]
#[tokio::test]
async fn no_web_page_can_send_or_take_messages() -> Result<()> {
    let topic = Topic::new("events", Settings::default()).subscription("audit", Settings::default());
    let builder = Emulator::builder().queue("orders", Settings::default()).topic(topic).websockets();
    let emulator = builder.listen_http("127.0.0.1:0").http_name("bus.test").start().await?;
    for (headers, status) in [
        ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Host: evil.example\r\n", 403),
        ("", 403),
        ("Host: bus.test\r\n", 201),
        ("Host: localhost:1\r\nOrigin: http://localhost:1\r\n", 201),
    ] {
        let answer = ask_as(&emulator, "POST /orders/messages", headers, "x").await?;
        assert_eq!(answer.status, status, "{headers}");
        let socket = format!(
            "{headers}Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: amqp\r\n"
        );
        let mut stream = TcpStream::connect(emulator.address()).await?;
        let request = format!("GET /$servicebus/websocket HTTP/1.1\r\n{socket}Connection: Upgrade\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await?;
        let wanted = if status == 201 { "HTTP/1.1 101" } else { "HTTP/1.1 403" };
        assert_eq!(std::str::from_utf8(&first)?, wanted, "{headers}");
    }
    assert_eq!(emulator.entity("orders")?.messages().len(), 2);
    Ok(())
}

#[tokio::test]
async fn the_clock_cannot_be_moved_to_its_end() -> Result<()> {
    let emulator = Emulator::builder().virtual_clock().queue("orders", Settings::default()).start().await?;
    let before = emulator.now();
    emulator.advance(Duration::MAX);
    emulator.advance(Duration::from_millis(u64::MAX));
    assert_eq!(emulator.now(), before);
    emulator.advance(Duration::from_secs(1));
    assert_eq!(emulator.now().since(before), Duration::from_secs(1));
    Ok(())
}

#[tokio::test]
async fn a_time_to_live_is_a_positive_number_of_seconds() -> Result<()> {
    let emulator = emulator().await?;
    let send = async |time: &str| {
        let headers = format!("BrokerProperties: {{\"TimeToLive\":{time}}}\r\n");
        ask(&emulator, "POST /orders/messages", &headers, "").await
    };
    for time in ["-1", "-0.001", "0", "\"soon\"", "\"00:00:10\"", "true", "[]"] {
        let answer = send(time).await?;
        assert_eq!(answer.status, 400, "{time}");
        assert!(answer.body.contains("TimeToLive"), "{time}: {}", answer.body);
    }
    assert_eq!(emulator.entity("orders")?.messages().len(), 0);
    for time in ["0.5", "null", "922337203685.477", "1e300"] {
        assert_eq!(send(time).await?.status, 201, "{time}");
    }
    Ok(())
}

#[tokio::test]
async fn a_time_to_live_of_more_than_49_days_is_kept() -> Result<()> {
    let orders = Emulator::builder().queue("orders", Settings::default()).virtual_clock();
    let emulator = orders.listen_http("127.0.0.1:0").start().await?;
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let headers = "BrokerProperties: {\"TimeToLive\":5184000}\r\n";
    assert_eq!(ask(&emulator, "POST /orders/messages", headers, "").await?.status, 201);
    emulator.advance(days(59));
    let took = ask(&emulator, "POST /orders/messages/head?timeout=1", "", "").await?;
    assert!(took.head.contains("\"TimeToLive\":5184000"), "{}", took.head);
    emulator.entity("orders")?.expire_locks();
    emulator.advance(days(2));
    assert_eq!(emulator.entity("orders")?.counts().active, 0);
    Ok(())
}
