//! Tests of Microsoft Entra ID, with a test identity whose tokens the emulator accepts or refuses.

use std::io;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, SystemTime};

use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use redrive_contract::{Started, eventually};
use redrive_core::transport::{Needs, Signals};
use redrive_core::{BoxError, Transport as _, TransportErrorKind};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Step};
use tokio::sync::watch;
use tokio::time::timeout;

use super::secured::{QUEUE, Secured, TIMEOUT, a_message_goes_round, opened};

/// The text that every token of these tests contains.
const TOKEN: &str = "eyJhbGciOiJub25lIn0";

/// An identity that issues tokens, and records the requests.
#[derive(Debug)]
struct Identity {
    /// The lifetime of a token.
    life: Duration,
    /// True if it issues tokens.
    gives: bool,
    scopes: Mutex<Vec<String>>,
    given: watch::Sender<u32>,
}

impl Identity {
    fn new(life: Duration, gives: bool) -> Arc<Self> {
        Arc::new(Self { life, gives, scopes: Mutex::default(), given: watch::Sender::new(0) })
    }

    async fn has_given(&self, tokens: u32) {
        let mut given = self.given.subscribe();
        let enough = timeout(TIMEOUT, given.wait_for(|given| *given >= tokens)).await;
        enough.expect("it is asked again").expect("it is there");
    }
}

#[async_trait::async_trait]
impl TokenCredential for Identity {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        self.scopes.lock().expect("not poisoned").extend(scopes.iter().map(|scope| (*scope).to_owned()));
        if !self.gives {
            let said = "no managed identity endpoint was found";
            return Err(azure_core::Error::with_message(azure_core::error::ErrorKind::Credential, said));
        }
        self.given.send_modify(|given| *given += 1);
        let expires = SystemTime::now() + self.life;
        Ok(AccessToken::new(Secret::new(format!("{TOKEN}.{}", *self.given.borrow())), expires.into()))
    }
}

/// Starts an emulator that accepts any token.
async fn secured() -> Result<Secured, BoxError> {
    log();
    Secured::start(Emulator::builder(), "localhost").await
}

#[tokio::test]
async fn an_identity_consumes() -> Result<(), BoxError> {
    let secured = secured().await?;
    let identity = Identity::new(Duration::from_secs(3600), true);
    let transport = secured.options().connect_with(&secured.host(), identity.clone()).await?;
    let transport = opened(transport).await?;
    a_message_goes_round(&transport, "of an identity").await?;
    assert!(secured.emulator.entity(QUEUE)?.messages().is_empty());
    let scopes = identity.scopes.lock().expect("not poisoned").clone();
    assert!(
        !scopes.is_empty() && scopes.iter().all(|scope| scope == "https://servicebus.azure.net/.default")
    );
    shows_no_token(&format!("{transport:?}"));
    assert!(logged().contains("attached"), "what was looked at is no log");
    Ok(())
}

#[tokio::test]
async fn a_token_is_renewed_before_it_runs_out() -> Result<(), BoxError> {
    let secured = secured().await?;
    let identity = Identity::new(Duration::from_secs(4), true);
    let transport = secured.options().connect_with(&secured.host(), identity.clone()).await?;
    let transport = Started::open(transport, &Needs::none()).await?;
    let before = *identity.given.borrow();
    identity.has_given(before + 2).await;
    // The broker drops the connection at the next token, which shows that the token is put.
    secured.emulator.inject(Fault::new(Step::Cbs, Effect::DropConnection));
    eventually("the next token is put", async || transport.interruptions() > 0).await;
    a_message_goes_round(&transport, "after that").await?;
    shows_no_token(&format!("{transport:?}"));
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_refused_says_what_to_do() -> Result<(), BoxError> {
    let secured = secured().await?;
    secured.emulator.inject(Fault::new(Step::Cbs, Effect::unauthorized()).times(u32::MAX));
    let identity = Identity::new(Duration::from_secs(3600), true);
    let transport = secured.options().connect_with(&secured.host(), identity).await?;
    let error = transport.open(&Needs::none(), Signals::ignored()).await.expect_err("the token is refused");
    assert_eq!(error.kind(), TransportErrorKind::Unauthorized);
    assert!(error.to_string().contains("Azure Service Bus Data Receiver"), "{error}");
    shows_no_token(&error.to_string());
    Ok(())
}

#[tokio::test]
async fn an_identity_that_gives_no_token_says_why() -> Result<(), BoxError> {
    let secured = secured().await?;
    let transport =
        secured.options().connect_with(&secured.host(), Identity::new(Duration::ZERO, false)).await?;
    let error = transport.open(&Needs::none(), Signals::ignored()).await.expect_err("there is no token");
    assert_eq!(error.kind(), TransportErrorKind::Unauthorized);
    assert!(error.to_string().contains("no managed identity endpoint was found"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_identity_is_never_shown_to_who_is_not_trusted() -> Result<(), BoxError> {
    let secured = secured().await?;
    let identity = Identity::new(Duration::from_secs(3600), true);
    let options = redrive_servicebus::ServiceBus::options(QUEUE)
        .ca_certificates(super::secured::authority("another")?.pem());
    let error =
        options.connect_with(&secured.host(), identity.clone()).await.expect_err("nobody vouches for it");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert_eq!(*identity.given.borrow(), 0);
    Ok(())
}

/// Collects everything that these tests log, including traces.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        subscriber.with_ansi(false).with_writer(|| Logged).init();
    });
}

/// Returns everything that was logged so far.
fn logged() -> String {
    String::from_utf8_lossy(&LOGGED.lock().expect("not poisoned")).into_owned()
}

fn shows_no_token(text: &str) {
    assert!(!text.contains(TOKEN), "{text}");
    let logged = logged();
    assert!(!logged.contains(TOKEN), "{logged}");
}
