//! The proxy, in front of a plain echo.

use redrive_brokers::Proxy;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _until_closed = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn answer(stream: &mut TcpStream) -> std::io::Result<u8> {
    timeout(Duration::from_secs(120), stream.read_u8()).await.expect("no answer")
}

/// Long enough for an echo over loopback, by far.
async fn silent(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(150), stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn frozen_connections_are_silent_and_lose_nothing() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut old = TcpStream::connect(proxy.addr()).await.unwrap();
    old.write_all(b"1").await.unwrap();
    assert_eq!(answer(&mut old).await.unwrap(), b'1');

    proxy.freeze();
    let mut new = TcpStream::connect(proxy.addr()).await.unwrap();
    old.write_all(b"2").await.unwrap();
    new.write_all(b"3").await.unwrap();
    assert!(silent(&mut old).await && silent(&mut new).await);

    proxy.thaw();
    assert_eq!(answer(&mut old).await.unwrap(), b'2');
    assert_eq!(answer(&mut new).await.unwrap(), b'3');
}

#[tokio::test]
async fn a_cut_resets_connections_even_frozen_ones_and_spares_new_ones() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    for frozen in [false, true] {
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        stream.write_all(b"1").await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap(), b'1');
        if frozen {
            proxy.freeze();
        }
        proxy.cut();
        let error = answer(&mut stream).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn refused_connections_end_and_later_ones_work() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    proxy.refuse(true);
    if let Ok(mut stream) = TcpStream::connect(proxy.addr()).await {
        assert!(answer(&mut stream).await.is_err());
    }
    proxy.refuse(false);
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream.write_all(b"1").await.unwrap();
    assert_eq!(answer(&mut stream).await.unwrap(), b'1');
}

#[tokio::test]
async fn a_delay_holds_back_both_directions() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    proxy.delay(Duration::from_millis(100));
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let began = Instant::now();
    stream.write_all(b"1").await.unwrap();
    assert_eq!(answer(&mut stream).await.unwrap(), b'1');
    assert!(began.elapsed() >= Duration::from_millis(200), "took {:?}", began.elapsed());
}

#[tokio::test]
async fn the_end_of_a_stream_passes_through() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream.write_all(b"bye").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    timeout(Duration::from_secs(120), stream.read_to_string(&mut all)).await.unwrap().unwrap();
    assert_eq!(all, "bye");
}
