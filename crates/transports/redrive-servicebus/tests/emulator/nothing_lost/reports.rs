//! Tests of reports and pages for entries that were not processed or could not be read.

use redrive_core::shelves::{EntryOutcome, Selection, ShelfReport};
use redrive_core::{BoxError, Disposition, Message, Shelf, Shelves as _, Transport as _};
use redrive_servicebus::{Options, ServiceBus, ServiceBusShelves, Transactions};
use redrive_servicebus_emulator::{Effect, Fault, Settings, Step};

use super::bench::{DEAD_LETTERS, QUEUE, broken, emulator, settle_next, started};

fn refused(step: Step, entity: &str, condition: &str) -> Fault {
    Fault::new(step, Effect::Refuse { condition: condition.to_owned() }).on(entity)
}

/// Returns the shelves of a queue whose dead-letter shelf holds these messages.
async fn shelves_with(
    address: &str,
    options: Options,
    ids: &[&'static str],
) -> Result<ServiceBusShelves, BoxError> {
    let transport = started(address, options.clone()).await?;
    for id in ids {
        transport.publish(Message::new("").with_id(*id)).await?;
        settle_next(&transport, Disposition::DeadLetter(broken())).await?;
    }
    transport.close().await;
    Ok(options.connect(address).await?.shelves())
}

/// Returns the outcome of the entry with this id.
fn said_of<'a>(report: &'a ShelfReport, id: &str) -> Result<String, &'a ShelfReport> {
    let entry = report.entries.iter().find(|entry| entry.id.as_deref() == Some(id)).ok_or(report)?;
    match &entry.outcome {
        EntryOutcome::Failed(error) => Ok(error.to_string()),
        _ => Err(report),
    }
}

#[tokio::test]
async fn of_an_entry_that_comes_no_more_its_stored_copy_is_reported() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let options = ServiceBus::options(QUEUE).transactions(Transactions::Off);
    let shelves = shelves_with(&emulator.connection_string(), options, &["a", "b"]).await?;
    // The copy of "a" is stored and its lock is reported as lost. Before "a" is redelivered, the copy of "b" fails with an error
    // that ends the work.
    emulator.inject(refused(Step::Request, DEAD_LETTERS, "com.microsoft:message-lock-lost").after(2));
    emulator.inject(refused(Step::Send, QUEUE, "com.microsoft:server-busy").after(1));
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await?;
    assert!(report.stopped.is_some(), "{report:?}");
    let said = said_of(&report, "a").map_err(|report| format!("{report:?}"))?;
    assert!(said.contains("stored in `orders`") && said.contains("discard it"), "{said}");
    assert_eq!(emulator.entity(QUEUE)?.messages().len(), 1, "its copy");
    Ok(())
}

#[cfg(feature = "rest")]
mod by_rest {
    use std::time::Duration;

    use redrive_core::TransportErrorKind;
    use redrive_servicebus::Backend;
    use redrive_servicebus_emulator::Emulator;

    use super::*;

    const DEAD: &str = "dead";
    /// The most messages that REST reaches.
    const HELD: usize = 1000;

    async fn dead_letters() -> Result<(Emulator, String, Options), BoxError> {
        let mut dead = Settings::default();
        dead.max_delivery_count = 100;
        let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue(DEAD, dead);
        let emulator = builder.listen_http("127.0.0.1:0").start().await?;
        let address = emulator.http_connection_string().ok_or("the emulator does not listen for HTTP")?;
        let options = ServiceBus::options(QUEUE).backend(Backend::Rest).dead_letter_queue(DEAD);
        Ok((emulator, address, options.poll_wait(Duration::from_secs(1))))
    }

    #[tokio::test]
    async fn of_an_entry_that_comes_no_more_its_stored_copy_is_reported() -> Result<(), BoxError> {
        let (emulator, address, options) = dead_letters().await?;
        let shelves = shelves_with(&address, options, &["a", "b"]).await?;
        let all = shelves.browse(Shelf::DeadLetter, None, 10).await?.entries;
        let named = Selection::handles(all.into_iter().map(|entry| entry.handle));
        for which in [Selection::All, named] {
            // The broker still holds its lock, and does not deliver it again.
            emulator.inject(refused(Step::Settle, DEAD, "com.microsoft:message-lock-lost"));
            let report = shelves.redrive(Shelf::DeadLetter, &which).await?;
            let said = said_of(&report, "a").map_err(|report| format!("{report:?}"))?;
            assert!(said.contains("stored in `orders`") && said.contains("discard it"), "{said}");
            emulator.entity(DEAD)?.expire_locks();
        }
        Ok(())
    }

    /// More messages than REST reaches.
    async fn overfull() -> Result<(Emulator, ServiceBusShelves), BoxError> {
        let (emulator, address, options) = dead_letters().await?;
        let by_amqp = ServiceBus::connect(&emulator.connection_string(), DEAD).await?;
        let messages = (0..=HELD).map(|number| Message::new("").with_id(number.to_string()));
        for stored in by_amqp.publisher().publish_all(messages).await {
            stored?;
        }
        Ok((emulator, options.connect(&address).await?.shelves()))
    }

    #[tokio::test]
    async fn what_cannot_be_reached_stops_the_work_with_a_word() -> Result<(), BoxError> {
        let (emulator, shelves) = overfull().await?;
        let report = shelves.discard(Shelf::DeadLetter, &Selection::All).await?;
        assert_eq!(report.done(), HELD as u64);
        let stopped = report.stopped.ok_or("one is left, and nothing says so")?.to_string();
        assert!(stopped.contains("`dead`") && stopped.contains("do this again"), "{stopped}");
        let report = shelves.discard(Shelf::DeadLetter, &Selection::All).await?;
        assert_eq!(report.into_result()?, 1);
        assert!(emulator.entity(DEAD)?.messages().is_empty());
        Ok(())
    }

    #[tokio::test]
    async fn behind_the_pages_that_can_be_reached_is_an_error() -> Result<(), BoxError> {
        let (emulator, shelves) = overfull().await?;
        let first = shelves.browse(Shelf::DeadLetter, None, HELD / 2).await?;
        let all = shelves.browse(Shelf::DeadLetter, None, 2 * HELD).await?;
        assert_eq!((first.entries.len(), all.entries.len()), (HELD / 2, HELD));
        let after = all.next.ok_or("it looks like the end")?;
        for error in [
            shelves.browse(Shelf::DeadLetter, Some(&after), HELD).await.map(drop),
            shelves.count(Shelf::DeadLetter).await.map(drop),
        ] {
            let error = error.expect_err("one is left");
            assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
        }
        let all: Vec<_> = all.entries.into_iter().map(|entry| entry.handle).collect();
        let some = Selection::handles(all[..2].iter().cloned());
        assert_eq!(shelves.discard(Shelf::DeadLetter, &some).await?.into_result()?, 2, "both were reached");
        let missing = shelves.discard(Shelf::DeadLetter, &all[0].clone().into()).await?;
        assert!(
            matches!(missing.entries[0].outcome, EntryOutcome::NotFound),
            "all are reached now: {missing:?}"
        );
        assert_eq!(emulator.entity(DEAD)?.messages().len(), HELD - 1);
        Ok(())
    }
}
