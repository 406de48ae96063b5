//! The AMQP 0-9-1 handshake without a client library: a broker is ready only if it opens a connection.
//!
//! RabbitMQ listens before its virtual host is up, and `rabbitmqctl await_startup` fails while the node is not registered yet. So
//! this goes as far as `connection.open-ok`, as guest on `/`.

use anyhow::{Context as _, Result, bail, ensure};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The broker's introduction, before any login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The `version` of its server properties, for example `3.10.8`.
    pub release: String,
    /// The `cluster_name` of its server properties: for a single node, the node's name.
    pub cluster: String,
}

/// Connects, and reads how the broker introduces itself. Proves that it listens, not that it is ready.
///
/// # Errors
/// When nobody listens there, does not speak AMQP 0-9-1, or is silent for `patience`.
pub fn greet(address: SocketAddr, patience: Duration) -> Result<Greeting> {
    Ok(connect(address, patience)?.1)
}

/// Opens an AMQP connection as guest on the virtual host `/`, and closes it again.
///
/// # Errors
/// When nobody listens there, does not speak AMQP 0-9-1, refuses guest, or is silent for `patience`.
pub fn open(address: SocketAddr, patience: Duration) -> Result<Greeting> {
    let (mut stream, greeting) = connect(address, patience)?;
    // start-ok: empty client properties, mechanism, response, locale.
    let mut start_ok = vec![0, 0, 0, 0];
    start_ok.extend(b"\x05PLAIN\x00\x00\x00\x0c\x00guest\x00guest\x05en_US");
    send(&mut stream, 11, &start_ok)?;
    // tune-ok: what the broker proposed.
    let tune = expect(&mut stream, 30, "connection.tune")?;
    send(&mut stream, 31, &tune)?;
    // open: virtual host `/` and two reserved fields.
    send(&mut stream, 40, b"\x01/\x00\x00")?;
    expect(&mut stream, 41, "connection.open-ok")?;
    // close with code 200, so that the broker does not log a lost connection.
    send(&mut stream, 50, b"\x00\xc8\x00\x00\x00\x00\x00")?;
    expect(&mut stream, 51, "connection.close-ok")?;
    Ok(greeting)
}

/// Repeats [`open`] until it succeeds.
///
/// # Errors
/// The last error of [`open`] when `patience` is over, or at once the error of `still_alive`, which is
/// asked before each try.
pub fn wait(
    address: SocketAddr,
    patience: Duration,
    mut still_alive: impl FnMut() -> Result<()>,
) -> Result<Greeting> {
    let began = Instant::now();
    loop {
        still_alive()?;
        match open(address, Duration::from_secs(5)) {
            Ok(greeting) => return Ok(greeting),
            Err(error) if began.elapsed() > patience => {
                return Err(error.context(format!("no AMQP connection to {address} in {patience:?}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// As far as the broker's `connection.start`.
fn connect(address: SocketAddr, patience: Duration) -> Result<(TcpStream, Greeting)> {
    let mut stream = TcpStream::connect_timeout(&address, patience)
        .with_context(|| format!("nobody listens on {address}"))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    let start = expect(&mut stream, 10, "connection.start")?;
    let property = |name| text_property(&start, name).unwrap_or_default();
    let greeting = Greeting { release: property("version"), cluster: property("cluster_name") };
    Ok((stream, greeting))
}

/// Sends a method of the class `connection`.
fn send(stream: &mut TcpStream, method: u16, arguments: &[u8]) -> Result<()> {
    let mut frame = vec![1, 0, 0];
    frame.extend(u32::try_from(arguments.len() + 4)?.to_be_bytes());
    frame.extend(10_u16.to_be_bytes());
    frame.extend(method.to_be_bytes());
    frame.extend(arguments);
    frame.push(0xCE);
    Ok(stream.write_all(&frame)?)
}

/// Reads one frame, which must be `method` of the class `connection`; gives back its arguments.
fn expect(stream: &mut TcpStream, method: u16, name: &str) -> Result<Vec<u8>> {
    let peer = stream.peer_addr()?;
    let mut head = [0; 7];
    stream.read_exact(&mut head).with_context(|| format!("{peer} sent no {name}"))?;
    ensure!(head[0] == 1, "{peer} sent {head:?} instead of {name}: it does not speak AMQP 0-9-1");
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    ensure!(length < 1 << 20, "{peer} announced a frame of {length} bytes instead of {name}");
    let mut body = vec![0; length as usize + 1];
    stream.read_exact(&mut body).with_context(|| format!("{peer} sent half of {name}"))?;
    body.pop();
    let got = body.get(..4).unwrap_or_default();
    if got != [[0, 10], method.to_be_bytes()].concat() {
        bail!("{peer} sent {} instead of {name}", String::from_utf8_lossy(&body));
    }
    Ok(body.split_off(4))
}

/// A long string of the server properties, found by its name without reading the rest of the table.
fn text_property(start: &[u8], name: &str) -> Option<String> {
    let mut key = vec![u8::try_from(name.len()).ok()?];
    key.extend(name.as_bytes());
    key.push(b'S');
    let at = start.windows(key.len()).position(|window| window == key)? + key.len();
    let length = u32::from_be_bytes(start.get(at..at + 4)?.try_into().ok()?) as usize;
    Some(String::from_utf8_lossy(start.get(at + 4..at + 4 + length)?).into_owned())
}
