use std::future::pending;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::*;

/// Greets every client, and says goodbye to those of the main protocol when they are asked to end.
struct Greeter;

struct Shared {
    ending: watch::Sender<bool>,
    /// Dropped with this value.
    alive: Mutex<Option<oneshot::Sender<()>>>,
}

impl Plan for Greeter {
    type Shared = Shared;
    type Change = ();
    type Error = ListenError;

    fn open(&self) -> Result<Arc<Shared>, ListenError> {
        Ok(Arc::new(Shared { ending: watch::Sender::new(false), alive: Mutex::default() }))
    }

    fn accept(&self, listeners: Listeners, shared: &Arc<Shared>) -> Accepting {
        let serving = Arc::clone(shared);
        let closing = Arc::clone(shared);
        let serve = move |mut stream: TcpStream, _| {
            let mut ending = serving.ending.subscribe();
            async move {
                stream.write_all(b"hello").await.expect("a client that reads");
                ending.wait_for(|ending| *ending).await.expect("it is alive");
                stream.write_all(b", goodbye").await.expect("a client that reads");
            }
        };
        Accepting::start(listeners, serve, move || {
            closing.ending.send_replace(true);
        })
    }

    fn accept_http(&self, listeners: Listeners, _: &Arc<Shared>) -> Option<Accepting> {
        Some(Accepting::until_aborted(listeners, |mut stream, _| async move {
            stream.write_all(b"hello").await.expect("a client that reads");
            pending::<()>().await;
        }))
    }

    async fn pass_time(shared: Arc<Shared>) {
        let _shared = shared;
        pending::<()>().await;
    }

    fn journal(_: &Shared) -> Option<&Journal<()>> {
        None
    }
}

async fn start(listen: Vec<Listen>) -> Host<Greeter> {
    Host::start(Greeter, listen, &[Listen::required("127.0.0.1:0")]).await.expect("free ports")
}

/// Returns a client of this address that was greeted.
async fn client(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("somebody listens");
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.expect("a greeting");
    stream
}

/// Returns what comes until the connection ends.
async fn rest(mut stream: TcpStream) -> io::Result<String> {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.map(|_| rest)
}

#[tokio::test]
async fn a_stop_closes_connections_in_order_and_a_crash_does_not() {
    let host = start(Vec::new()).await;
    let (main, http) = (client(host.address()).await, client(host.http_addresses()[0]).await);
    host.stop().await;
    assert_eq!(rest(main).await.expect("an end in order"), ", goodbye");
    assert_eq!(rest(http).await.unwrap_or_default(), "");

    host.restart().await.expect("its ports");
    let (main, http) = (client(host.address()).await, client(host.http_addresses()[0]).await);
    host.crash().await;
    for address in [host.address(), host.http_addresses()[0]] {
        TcpStream::connect(address).await.expect_err("nobody listens");
    }
    assert_eq!(rest(main).await.unwrap_or_default(), "");
    assert_eq!(rest(http).await.unwrap_or_default(), "");
    // Neither has anything to end.
    host.crash().await;
    host.stop().await;
}

#[tokio::test]
async fn a_running_emulator_that_restarts_begins_with_another_state() {
    let host = start(Vec::new()).await;
    let before = host.shared();
    let main = client(host.address()).await;
    host.restart().await.expect("its ports");
    assert_eq!(rest(main).await.unwrap_or_default(), "", "it crashed");
    assert!(!Arc::ptr_eq(&host.shared(), &before));
    client(host.address()).await;
    client(host.http_addresses()[0]).await;
}

#[tokio::test]
async fn nothing_is_left_of_an_emulator_that_is_dropped() {
    let host = start(Vec::new()).await;
    let (alive, gone) = oneshot::channel();
    *host.shared().alive.lock() = Some(alive);
    let main = client(host.address()).await;
    drop(host);
    assert_eq!(rest(main).await.unwrap_or_default(), "", "it ends like a killed process");
    gone.await.expect_err("the state was dropped");
}

#[tokio::test]
async fn the_first_address_is_one_that_is_listened_on() {
    // For documentation: no machine has it.
    let missing = "192.0.2.1:0";
    for wanted in [vec![], vec![Listen::if_available(missing)]] {
        let host = start(wanted).await;
        assert_eq!(host.addresses().len(), 1);
        client(host.address()).await;
    }
    let host = start(vec![Listen::required("127.0.0.1:0"), Listen::if_available(missing)]).await;
    assert_eq!(host.addresses().len(), 1);
    Host::start(Greeter, vec![Listen::required(missing)], &[])
        .await
        .map(drop)
        .expect_err("no machine has it");
}
