//! `redrive exporter`: the metrics of shelves, for Prometheus.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use redrive::ops::{CONTENT_TYPE as OPEN_METRICS, ShelfExporter};

use crate::args::{Exporter, Global};
use crate::desk::{State, connect_all};
use crate::exit::{EndSignals, Exit};

pub(crate) async fn run(global: &Global, command: Exporter) -> Result<Exit> {
    let context = global.broker()?;
    let listener =
        TcpListener::bind(command.listen).with_context(|| format!("cannot listen on {}", command.listen))?;
    listener.set_nonblocking(true)?;
    let journals = State::open(global)?.journals()?;
    let mut exporter = ShelfExporter::new().interval(command.interval).journals(journals, context.label());
    for desk in connect_all(global, &context, &command.queues.queues).await? {
        exporter = if command.count_only {
            exporter.count_only(desk.queue, desk.shelves)
        } else {
            exporter.watch(desk.queue, desk.shelves)
        };
    }
    let metrics = Arc::new(exporter.start());
    let page = move || {
        let metrics = Arc::clone(&metrics);
        async move { ([(CONTENT_TYPE, OPEN_METRICS)], metrics.render()) }
    };
    let mut end_signals = EndSignals::claim();
    crate::output::print(&format!("http://{}/metrics", listener.local_addr()?));
    crate::output::finish()?;
    let app = Router::new().route("/metrics", get(page));
    let serving = axum_server::from_tcp(listener)?.serve(app.into_make_service());
    tokio::select! {
        served = serving => served.map(|()| Exit::Ok).context("the page of metrics ended"),
        () = end_signals.next() => Ok(Exit::Ok),
    }
}
