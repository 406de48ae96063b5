//! Compares the queues that exist with those that are needed.

use lapin::uri::AMQPUri;
use redrive_core::{TransportError, TransportErrorKind};
use tracing::{debug, warn};

use super::audit::{Finding, Role, Said, audit};
use super::found::Found;
use super::policies::Policies;
use super::{Login, Management};
use crate::topology::{Names, Part, Queue};

/// What is compared, and where.
pub(crate) struct Comparison<'a> {
    /// Of the management API.
    pub(crate) url: &'a str,
    /// To trust besides those of the system.
    pub(crate) certificates: Option<&'a str>,
    /// The address of the AMQP connection: the virtual host, and the user if the URL names none.
    pub(crate) broker: AMQPUri,
    pub(crate) names: &'a Names,
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) delivery_limit: Option<u32>,
}

/// Compares the queues, and the policies on them, with these parts. What cannot be looked up is not wrong: the management API may
/// be out of reach, or refuse this user. Answers how the work queue is.
pub(crate) async fn compare(
    comparison: &Comparison<'_>,
    parts: impl Iterator<Item = &Part>,
) -> Result<Option<Found>, TransportError> {
    let management = Management::at(comparison.url, comparison.certificates)?;
    let policies = comparison.policies(&management).await;
    let queue = &comparison.names.work;
    let (mut work, mut wrong) = (None, Vec::new());
    let queues = parts.filter_map(|part| match part {
        Part::Queue(queue) => Some(queue),
        Part::Exchange(_) | Part::Binding(_) => None,
    });
    for needed in queues {
        let found = match management.queue(&comparison.broker.vhost, &needed.name, &comparison.login()).await
        {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                warn!(%queue, %error, "the queues are not compared with what is needed");
                break;
            }
        };
        let found = match &policies {
            Some(policies) => found.with_policies(policies, &needed.name),
            None => found,
        };
        debug!(queue = %needed.name, ?found, "compared with what is needed");
        for finding in comparison.findings(needed, &found) {
            match finding {
                Finding::Wrong(said) => wrong.push(said),
                Finding::Doubtful(said) => warn!(%queue, "{said}"),
            }
        }
        if needed.name == *queue {
            work = Some(found);
        }
    }
    if wrong.is_empty() {
        return Ok(work);
    }
    Err(TransportError::new(TransportErrorKind::Topology, wrong.join("; ")))
}

impl Comparison<'_> {
    /// The user of the AMQP connection.
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
                    "the policies cannot be read: only those that the statistics know of are compared"
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
        let said = Said { native_dead_letter: self.native_dead_letter, delivery_limit: self.delivery_limit };
        audit(needed, role, said, found)
    }
}
