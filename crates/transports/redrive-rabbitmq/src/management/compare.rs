//! Compares the queues that exist with those that are needed.

use std::collections::BTreeSet;

use lapin::uri::AMQPUri;
use redrive_core::TransportError;
use tracing::debug;

use super::audit::Finding::Unknown;
use super::audit::{self, Behind, Finding, Role, Said, audit};
use super::exchange::FoundExchange;
use super::found::Found;
use super::policies::Policies;
use super::{Login, Management};
use crate::topology::{Binding, Names, Part, Queue, Task};

/// Input of a comparison.
pub(crate) struct Comparison<'a> {
    /// URL of the management API.
    pub(crate) url: &'a str,
    /// Certificates to trust besides those of the system.
    pub(crate) certificates: Option<&'a str>,
    /// Address of the AMQP connection: gives the virtual host, and the user if the URL names none.
    pub(crate) broker: AMQPUri,
    pub(crate) names: &'a Names,
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) delivery_limit: Option<u32>,
}

/// Input of the comparison before anything is declared, beside the queues.
pub(crate) struct Preflight {
    /// The user of the AMQP connection.
    pub(crate) user: String,
    /// The exchanges that copies are published to.
    pub(crate) published_to: BTreeSet<String>,
}

/// The outcome of a comparison.
#[derive(Default)]
pub(crate) struct Compared {
    /// The state of the work queue.
    pub(crate) work: Option<Found>,
    pub(crate) findings: Vec<Finding>,
}

/// Compares the queues, and the policies on them, with these parts. A failed request is no error: the management API may be
/// unreachable, or refuse this user.
///
/// # Errors
///
/// If the URL is malformed.
pub(crate) async fn compare(
    comparison: &Comparison<'_>,
    parts: &[(Part, Task)],
    preflight: Option<&Preflight>,
) -> Result<Compared, TransportError> {
    let management = Management::at(comparison.url, comparison.certificates)?;
    let mut compared = Compared::default();
    let policies = comparison.policies(&management, &mut compared).await;
    let mut there = BTreeSet::new();
    for (part, task) in parts {
        let needed = match part {
            Part::Queue(needed) => needed,
            // A binding that redrive declares need not be checked.
            Part::Binding(_) if preflight.is_some() && *task == Task::Declare => continue,
            Part::Binding(needed) => {
                comparison.compare_binding(&management, needed, &mut compared).await;
                continue;
            }
            Part::Exchange(_) | Part::OtherExchange(_) | Part::OtherQueue(_) => continue,
        };
        let found = match management.queue(&comparison.broker.vhost, &needed.name, &comparison.login()).await
        {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                compared
                    .unknown(format!("the queues could not be compared with those that are needed: {error}"));
                // Further requests would fail in the same way.
                return Ok(compared);
            }
        };
        there.insert(needed.name.as_str());
        let found = match &policies {
            Some(policies) => found.with_policies(policies, &needed.name),
            None => found,
        };
        debug!(queue = %needed.name, ?found, "compared the queue with the needed one");
        if preflight.is_some() && *task == Task::Declare {
            compared.findings.extend(audit::declaration(needed, &found));
        }
        compared.findings.extend(comparison.findings(needed, &found));
        if needed.name == comparison.names.work {
            // A preflight runs before the target is declared.
            if preflight.is_none() || !leads_on(parts, &found) {
                comparison.compare_dead_letters(&management, needed, &found, &mut compared).await;
            }
            compared.work = Some(found);
        }
    }
    if let Some(preflight) = preflight {
        comparison.permissions(&management, (parts, &there), preflight, &mut compared).await;
    }
    Ok(compared)
}

/// Returns true if the target of the work queue's dead letters is declared when the consumer starts.
fn leads_on(parts: &[(Part, Task)], work: &Found) -> bool {
    let value = |name| work.argument_first(name).map(|setting| setting.value).unwrap_or_default();
    let (exchange, key) = (value("dead-letter-exchange"), value("dead-letter-routing-key"));
    let mut declared = parts.iter().filter(|(_, task)| *task == Task::Declare).map(|(part, _)| part);
    declared.any(|part| match &*exchange {
        "" => part.is_queue(&key),
        exchange => part.is_binding_to(exchange),
    })
}

