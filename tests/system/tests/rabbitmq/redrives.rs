//! A redrive that is interrupted: every message is on the shelf or in its queue, and the next redrive finishes it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lapin::options::BasicGetOptions;
use redrive::shelves::Selection;
use redrive::transport::Needs;
use redrive::{Message, Shelf, Shelves as _, Transport as _, header_names, millis};
use redrive_brokers::{Proxy, broker};
use redrive_contract::Started;
use redrive_system_tests::rabbit::{Rabbit, publish};
use redrive_system_tests::{Combination, on_four_combinations};

on_four_combinations!(900; a_redrive_cut_off_half_way_loses_nothing);

const MESSAGES: usize = 390;
const CUTS: usize = 12;

async fn a_redrive_cut_off_half_way_loses_nothing(on: Combination) {
    let url = broker(on.version).url;
    let queue = on.unique("redrive");
    let direct = on.options(&queue).connect(&url).await.unwrap();
    // Declares the queues; nobody consumes.
    let direct = Started::open(direct, &Needs::none()).await.unwrap();
    direct.pause().await.unwrap();
    let ids: BTreeSet<String> = (0..MESSAGES).map(|number| format!("m-{number}")).collect();
    for id in &ids {
        let shelved = Message::new("x").with_id(id).with_header(header_names::ATTEMPT, 5_i64);
        publish(&direct.publisher().to(format!("{queue}--dead-letters")), shelved).await;
    }

    let address: SocketAddr = address(&url);
    let rabbit = Rabbit::connect(&url).await;
    for cut in 1..=CUTS {
        let proxy = Proxy::start(address).await.unwrap();
        let through = url.replace(&address.to_string(), &proxy.addr().to_string());
        let options = on.options(&queue).confirm_timeout(millis(300));
        let operator = options.connect(&through).await.unwrap();
        let shelves = operator.shelves();
        // So slow that it is not done before it is seen how far it came.
        proxy.delay(millis(5));
        let cutting = async {
            // Every millisecond: a part takes few.
            while (rabbit.ready(&queue).await.unwrap_or(0) as usize) < cut * MESSAGES / (CUTS + 1) {
                tokio::time::sleep(millis(1)).await;
            }
            // For good, as if the operator's machine had died.
            proxy.refuse(true);
            proxy.cut();
        };
        let redriving = async { shelves.redrive(Shelf::DeadLetter, &Selection::All).await?.into_result() };
        tokio::pin!(redriving);
        let redriven = tokio::select! {
            () = cutting => redriving.await,
            // A confirm that was late, on a busy machine; or it was done before the cut.
            redriven = &mut redriving => redriven,
        };
        if redriven.is_ok() {
            let left =
                direct.shelves().browse(Shelf::DeadLetter, None, MESSAGES).await.unwrap().entries.len();
            // What those who were cut off had in flight may have come back since: one message each.
            assert!(left <= cut, "cut off with {left} to go, and said to be done: {redriven:?}");
        }
    }

    // Whatever was in flight is back on the shelf sooner or later; one or a few may be in both places.
    let shelves = direct.shelves();
    let channel = rabbit.channel().await;
    let (mut done, mut found) = (0, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        done += shelves.redrive(Shelf::DeadLetter, &Selection::All).await.unwrap().into_result().unwrap();
        while let Some(message) =
            channel.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap()
        {
            let properties = &message.delivery.properties;
            found.push(properties.message_id().as_ref().expect("an id").as_str().to_owned());
            let headers = properties.headers().as_ref().expect("headers");
            assert!(!headers.contains_key(header_names::ATTEMPT), "a redrive is a first attempt again");
        }
        let all = ids.iter().all(|id| found.contains(id));
        let left = shelves.browse(Shelf::DeadLetter, None, MESSAGES).await.unwrap().entries;
        if all && left.is_empty() || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(millis(50)).await;
    }
    assert!((done as usize) < MESSAGES, "nothing had been redriven before the cut");
    let once: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(ids.difference(&once).collect::<Vec<_>>(), Vec::<&String>::new(), "lost");
    // Each cut may cost the confirm of one message, and the ack of the one before it, which goes its own way.
    assert!(found.len() <= MESSAGES + 2 * CUTS, "{} copies of {MESSAGES} messages", found.len());
    direct.close().await;
    let names = ["", "--dead-letters", "--parking-lot"].map(|suffix| format!("{queue}{suffix}"));
    rabbit.delete(names).await;
}

fn address(url: &str) -> SocketAddr {
    let host = url.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("a host");
    host.parse().unwrap_or_else(|_| panic!("`{host}` is no address: give the broker as IP:port"))
}
