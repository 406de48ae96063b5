//! Dispatches the messages of one queue to handlers by their kind.

mod key;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use foldhash::fast::FixedState;
use redrive_core::engine::Stages;
use redrive_core::text::cut;
use redrive_core::transport::Needs;
use redrive_core::{Delivery, Disposition, Failure, Outcome, Reason};

use self::key::By;
use super::Handler;

/// Maximum number of bytes of an unknown key in a failure's text: the rest of the text is for the known keys.
const MAX_KEY_BYTES: usize = 128;

/// A handler that dispatches each delivery to one of several handlers, by a key: the message's kind, a header, its content type,
/// or the result of a function of the delivery.
///
/// Each route is a [`Handler`] with its own arguments. The last step of the builder decides what happens to a message without a route:
/// [`unknown`](RouterBuilder::unknown) or [`fallback`](RouterBuilder::fallback).
///
/// ```
/// use redrive_consumer::{Consumer, DuplicateRoute, Handler, Router, UnknownKey};
/// use redrive_core::{BoxError, secs};
///
/// async fn ship(order: String) -> Result<(), BoxError> {
///     println!("shipping {order}");
///     Ok(())
/// }
///
/// async fn refund() {}
///
/// # fn example<T: redrive_core::Transport>(transport: T) -> Result<(), DuplicateRoute> {
/// let orders = Router::by_kind()
///     .route("order.placed", ship)
///     .route("order.cancelled", refund.with_dead_letter_backoff([secs(60), secs(600)]))
///     .unknown(UnknownKey::DeadLetter)?;
///
/// let consumer = Consumer::new(transport).with_dead_letter_backoff([secs(1), secs(10)]).handler(orders);
/// # Ok(()) }
/// ```
///
/// A router is a handler: it takes a state ([`handler_with`](crate::Consumer::handler_with)), can have stages of its own, and
/// can be a route of another router. One call costs one lookup and one boxed future.
///
/// The retry policy of a route wins over a policy around the router, which applies to the routes without one.
pub struct Router<S> {
    table: Arc<Table<S>>,
}

/// What happens to a message that a [`Router`] has no route for: its key is unknown or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownKey {
    /// Move to the dead-letter shelf, as [`Reason::NoRoute`]; the text names the key and the known ones.
    DeadLetter,
    /// Move to the parking shelf, with the same reason.
    Park,
    /// Acknowledge: the message is removed, without a trace.
    Acknowledge,
}

/// Collects the routes of a [`Router`].
#[must_use = "a router is built by its last step: `unknown` or `fallback`"]
pub struct RouterBuilder<S> {
    by: By,
    routes: Routes<S>,
    duplicates: BTreeSet<String>,
}

/// Two routes of one [`Router`] have the same key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the router has more than one route for {0}: remove all but one")]
pub struct DuplicateRoute(String);

type Routes<S> = HashMap<String, Box<dyn Route<S>>, FixedState>;

struct Table<S> {
    by: By,
    routes: Routes<S>,
    unknown: Unknown<S>,
}

enum Unknown<S> {
    Decided {
        unknown: UnknownKey,
        /// The keys of all routes, for the text of a failure.
        known: String,
    },
    Handled(Box<dyn Route<S>>),
}

impl<S: 'static> Router<S> {
    /// Routes by the message's kind: `type` on RabbitMQ, `subject` on Service Bus
    /// ([`Properties::kind`](redrive_core::Properties::kind)).
    pub fn by_kind() -> RouterBuilder<S> {
        RouterBuilder::new(By::Kind)
    }

    /// Routes by the header of this name: a string as it is, an integer by its decimal digits. Any other value counts as no key.
    pub fn by_header(name: impl Into<String>) -> RouterBuilder<S> {
        RouterBuilder::new(By::Header(name.into()))
    }

    /// Routes by the message's content type, without its parameters and ignoring case: the route `application/json` also receives
    /// `Application/JSON; charset=utf-8`.
    pub fn by_content_type() -> RouterBuilder<S> {
        RouterBuilder::new(By::ContentType)
    }

    /// Routes by the result of this function, which must be pure and quick. `None`: the message has no key.
    ///
    /// ```
    /// use redrive_consumer::{Router, UnknownKey};
    ///
    /// # async fn european() {}
    /// # fn example() -> Result<Router<()>, redrive_consumer::DuplicateRoute> {
    /// let orders = Router::by(|delivery| delivery.routing_key().split('.').next().map(Into::into))
    ///     .route("eu", european)
    ///     .unknown(UnknownKey::DeadLetter)?;
    /// # Ok(orders) }
    /// ```
    pub fn by(
        key: impl for<'a> Fn(&'a Delivery) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    ) -> RouterBuilder<S> {
        RouterBuilder::new(By::Function(Box::new(key)))
    }
}

