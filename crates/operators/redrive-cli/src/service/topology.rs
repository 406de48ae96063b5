//! `redrive topology`: what a service needs on RabbitMQ.

use anyhow::Result;
use redrive::Stage as _;

use super::options;
use crate::args::{Topology, TopologyFormat};
use crate::desk::connect::rabbitmq_options;
use crate::exit::Exit;
use crate::output::print;
use crate::settings::Context;

pub(crate) fn run(command: &Topology) -> Result<Exit> {
    let context = Context::default();
    let waits = match &command.options {
        Some(path) => {
            let options = options::read(&context, &command.queue, path, command.section.as_deref())?;
            options.preset.needs().waits.into_iter().collect()
        }
        None => command.wait.clone(),
    };
    let transport = rabbitmq_options(&context, &command.queue, None, None);
    let plan = transport.queue_type(command.queue_type.into()).topology_plan(waits)?;
    let text = match command.format {
        TopologyFormat::Definitions => plan.definitions_json(&command.vhost),
        TopologyFormat::Terraform => plan.terraform(&command.vhost),
    };
    print(text.trim_end());
    Ok(Exit::Ok)
}
