//! Compares what is there with what is needed, at the start.

use redrive_core::{TransportError, TransportErrorKind};
use tracing::{debug, warn};

use super::audit::{Finding, Role, Said, audit};
use super::policies::Policies;
use super::{Login, Management};
use crate::broker::{Broker, Told};
use crate::topology::{Part, Queue, Topology};

/// Whom is asked, for what, and as whom.
struct Api {
    management: Management,
    vhost: String,
    login: Login,
}

impl Broker {
    /// Compares the queues, and the policies on them, with the plan. What cannot be looked at is not wrong: the management
    /// API may be out of reach, or not for this user.
    pub(crate) async fn compare(&self, parts: &[&Part]) -> Result<(), TransportError> {
        let Some(url) = &self.options.management_url else { return Ok(()) };
        if self.options.topology == Topology::Nothing {
            return Ok(());
        }
        let management = Management::at(url, self.options.connection.tls.cert_chain.as_deref())?;
        let queues = parts.iter().filter_map(|part| match part {
            Part::Queue(queue) => Some(queue),
            Part::Exchange(_) | Part::Binding(_) => None,
        });
        let uri = self.uri();
        let userinfo = &uri.authority.userinfo;
        let api = Api {
            management,
            vhost: uri.vhost.clone(),
            login: Login { user: userinfo.username.clone(), password: userinfo.password.clone() },
        };
        let policies = self.policies(&api).await;
        let mut wrong = Vec::new();
        for queue in queues {
            match self.findings(&api, policies.as_ref(), queue).await {
                Ok(findings) => {
                    for finding in findings {
                        match finding {
                            Finding::Wrong(said) => wrong.push(said),
                            Finding::Doubtful(said) => warn!(queue = %self.queue(), "{said}"),
                        }
                    }
                }
                Err(error) => {
                    warn!(queue = %self.queue(), %error, "the queues are not compared with what is needed");
                    break;
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(TransportError::new(TransportErrorKind::Topology, wrong.join("; ")))
    }

    async fn policies(&self, api: &Api) -> Option<Policies> {
        match api.management.policies(&api.vhost, &api.login).await {
            Ok(policies) => {
                let unreadable = policies.unreadable().join("`, `");
                if !unreadable.is_empty() {
                    warn!(queue = %self.queue(), "the patterns of policies `{unreadable}` cannot be read: they are not compared");
                }
                Some(policies)
            }
            Err(error) => {
                warn!(
                    queue = %self.queue(), %error,
                    "the policies cannot be read: only those that the statistics know of are compared"
                );
                None
            }
        }
    }

    async fn findings(
        &self,
        api: &Api,
        policies: Option<&Policies>,
        needed: &Queue,
    ) -> Result<Vec<Finding>, String> {
        let names = &self.plan.names;
        let role = match &needed.name {
            name if *name == names.work => Role::Work,
            name if *name == names.dead_letters || *name == names.parking => Role::Shelf,
            _ => Role::Delay,
        };
        let Some(found) = api.management.queue(&api.vhost, &needed.name, &api.login).await? else {
            return Ok(Vec::new());
        };
        let found = match policies {
            Some(policies) => found.with_policies(policies, &needed.name),
            None => found,
        };
        debug!(queue = %needed.name, ?found, "compared with what is needed");
        if role == Role::Work {
            self.note_told(Told {
                delivery_limit: found.delivery_limit(),
                consumer_timeout: found.consumer_timeout(),
            });
        }
        let said = Said {
            native_dead_letter: self.options.native_dead_letter,
            delivery_limit: self.options.delivery_limit,
        };
        Ok(audit(needed, role, said, &found))
    }
}