impl<S: 'static> RouterBuilder<S> {
    fn new(by: By) -> Self {
        Self { by, routes: Routes::default(), duplicates: BTreeSet::new() }
    }

    /// Adds a route: this handler receives the messages with this key.
    pub fn route<H, Args>(mut self, key: impl Into<String>, handler: H) -> Self
    where
        H: Handler<Args, S>,
        Args: 'static,
    {
        match self.routes.entry(self.by.normalized(key.into())) {
            Entry::Occupied(taken) => {
                self.duplicates.insert(taken.key().clone());
            }
            Entry::Vacant(free) => {
                free.insert(Erased::boxed(handler));
            }
        }
        self
    }

    /// Builds the router. `unknown` decides what happens to a message without a route.
    ///
    /// # Errors
    ///
    /// [`DuplicateRoute`], if two routes have the same key.
    pub fn unknown(self, unknown: UnknownKey) -> Result<Router<S>, DuplicateRoute> {
        let keys: BTreeSet<_> = self.routes.keys().map(String::as_str).collect();
        let known = listed(keys);
        self.build(Unknown::Decided { unknown, known })
    }

    /// Builds the router. `handler` receives every message without a route.
    ///
    /// # Errors
    ///
    /// [`DuplicateRoute`], if two routes have the same key.
    pub fn fallback<H, Args>(self, handler: H) -> Result<Router<S>, DuplicateRoute>
    where
        H: Handler<Args, S>,
        Args: 'static,
    {
        self.build(Unknown::Handled(Erased::boxed(handler)))
    }

    fn build(self, unknown: Unknown<S>) -> Result<Router<S>, DuplicateRoute> {
        let Self { by, routes, duplicates } = self;
        if !duplicates.is_empty() {
            let keys = listed(duplicates.iter().map(String::as_str));
            return Err(DuplicateRoute(format!("{by} {keys}")));
        }
        Ok(Router { table: Arc::new(Table { by, routes, unknown }) })
    }
}

/// Tells the compiler that this handler is a router, not a function.
#[derive(Debug)]
pub struct RouterArgs;

// Hides this type from the error message for a function that is no handler.
#[diagnostic::do_not_recommend]
impl<S: 'static> Handler<RouterArgs, S> for Router<S> {
    type Future = RouteFuture;

    fn handle(&self, delivery: Delivery, state: &S) -> RouteFuture {
        let Table { by, routes, unknown } = &*self.table;
        let key = by.key(&delivery);
        let route = key.as_deref().and_then(|key| routes.get(key));
        match (route, unknown) {
            (Some(route), _) | (None, Unknown::Handled(route)) => {
                drop(key);
                route.handle(delivery, state)
            }
            (None, Unknown::Decided { unknown, known }) => {
                Box::pin(ready(Ok(decided(*unknown, by, key.as_deref(), known))))
            }
        }
    }

    fn needs(&self) -> Needs {
        let Table { routes, unknown, .. } = &*self.table;
        let fallback = match unknown {
            Unknown::Handled(fallback) => Some(fallback),
            Unknown::Decided { .. } => None,
        };
        let needs = routes.values().chain(fallback).map(|route| route.needs());
        let mut needs = needs.reduce(Needs::or).unwrap_or_default();
        // The policy of a route replaces the one around the router: it is not nested in it.
        if needs.policies.len() == 1 {
            needs.policies.clear();
        }
        needs
    }

    fn stages(&self) -> Stages {
        let Table { by, routes, unknown } = &*self.table;
        let sorted: BTreeMap<_, _> = routes.iter().collect();
        let named = sorted.into_iter().map(|(key, route)| (format!("{by} `{key}`"), route.stages()));
        let fallback = match unknown {
            Unknown::Handled(fallback) => Some((format!("any other {by}"), fallback.stages())),
            Unknown::Decided { .. } => None,
        };
        Stages::one_of(named.chain(fallback))
    }
}

