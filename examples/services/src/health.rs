//! A web service with two consumers: it takes orders by HTTP, and tells an orchestrator how its consumers are.
//!
//! ```console
//! $ cargo run --package services -- health
//! $ curl --data 'a lamp' localhost:8080/orders
//! $ curl --include localhost:8080/ready
//! ```

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use redrive::ConsumersHandle;
use redrive::memory::MemoryBroker;
use redrive::prelude::{BoxError, Consumer, Consumers, Message, Publisher, secs, shutdown_signal};
use tokio::net::TcpListener;

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    let consumers = consumers(broker);
    let pages = pages(consumers.handle(), broker.transport("orders").publisher());
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // The pages answer until the process ends, also while the last handlers finish.
    tokio::spawn(async move { axum::serve(listener, pages).await });

    // The error of a consumer ends the other one too, and then the process: something outside starts it again.
    for (queue, report) in consumers.run_until(shutdown_signal()).await? {
        println!("{queue}: {} handled", report.acknowledged);
    }
    Ok(())
}

fn consumers(broker: &MemoryBroker) -> Consumers {
    let orders = Consumer::new(broker.transport("orders")).with_dead_letter_backoff([secs(1), secs(10)]);
    let invoices = Consumer::new(broker.transport("invoices")).with_dead_letter_backoff([secs(30)]);
    Consumers::new().with(orders.handler(ship)).with(invoices.grace(secs(60)).handler(send))
}

async fn ship(order: String, publisher: Publisher) -> Result<(), BoxError> {
    println!("shipping {order}");
    publisher.to("invoices").publish(Message::new(order)).await?;
    Ok(())
}

async fn send(invoice: String) {
    println!("sending the invoice for {invoice}");
}

fn pages(consumers: ConsumersHandle, orders: Publisher) -> axum::Router {
    axum::Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .with_state(consumers)
        .route("/orders", post(accept).with_state(orders))
}

/// For the liveness probe: fails only where a restart would help. A broker that is away is no reason to restart.
async fn live(State(consumers): State<ConsumersHandle>) -> (StatusCode, String) {
    page(consumers.is_live(), &consumers)
}

/// For the readiness probe and for alerts: fails while a consumer takes no messages.
async fn ready(State(consumers): State<ConsumersHandle>) -> (StatusCode, String) {
    page(consumers.is_ready(), &consumers)
}

fn page(is_well: bool, consumers: &ConsumersHandle) -> (StatusCode, String) {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let lines = consumers.health().iter().map(|(queue, health)| format!("{queue}: {health}\n")).collect();
    (status, lines)
}

/// `202` once the broker has confirmed the order; until then the client still has it.
async fn accept(State(orders): State<Publisher>, order: String) -> StatusCode {
    match orders.publish(Message::new(order)).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(error) => {
            eprintln!("not published: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::empty;

    #[tokio::test(start_paused = true)]
    async fn a_paused_consumer_is_live_and_not_ready() -> Result<(), BoxError> {
        let broker = MemoryBroker::new();
        let consumers = consumers(&broker);
        let handle = consumers.handle();
        let pages = pages(handle.clone(), broker.transport("orders").publisher());
        let status =
            async |request: Request<Body>| pages.clone().oneshot(request).await.map(|it| it.status());
        let get = async |path: &str| status(Request::get(path).body(Body::empty()).expect("a request")).await;

        assert_eq!(
            (get("/live").await?, get("/ready").await?),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        let order = Request::post("/orders").body(Body::from("a lamp"))?;
        assert_eq!(status(order).await?, StatusCode::ACCEPTED);

        let probing = async {
            empty(&broker, &["orders", "invoices"]).await;
            assert_eq!((get("/live").await?, get("/ready").await?), (StatusCode::OK, StatusCode::OK));
            let (_, orders) = handle.iter().next().expect("two consumers");
            orders.pause();
            orders.wait_for_health(|health| !health.is_ready()).await;
            assert_eq!(
                (get("/live").await?, get("/ready").await?),
                (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
            );
            handle.stop();
            Ok::<_, BoxError>(())
        };
        let (reports, probed) = tokio::join!(consumers.run_until(std::future::pending()), probing);
        probed?;
        let handled: Vec<_> = reports?.into_iter().map(|(_, report)| report.acknowledged).collect();
        assert_eq!(handled, [1, 1]);
        Ok(())
    }
}
