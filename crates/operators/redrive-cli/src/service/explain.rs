//! `redrive explain` and `redrive preflight`.

use anyhow::{Context as _, Result};
use redrive::prelude::*;
use redrive::{RetryPlan, Runner, Transport};

use super::options;
use crate::args::{BrokerKind, Explain, PlanFormat};
use crate::desk::connect::{connection_string, log_in, rabbitmq_options, secrets, service_bus_options};
use crate::desk::within;
use crate::exit::{Exit, usage};
use crate::output::{print, printable};
use crate::settings::{Broker, Context, Global};

/// Says what happens to a failing message. Asks no broker.
pub(crate) fn explain(global: &Global, command: &Explain) -> Result<Exit> {
    let context = context(global, command)?;
    let options = options::read(&context, &command.queue, &command.options, command.section.as_deref())?;
    let plan = if context.socket().is_some() {
        consumer(Memory::new(&*command.queue), options).explain()
    } else if context.is_service_bus() {
        consumer(service_bus_options(&context, &command.queue, None).unconnected()?, options).explain()
    } else {
        let transport = rabbitmq_options(&context, &command.queue, None, None);
        consumer(transport.queue_type(command.queue_type.into()).unconnected()?, options).explain()
    };
    show(&plan, global.json, command.format);
    Ok(Exit::Ok)
}

/// The same, and asks the broker what does not fit. Changes nothing.
pub(crate) async fn preflight(global: &Global, command: &Explain) -> Result<Exit> {
    let context = global.broker()?;
    if context.socket().is_some() {
        return Err(usage(
            "a broker in the process of its service is asked when the service starts: `redrive explain` says the rest",
        ));
    }
    let options = options::read(&context, &command.queue, &command.options, command.section.as_deref())?;
    let (secret, ca) = secrets(&context)?;
    let asked = within(global.timeout, async {
        if context.is_service_bus() {
            let secret = connection_string(secret)?;
            let transport =
                service_bus_options(&context, &command.queue, ca).connect(secret.expose()).await?;
            Ok(consumer(transport, options).preflight().await?)
        } else {
            let transport = rabbitmq_options(&context, &command.queue, secret, ca);
            let transport = log_in(&context, transport.queue_type(command.queue_type.into())).await?;
            Ok(consumer(transport, options).preflight().await?)
        }
    });
    let plan =
        asked.await.with_context(|| format!("cannot ask {} for `{}`", context.label(), command.queue))?;
    show(&plan, global.json, command.format);
    Ok(if plan.starts() { Exit::Ok } else { Exit::Failed })
}

/// Returns the context, or one of the kind that is asked for: nothing is asked of a broker.
fn context(global: &Global, command: &Explain) -> Result<Context> {
    let broker = match command.kind {
        Some(BrokerKind::Servicebus) => Broker::service_bus(),
        Some(BrokerKind::Rabbitmq) => Broker::parse("amqp://localhost")?,
        Some(BrokerKind::Memory) => Broker::in_process(),
        None => return global.broker(),
    };
    Ok(Context { broker, ..Context::default() })
}

fn consumer<T: Transport>(transport: T, options: redrive::ConsumerOptions) -> Runner<T> {
    Consumer::new(transport).configured(options).handler(|| async {})
}

fn show(plan: &RetryPlan, json: bool, format: PlanFormat) {
    let text = match format {
        _ if json => plan.to_json(),
        PlanFormat::Text => plan.to_string(),
        PlanFormat::Mermaid => plan.to_mermaid(),
    };
    print(printable(&text).trim_end());
}