fn decided(unknown: UnknownKey, by: &By, key: Option<&str>, known: &str) -> Disposition {
    let failure = || {
        let what = match key {
            Some(key) => format!("no route for {by} `{}`", cut(key, MAX_KEY_BYTES)),
            None => format!("the message has no {by}"),
        };
        Failure::new(Reason::NoRoute, format!("{what}; there are routes for {known}"))
    };
    match unknown {
        UnknownKey::DeadLetter => Disposition::DeadLetter(failure()),
        UnknownKey::Park => Disposition::Park(failure()),
        UnknownKey::Acknowledge => Disposition::Ack,
    }
}

fn listed<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let keys: Vec<_> = keys.into_iter().map(|key| format!("`{key}`")).collect();
    if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") }
}

type RouteFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A handler with its type erased.
trait Route<S>: Send + Sync {
    fn handle(&self, delivery: Delivery, state: &S) -> RouteFuture;
    fn needs(&self) -> Needs;
    fn stages(&self) -> Stages;
}

struct Erased<H, Args> {
    handler: H,
    args: PhantomData<fn() -> Args>,
}

impl<H: 'static, Args: 'static> Erased<H, Args> {
    fn boxed<S: 'static>(handler: H) -> Box<dyn Route<S>>
    where
        H: Handler<Args, S>,
    {
        Box::new(Self { handler, args: PhantomData })
    }
}

impl<H, Args, S> Route<S> for Erased<H, Args>
where
    H: Handler<Args, S>,
{
    fn handle(&self, delivery: Delivery, state: &S) -> RouteFuture {
        Box::pin(self.handler.handle(delivery, state))
    }

    fn needs(&self) -> Needs {
        self.handler.needs()
    }

    fn stages(&self) -> Stages {
        self.handler.stages()
    }
}

impl<S> Clone for Router<S> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, "Router", &self.table.by, &self.table.routes)
    }
}

impl<S> fmt::Debug for RouterBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, "RouterBuilder", &self.by, &self.routes)
    }
}

