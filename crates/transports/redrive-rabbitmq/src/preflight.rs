//! Compares what a consumer needs with the broker, and changes nothing there.

use std::collections::BTreeMap;

use redrive_core::transport::{Finding, Needs, Outline};
use redrive_core::{TransportError, TransportErrorKind};

use crate::connection::Connection;
use crate::error;
use crate::outline::outline;
use crate::shared::Shared;
use crate::topology::{self, Part, Task, Topology};

/// Checks everything that opening the transport would check, and returns the findings.
pub(crate) async fn preflight(shared: &Shared, needs: &Needs) -> Result<Outline, TransportError> {
    let active = shared.facts.prepared(needs);
    let connection = shared.queues.control().await?;
    shared.facts.note_connection(&connection);
    let parts = shared.queues.parts_with(&*active.strategy());
    let mut findings = looked_up(&connection, &shared.connections.user(), &parts).await?;
    match shared.queues.refuse_unfit(&connection, &parts).await {
        Err(unfit) if unfit.kind() == TransportErrorKind::Topology => {
            findings.push(Finding::refused(unfit.to_string()));
        }
        asked => asked?,
    }
    findings.extend(compared(shared, needs, &active, &parts).await?);
    if shared.options.topology == Topology::Nothing {
        findings.push(Finding::unchecked(
            "with Topology::Nothing only the type of the work queue is looked at: a missing queue is noticed when it is needed",
        ));
    }
    // After the comparison, which finds the limits of the work queue.
    Ok(findings.into_iter().fold(outline(&shared.facts, &shared.plan, &active), Outline::with))
}

/// Checks that queues and exchanges exist. AMQP cannot check bindings.
async fn looked_up(
    connection: &Connection,
    user: &str,
    parts: &[(Part, Task)],
) -> Result<Vec<Finding>, TransportError> {
    let (mut missing, mut to_declare, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    // By the permission that is missing.
    let mut forbidden: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (part, task) in parts {
        let Err(error) = topology::prepare(connection, part, Task::Verify).await else { continue };
        if !connection.is_up() {
            return Err(error);
        }
        match task {
            Task::Declare if error::is_missing(&error) => to_declare.push(format!("`{}`", part.name())),
            _ if error::is_missing(&error) => missing.push(part),
            _ if error.kind() == TransportErrorKind::Unauthorized => {
                let permission = if *task == Task::Declare { "configure" } else { "read" };
                forbidden.entry(permission).or_default().push(format!("`{}`", part.name()));
            }
            _ => findings.push(Finding::refused(error.to_string())),
        }
    }
    for (permission, names) in forbidden {
        let (names, them) = (names.join(", "), if names.len() == 1 { "it" } else { "them" });
        findings.push(Finding::refused(format!(
            "RabbitMQ does not let user `{user}` use {names}: grant {permission} on {them}"
        )));
    }
    if !missing.is_empty() {
        let never = missing.iter().all(|part| part.is_other());
        let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
        findings.push(Finding::refused(error::missing(&missing, never).to_string()));
    }
    if !to_declare.is_empty() {
        findings.push(Finding::note(format!("declared when the consumer starts: {}", to_declare.join(", "))));
    }
    Ok(findings)
}

#[cfg(not(feature = "management"))]
async fn compared(
    _shared: &Shared,
    _needs: &Needs,
    _active: &crate::facts::ActiveNeeds,
    _parts: &[(Part, Task)],
) -> Result<Vec<Finding>, TransportError> {
    Ok(vec![not_compared("enable the feature `management`, and name its URL with `management`")])
}

/// Returns what only the management API tells.
#[cfg(feature = "management")]
async fn compared(
    shared: &Shared,
    needs: &Needs,
    active: &crate::facts::ActiveNeeds,
    parts: &[(Part, Task)],
) -> Result<Vec<Finding>, TransportError> {
    use crate::management;
    let strategy = active.strategy();
    let to = |&wait: &std::time::Duration| {
        let route = strategy.route(wait, &mut redrive_core::Message::new(""))?;
        Some(route.exchange.to_string())
    };
    // Shelves are reached through the default exchange.
    let published_to = needs.waits.iter().filter_map(to).chain([String::new()]).collect();
    let preflight = management::Preflight { user: shared.connections.user(), published_to };
    let Some(found) = shared.queues.compared(parts, Some(&preflight)).await? else {
        return Ok(vec![not_compared("name the URL of the management API with `management`")]);
    };
    Ok(found
        .into_iter()
        .map(|finding| match finding {
            management::Finding::Wrong(said) => Finding::refused(said),
            management::Finding::Doubtful(said) => Finding::warning(said),
            management::Finding::Unknown(said) => Finding::unchecked(said),
        })
        .collect())
}

fn not_compared(what_to_do: &str) -> Finding {
    Finding::unchecked(format!(
        "arguments of queues, policies, bindings, where dead letters lead, and permissions were not compared: {what_to_do}"
    ))
}
