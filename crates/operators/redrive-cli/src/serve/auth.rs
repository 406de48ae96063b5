//! Who may do what: tokens and sessions. Times are passed in.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::exit::usage;

/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of sessions; beyond it, the oldest ends.
const MAX_SESSIONS: usize = 1000;
/// A token that somebody chose is at least so long.
const MIN_TOKEN: usize = 32;

/// Who is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) name: String,
    pub(crate) read_only: bool,
}

/// A hash: what is looked up by it takes as long whether it is nearly right or all wrong.
type Hash = [u8; 32];

/// The tokens and the sessions. Only hashes are kept.
pub(crate) struct Auth {
    tokens: HashMap<Hash, Who>,
    inner: Mutex<Inner>,
}

struct Inner {
    one_time: Option<(Hash, Who)>,
    sessions: HashMap<Hash, Session>,
}

struct Session {
    who: Who,
    seen: Instant,
}

impl Auth {
    /// Creates the access for these named tokens, and for whoever has the returned token, once.
    ///
    /// # Errors
    ///
    /// If the system has no randomness.
    pub(crate) fn new(tokens: Vec<(String, Who)>, owner: Who) -> Result<(Self, String)> {
        let token = random()?;
        let tokens = tokens.into_iter().map(|(token, who)| (hash(&token), who)).collect();
        let inner = Inner { one_time: Some((hash(&token), owner)), sessions: HashMap::new() };
        Ok((Self { tokens, inner: Mutex::new(inner) }, token))
    }

    /// Returns the name of a new session, if the token is one.
    ///
    /// # Errors
    ///
    /// If the system has no randomness.
    pub(crate) fn log_in(&self, token: &str, now: Instant) -> Result<Option<String>> {
        let token = hash(token);
        let mut inner = self.inner.lock();
        let who = match self.tokens.get(&token) {
            Some(who) => who.clone(),
            None => match inner.one_time.take_if(|(once, _)| *once == token) {
                Some((_, who)) => who,
                None => return Ok(None),
            },
        };
        let session = random()?;
        inner.sessions.retain(|_, session| now.duration_since(session.seen) < IDLE);
        if inner.sessions.len() >= MAX_SESSIONS {
            let oldest = inner.sessions.iter().min_by_key(|(_, session)| session.seen).map(|(name, _)| *name);
            oldest.map(|name| inner.sessions.remove(&name));
        }
        inner.sessions.insert(hash(&session), Session { who, seen: now });
        Ok(Some(session))
    }

    /// Returns who has this session.
    pub(crate) fn who(&self, session: &str, now: Instant) -> Option<Who> {
        let mut inner = self.inner.lock();
        let session = inner.sessions.get_mut(&hash(session))?;
        if now.duration_since(session.seen) >= IDLE {
            return None;
        }
        session.seen = now;
        Some(session.who.clone())
    }

    pub(crate) fn log_out(&self, session: &str) {
        self.inner.lock().sessions.remove(&hash(session));
    }
}

/// Reads a token of the form `NAME=FILE`.
///
/// # Errors
///
/// If the file cannot be read, or the token is short enough to be guessed.
pub(crate) fn read_token(argument: &str, read_only: bool) -> Result<(String, Who)> {
    let (name, file) = argument
        .split_once('=')
        // It may be the token itself.
        .ok_or_else(|| {
            usage("a token is named by NAME=FILE, and FILE contains it (the given text is not shown here)")
        })?;
    let token = std::fs::read_to_string(Path::new(file))
        .with_context(|| format!("cannot read the file with the token of `{name}`"))?;
    let token = token.trim();
    if token.len() < MIN_TOKEN {
        return Err(usage(format!(
            "the token of `{name}` has fewer than {MIN_TOKEN} characters: `openssl rand -hex 32` makes one"
        )));
    }
    Ok((token.to_owned(), Who { name: name.to_owned(), read_only }))
}

fn random() -> Result<String> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("the system has no randomness"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash(text: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str, read_only: bool) -> Who {
        Who { name: name.to_owned(), read_only }
    }

    #[test]
    fn the_printed_token_is_good_once_and_a_named_one_always() {
        let named = ("x".repeat(64), who("bo", true));
        let (auth, token) = Auth::new(vec![named.clone()], who("ada", false)).unwrap();
        let now = Instant::now();
        assert!(auth.log_in("", now).unwrap().is_none());
        assert!(auth.log_in(&token[1..], now).unwrap().is_none());
        let ada = auth.log_in(&token, now).unwrap().unwrap();
        assert!(auth.log_in(&token, now).unwrap().is_none(), "once");
        let bo = auth.log_in(&named.0, now).unwrap().unwrap();
        assert_ne!(bo, auth.log_in(&named.0, now).unwrap().unwrap());
        assert_eq!(auth.who(&ada, now), Some(who("ada", false)));
        assert_eq!(auth.who(&bo, now), Some(who("bo", true)));
        assert_eq!(auth.who(&token, now), None, "a token is no session");
        auth.log_out(&bo);
        assert_eq!(auth.who(&bo, now), None);
    }

    #[test]
    fn a_session_that_nobody_uses_ends() {
        let (auth, token) = Auth::new(Vec::new(), who("ada", false)).unwrap();
        let mut now = Instant::now();
        let session = auth.log_in(&token, now).unwrap().unwrap();
        for _ in 0..3 {
            now += IDLE - Duration::from_secs(1);
            assert!(auth.who(&session, now).is_some());
        }
        assert!(auth.who(&session, now + IDLE).is_none());
    }

    #[test]
    fn sessions_are_bounded() {
        let token = "x".repeat(64);
        let (auth, _) = Auth::new(vec![(token.clone(), who("bo", true))], who("ada", false)).unwrap();
        let now = Instant::now();
        let first = auth.log_in(&token, now).unwrap().unwrap();
        for second in 1..=MAX_SESSIONS {
            auth.log_in(&token, now + Duration::from_secs(second as u64)).unwrap();
        }
        assert_eq!(auth.inner.lock().sessions.len(), MAX_SESSIONS);
        assert_eq!(auth.who(&first, now + Duration::from_secs(2000)), None, "the oldest has ended");
    }
}
