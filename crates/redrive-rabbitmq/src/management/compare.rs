//! Compares the queues that exist with those that are needed.

use lapin::uri::AMQPUri;
use redrive_core::{TransportError, TransportErrorKind};
use tracing::{debug, warn};

use super::audit::{self, Behind, Finding, Role, Said, audit};
use super::exchange::FoundExchange;
use super::found::Found;
use super::policies::Policies;
use super::{Login, Management};
use crate::topology::{Names, Part, Queue};

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

/// Compares the queues, and the policies on them, with these parts. A failed request is not a finding: the management API may be
/// unreachable, or refuse this user. Returns the state of the work queue.
pub(crate) async fn compare(
    comparison: &Comparison<'_>,
    parts: impl Iterator<Item = &Part>,
) -> Result<Option<Found>, TransportError> {
    let management = Management::at(comparison.url, comparison.certificates)?;
    let policies = comparison.policies(&management).await;
    let queue = &comparison.names.work;
    let (mut work, mut wrong) = (None, Vec::new());
    let mut note = |finding: Finding| match finding {
        Finding::Wrong(said) => wrong.push(said),
        Finding::Doubtful(said) => warn!(%queue, "{said}"),
    };
    for part in parts {
        let needed = match part {
            Part::Queue(needed) => needed,
            Part::Binding(needed) => {
                match comparison.exchange(&management, &needed.exchange).await {
                    Ok(found) => audit::binding(needed, found.as_ref()).into_iter().for_each(&mut note),
                    Err(error) => {
                        warn!(%queue, %error, "a binding could not be compared with the one that is needed");
                    }
                }
                continue;
            }
            Part::Exchange(_) | Part::OtherExchange(_) | Part::OtherQueue(_) => continue,
        };
        let found = match management.queue(&comparison.broker.vhost, &needed.name, &comparison.login()).await
        {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                warn!(%queue, %error, "the queues could not be compared with those that are needed");
                break;
            }
        };
        let found = match &policies {
            Some(policies) => found.with_policies(policies, &needed.name),
            None => found,
        };
        debug!(queue = %needed.name, ?found, "compared with what is needed");
        comparison.findings(needed, &found).into_iter().for_each(&mut note);
        if needed.name == *queue {
            match comparison.behind_dead_letters(&management, &found).await {
                Ok(Some(behind)) => {
                    audit::dead_letters(needed, comparison.said(), &found, &behind)
                        .into_iter()
                        .for_each(&mut note);
                }
                Ok(None) => {}
                Err(error) => warn!(%queue, %error, "the target of dead letters could not be checked"),
            }
            work = Some(found);
        }
    }
    if wrong.is_empty() {
        return Ok(work);
    }
    Err(TransportError::new(TransportErrorKind::Topology, wrong.join("; ")))
}

impl Comparison<'_> {
    /// Returns the user of the AMQP connection.
    fn login(&self) -> Login {
        let userinfo = &self.broker.authority.userinfo;
        Login { user: userinfo.username.clone(), password: userinfo.password.clone() }
    }

    async fn policies(&self, management: &Management) -> Option<Policies> {
        let queue = &self.names.work;
        match management.policies(&self.broker.vhost, &self.login()).await {
            Ok(policies) => {
                let unreadable = policies.unreadable().join("`, `");
                if !unreadable.is_empty() {
                    warn!(%queue, "the patterns of policies `{unreadable}` cannot be read: they are not compared");
                }
                Some(policies)
            }
            Err(error) => {
                warn!(
                    %queue, %error,
                    "the policies cannot be read: only those in the queue's statistics are compared"
                );
                None
            }
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
