//! The file of a socket.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use redrive_core::{Shelf, Shelves as _};
use redrive_memory::MemoryBroker;
use redrive_ops::{BindError, OperatorSocket, OperatorSocketBuilder, SocketShelves};

use crate::place;

fn socket() -> OperatorSocketBuilder {
    OperatorSocket::builder().queue("orders", MemoryBroker::new().shelves("orders"))
}

#[tokio::test]
async fn a_socket_of_a_dead_process_is_replaced() {
    let (_folder, path) = place();
    // As a process that is killed leaves it.
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    let open = socket().bind(&path).await.expect("it opens");
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    assert_eq!(operator.count(Shelf::DeadLetter).await.expect("counted"), 0);
    open.close().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_of_a_living_process_is_refused_and_left_alone() {
    let (_folder, path) = place();
    let first = socket().bind(&path).await.expect("it opens");
    let refused = socket().bind(&path).await.expect_err("it is used");
    assert!(matches!(refused, BindError::InUse(_)) && refused.to_string().contains("choose another path"));
    SocketShelves::connect(&path, "orders").await.expect("the first one goes on");
    drop(first);
    assert!(!path.exists());
    socket().bind(&path).await.expect("nobody has it").close().await;

    // Of another program, which knows nothing of the lock.
    let other = UnixListener::bind(&path).expect("bound");
    let refused = socket().bind(&path).await.expect_err("it is used");
    assert!(matches!(refused, BindError::InUse(_)), "{refused}");
    assert!(path.exists());
    drop(other);
    socket().bind(&path).await.expect("nobody has it").close().await;
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let (folder, path) = place();
    fs::write(&path, "precious").expect("written");
    let refused = socket().bind(&path).await.expect_err("it is a file");
    assert!(matches!(refused, BindError::NotASocket(_)), "{refused}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    let missing = socket().bind(folder.path().join("missing/redrive.sock")).await.expect_err("no folder");
    assert!(missing.to_string().contains("missing/redrive.sock"), "{missing}");
    let long = folder.path().join("long".repeat(40));
    let long = socket().bind(long).await.expect_err("no socket has such a path");
    assert!(matches!(long, BindError::Io { .. }), "{long}");
}

#[tokio::test]
async fn what_took_its_place_is_not_removed() {
    let (_folder, path) = place();
    let open = socket().bind(&path).await.expect("it opens");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "precious").expect("written");
    open.close().await;
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
}

#[tokio::test]
async fn only_the_user_of_the_service_may_use_it_by_default() {
    let (_folder, path) = place();
    let mode = || fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
    let open = socket().bind(&path).await.expect("it opens");
    assert_eq!(mode(), 0o600);
    open.close().await;
    let open = socket().mode(0o660).bind(&path).await.expect("it opens");
    assert_eq!(mode(), 0o660);
    open.close().await;
}
