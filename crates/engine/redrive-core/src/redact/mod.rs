//! Removes secrets from text.

mod named;
mod tokens;
mod urls;
mod words;

use std::borrow::Cow;
use std::ops::Range;

/// Replaces a secret.
const MASK: &str = "***";
/// Maximum number of passes over a text. Two were enough for every text that the tests generated.
const MOST_ROUNDS: usize = 4;

/// Returns the text with `***` in place of secrets that can be recognized by their form.
///
/// | form | becomes |
/// |---|---|
/// | `amqp://user:pass@host/vhost` | `amqp://user:***@host/vhost`, also when the password contains `@`, `/` or `:` |
/// | `Password=…;`, `pwd=…`, `"password": "…"`, `password: …`, `DB_PASSWORD=…` | name kept, value `***` |
/// | the same for `secret`, `token`, `api_key` / `apikey` / `x-api-key`, `AccountKey`, `SharedAccessKey`, `SharedAccessSignature`, `private_key`, `access_key`, and every name that ends in one of them (`client_secret`, `access_token`) | |
/// | `sig=…`, `Signature=…` | name kept, value `***` |
/// | `Authorization: Bearer …`, `Authorization: Basic …` | scheme kept, credentials `***` |
/// | `Bearer …` | `Bearer ***` |
/// | a JWT (`eyJ….….…`), an AWS access key id (`AKIA…`), a PEM private key | `***` |
///
/// Every error's text passes through it before the text is written on a message. It takes linear time, changes nothing else, and
/// applying it twice has the same result as applying it once.
///
/// ```
/// use redrive_core::redact;
///
/// assert_eq!(
///     redact("cannot connect to amqp://shop:hunter2@mq-1/orders"),
///     "cannot connect to amqp://shop:***@mq-1/orders",
/// );
/// assert_eq!(redact("401 for GET /orders?access_token=abc123&page=2"), "401 for GET /orders?access_token=***&page=2");
/// assert_eq!(redact("token expired"), "token expired");
/// ```
///
/// # What it cannot recognize
///
/// - A secret without a name or a form: a password in plain prose, an argument after `--password`, a value in a tuple, customers'
///   data. If errors may contain such secrets, add a redactor of your own.
/// - The rest of an unquoted value that contains blanks: of `password: correct horse`, `horse` stays. Text that looks like the next
///   name also stays: of `password=a;b=c`, `b=c`.
/// - A password in a URL that begins with a number and a `/` (`user:12/x@host`): it looks like a port. `?` and `#` within a password
///   must be percent-encoded, as the standard says.
/// - A user name alone in a URL (`https://token@host`): it is rarely a secret.
/// - A name followed by a word of an ordinary sentence (`password: must not be empty`): a secret that is such a word is not hidden.
#[must_use]
pub fn redact(text: &str) -> String {
    redacted(text).into_owned()
}

/// Does the same without copying a text that has no secrets, as most have none.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    let Cow::Owned(mut redacted) = masked(text) else { return Cow::Borrowed(text) };
    // A masked text may look like another value (`sig=(***`), so it is searched again. Masks only grow, so this ends; the limit is
    // for hostile text.
    for _ in 0..MOST_ROUNDS {
        match masked(&redacted) {
            Cow::Owned(again) if again != redacted => redacted = again,
            _ => break,
        }
    }
    Cow::Owned(redacted)
}

/// Returns the text after one pass of each form.
fn masked(text: &str) -> Cow<'_, str> {
    let finders: [Finder; 6] = [
        tokens::private_key,
        urls::password,
        named::secret,
        tokens::bearer,
        tokens::json_web_token,
        tokens::aws_key_id,
    ];
    finders.into_iter().fold(Cow::Borrowed(text), mask_all)
}

/// Finds the first secret of one form at or after a position. The range is not empty and ends on character boundaries. The search
/// continues at its end, so that a whole text takes linear time.
type Finder = fn(&str, usize) -> Option<Range<usize>>;

fn mask_all(text: Cow<'_, str>, find: Finder) -> Cow<'_, str> {
    let Some(mut secret) = find(&text, 0) else { return text };
    let mut masked = String::with_capacity(text.len() + MASK.len());
    let mut done = 0;
    loop {
        masked.push_str(&text[done..secret.start]);
        masked.push_str(MASK);
        done = secret.end;
        match find(&text, done) {
            Some(next) => secret = next,
            None => break,
        }
    }
    masked.push_str(&text[done..]);
    Cow::Owned(masked)
}