fn shown<S>(f: &mut fmt::Formatter<'_>, name: &str, by: &By, routes: &Routes<S>) -> fmt::Result {
    let keys: BTreeSet<_> = routes.keys().collect();
    f.debug_struct(name).field("by", &by.to_string()).field("routes", &keys).finish_non_exhaustive()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::State;
    use redrive_core::transport::Facts;
    use redrive_core::{BoxError, Message, secs};

    fn of_kind(kind: Option<&str>) -> Delivery {
        let mut message = Message::new("an order");
        message.properties_mut().kind = kind.map(str::to_owned);
        Delivery::new(message, "orders", UNIX_EPOCH)
    }

    async fn snoozes() -> Disposition {
        Disposition::snooze(secs(1))
    }

    async fn fails() -> Result<(), BoxError> {
        Err("no answer".into())
    }

    async fn name<S: 'static>(router: &Router<S>, delivery: Delivery, state: &S) -> &'static str {
        router.handle(delivery, state).await.map_or("error", |disposition| disposition.name())
    }

    #[tokio::test]
    async fn each_kind_goes_to_its_handler_with_arguments_of_its_own() {
        async fn releases(State(wanted): State<&str>, body: String) -> Disposition {
            assert_eq!(body, wanted);
            Disposition::Release
        }
        let router = Router::by_kind().route("a", snoozes).route("b", releases).route("c", fails);
        let router = router.unknown(UnknownKey::Acknowledge).unwrap();
        for (kind, answer) in [("a", "snooze"), ("b", "release"), ("c", "error"), ("d", "ack")] {
            assert_eq!(name(&router, of_kind(Some(kind)), &"an order").await, answer, "{kind}");
        }
    }

    #[tokio::test]
    async fn an_unknown_kind_is_named_beside_the_known_ones() {
        let build = |unknown| {
            Router::<()>::by_kind()
                .route("order.placed", snoozes)
                .route("order.moved", fails)
                .unknown(unknown)
        };
        let to_shelf = build(UnknownKey::DeadLetter).unwrap();
        let failure = async |delivery| {
            let Ok(Disposition::DeadLetter(failure)) = to_shelf.handle(delivery, &()).await else {
                panic!("not dead-lettered")
            };
            failure.to_string()
        };
        let known = "there are routes for `order.moved`, `order.placed`";
        assert_eq!(
            failure(of_kind(Some("order.lost"))).await,
            format!("NoRoute: no route for kind `order.lost`; {known}")
        );
        assert_eq!(failure(of_kind(None)).await, format!("NoRoute: the message has no kind; {known}"));
        assert!(failure(of_kind(Some(&"x".repeat(5000)))).await.contains(known));
        assert_eq!(name(&build(UnknownKey::Park).unwrap(), of_kind(None), &()).await, "park");
    }

    #[tokio::test]
    async fn a_fallback_gets_what_no_route_is_for() {
        let router = Router::by_kind().route("a", fails).fallback(snoozes).unwrap();
        for kind in [Some("b"), None] {
            assert_eq!(name(&router, of_kind(kind), &()).await, "snooze");
        }
        assert_eq!(name(&router, of_kind(Some("a")), &()).await, "error");
    }

    #[test]
    fn a_second_route_for_a_key_is_named() {
        let twice = Router::<()>::by_kind().route("a", fails).route("b", fails).route("a", snoozes);
        let error = twice.unknown(UnknownKey::DeadLetter).unwrap_err();
        assert_eq!(error.to_string(), "the router has more than one route for kind `a`: remove all but one");
        let alike = Router::<()>::by_content_type().route("text/csv", fails).route("Text/CSV", fails);
        assert!(alike.fallback(fails).unwrap_err().to_string().contains("content type `text/csv`"));
    }

    #[tokio::test]
    async fn a_route_has_a_policy_of_its_own_and_a_router_is_a_route() {
        let inner = Router::by_content_type().route("text/csv", fails).fallback(fails).unwrap();
        let outer = Router::by_kind()
            .route("a", fails.with_dead_letter_backoff([secs(7)]))
            .route("b", inner.with_dead_letter_backoff([secs(9)]))
            .fallback(fails)
            .unwrap();
        for (kind, wait) in [("a", 7), ("b", 9)] {
            let outcome = outer.handle(of_kind(Some(kind)), &()).await;
            assert!(matches!(outcome, Ok(Disposition::Retry(waits, _)) if waits == secs(wait)), "{kind}");
        }
        assert!(
            outer.handle(of_kind(None), &()).await.is_err(),
            "undecided: for whoever is around the router"
        );
    }

    #[test]
    fn the_needs_of_all_routes_are_known() {
        let preset = |seconds| fails.with_dead_letter_backoff([secs(seconds)]);
        let inner = Router::<()>::by_kind().route("a", preset(2)).unknown(UnknownKey::Park).unwrap();
        let router = Router::by_kind().route("a", preset(1)).route("b", inner).fallback(preset(3)).unwrap();
        let needs = router.needs();
        assert_eq!(needs.waits, BTreeSet::from([secs(1), secs(2), secs(3)]));
        assert_eq!((needs.attempts, needs.deliveries), (Some(2), Some(10)));
    }

    #[test]
    fn a_policy_of_a_route_wins_over_one_around_the_router_and_nesting_is_still_found() {
        let refused = |needs: Needs| needs.unmet("orders", &Facts::new("test")).len();
        let own = || fails.with_dead_letter_backoff([secs(1)]);
        let build = |router: RouterBuilder<()>| router.unknown(UnknownKey::DeadLetter).unwrap();
        let router = build(Router::by_kind().route("a", own()).route("b", fails));
        let around = router.clone().with_dead_letter_backoff([secs(60)]);
        assert_eq!(refused(around.needs()), 0, "the outer one is for `b`");
        let twice = around.clone().with_dead_letter_backoff([secs(90)]);
        assert_eq!(refused(twice.needs()), 1);
        let in_route =
            build(Router::by_kind().route("a", fails).route("b", own().with_dead_letter_backoff([secs(9)])));
        assert_eq!(refused(in_route.needs()), 1);
        assert_eq!(refused(build(Router::by_kind().route("c", around)).needs()), 0);
    }
}
