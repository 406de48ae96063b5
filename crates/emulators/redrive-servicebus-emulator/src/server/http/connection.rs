//! Accepts connections. The task of one connection handles requests one after the other, and notifications from the rest of the emulator.

use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use redrive_emulator_host::{Accepting, Door, Listeners};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use super::call::Caller;
use crate::server::mailbox::Mailbox;
use crate::server::shared_state::SharedState;

/// Maximum number of bytes of a request's head: Service Bus accepts 64 KiB of properties, which are longer in this encoding.
const MAX_HEAD: usize = 512 * 1024;
/// Maximum number of header lines.
const MAX_HEADERS: usize = 1000;

pub(crate) fn accept(listeners: Listeners, door: &Arc<Option<Door>>, shared: &Arc<SharedState>) -> Accepting {
    let door = Arc::clone(door);
    let serving = Arc::clone(shared);
    let closing = Arc::clone(shared);
    Accepting::start(
        listeners,
        // Registered before its task begins: if the emulator ends in between, the connection is notified.
        move |stream, _| serve(stream, Arc::clone(&door), Registered::new(&serving)),
        move || closing.post_to_all(|mail| mail.close = true),
    )
}

/// Serves one client until either side ends it.
async fn serve(stream: TcpStream, door: Arc<Option<Door>>, registered: Registered) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "connection ended");
        return;
    }
    let (ending, ends) = watch::channel(false);
    let wake = Arc::new(Notify::new());
    let caller = Caller {
        shared: Arc::clone(&registered.shared),
        connection: registered.mailbox.id,
        wake: Arc::clone(&wake),
        door,
        ends,
    };
    let service = service_fn(move |request| caller.clone().answer(request));
    let mut builder = http1::Builder::new();
    // With a timer, a client that does not finish its request is not waited for (30 s).
    builder.timer(TokioTimer::new());
    builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(connection = registered.mailbox.id, %error, "connection ended");
                }
                return;
            }
            () = registered.mailbox.changed() => {
                let mail = registered.mailbox.take();
                if mail.drop {
                    return;
                }
                if mail.close {
                    ending.send_replace(true);
                    connection.as_mut().graceful_shutdown();
                }
                if !mail.wake.is_empty() {
                    wake.notify_one();
                }
            }
        }
    }
}

/// Registers the connection until this is dropped, even if the task is aborted.
struct Registered {
    shared: Arc<SharedState>,
    mailbox: Arc<Mailbox>,
}

impl Registered {
    fn new(shared: &Arc<SharedState>) -> Self {
        Self { mailbox: shared.connect(), shared: Arc::clone(shared) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.disconnect(self.mailbox.id);
    }
}