impl Compared {
    fn unknown(&mut self, what: String) {
        self.findings.push(Unknown(what));
    }
}

impl Comparison<'_> {
    /// Returns the user of the AMQP connection.
    fn login(&self) -> Login {
        let userinfo = &self.broker.authority.userinfo;
        Login { user: userinfo.username.clone(), password: userinfo.password.clone() }
    }

    async fn policies(&self, management: &Management, compared: &mut Compared) -> Option<Policies> {
        match management.policies(&self.broker.vhost, &self.login()).await {
            Ok(policies) => {
                let unreadable = policies.unreadable().join("`, `");
                if !unreadable.is_empty() {
                    compared.unknown(format!(
                        "the patterns of policies `{unreadable}` cannot be read: they are not compared"
                    ));
                }
                Some(policies)
            }
            Err(error) => {
                compared.unknown(format!(
                    "the policies cannot be read: only those in the queue's statistics are compared: {error}"
                ));
                None
            }
        }
    }

    async fn compare_binding(&self, management: &Management, needed: &Binding, compared: &mut Compared) {
        match self.exchange(management, &needed.exchange).await {
            Ok(found) => compared.findings.extend(audit::binding(needed, found.as_ref())),
            Err(error) => compared
                .unknown(format!("a binding could not be compared with the one that is needed: {error}")),
        }
    }

    /// Compares the target of the work queue's dead letters.
    async fn compare_dead_letters(
        &self,
        management: &Management,
        needed: &Queue,
        found: &Found,
        compared: &mut Compared,
    ) {
        match self.behind_dead_letters(management, found).await {
            Ok(None) => {}
            Ok(Some(behind)) => {
                let dead_letters = &self.names.dead_letters;
                compared.findings.extend(audit::dead_letters(
                    needed,
                    dead_letters,
                    self.said(),
                    found,
                    &behind,
                ));
            }
            Err(error) => {
                compared.unknown(format!("the target of dead letters could not be checked: {error}"));
            }
        }
    }

    async fn permissions(
        &self,
        management: &Management,
        (parts, there): (&[(Part, Task)], &BTreeSet<&str>),
        Preflight { user, published_to }: &Preflight,
        compared: &mut Compared,
    ) {
        match management.permissions(&self.broker.vhost, user, &self.login()).await {
            Ok(permissions) => {
                let parts = parts.iter().map(|(part, task)| (part, *task));
                compared.findings.extend(permissions.findings(
                    user,
                    parts,
                    there,
                    &self.names.work,
                    published_to,
                ));
            }
            Err(error) => compared.unknown(format!(
                "the permissions of user `{user}` were not read, which takes the tag `administrator`: {error}"
            )),
        }
    }

    fn findings(&self, needed: &Queue, found: &Found) -> Vec<Finding> {
        let role = match &needed.name {
            name if *name == self.names.work => Role::Work,
            name if *name == self.names.dead_letters || *name == self.names.parking => Role::Shelf,
            _ => Role::Delay,
        };
        audit(needed, role, self.said(), found)
    }

    fn said(&self) -> Said {
        Said { native_dead_letter: self.native_dead_letter, delivery_limit: self.delivery_limit }
    }

    async fn exchange(
        &self,
        management: &Management,
        exchange: &str,
    ) -> Result<Option<FoundExchange>, String> {
        management.exchange(&self.broker.vhost, exchange, &self.login()).await
    }

    /// Returns `None` for a queue without a dead-letter exchange.
    async fn behind_dead_letters(
        &self,
        management: &Management,
        work: &Found,
    ) -> Result<Option<Behind>, String> {
        let Some(exchange) = work.argument_first("dead-letter-exchange") else { return Ok(None) };
        if !exchange.value.is_empty() {
            return Ok(Some(Behind::Exchange(self.exchange(management, &exchange.value).await?)));
        }
        let Some(key) = work.argument_first("dead-letter-routing-key") else { return Ok(None) };
        let target = management.queue(&self.broker.vhost, &key.value, &self.login()).await?;
        Ok(Some(Behind::Queue(target.is_some())))
    }
}
