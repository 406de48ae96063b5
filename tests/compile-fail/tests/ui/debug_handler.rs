//! One mistake each: the compiler says which.
#![allow(unused)]
use std::rc::Rc;

use redrive::prelude::*;

#[derive(Clone)]
struct Db;

struct Order;

#[debug_handler]
fn not_async(order: String) {}

#[debug_handler]
async fn wrong_answer() -> u32 {
    1
}

#[debug_handler]
async fn no_extractor(order: Order) {}

#[debug_handler]
async fn body_without_deserialize(Json(order): Json<Order>) {}

#[debug_handler]
async fn borrowed(order: &str) {}

#[debug_handler]
async fn not_send(order: String) {
    let order = Rc::new(order);
    std::future::ready(()).await;
    drop(order);
}

#[debug_handler]
async fn nine(a: String, b: String, c: String, d: String, e: String, f: String, g: String, h: String, i: String) {}

#[debug_handler(state = String)]
async fn state_of_another_type(State(db): State<Db>) {}

#[debug_handler]
async fn several_parts(State(db): State<Db>, State(name): State<String>) {}

#[debug_handler]
async fn attempt_beside_batch(attempt: Attempt, orders: Batch<String>) {}

#[debug_handler]
async fn batch_of_nothing(orders: Batch<Order>) -> Vec<u32> {
    Vec::new()
}

#[debug_handler]
struct NoFunction;

fn main() {}
