//! Takes secrets out of text.

mod named;
mod tokens;
mod urls;
mod words;

use std::borrow::Cow;
use std::ops::Range;

/// What stands where a secret stood.
const MASK: &str = "***";
/// How often a text is looked through again at most. Two have been enough for every text that tests made up.
const MOST_ROUNDS: usize = 4;

/// The text without the secrets that can be told by their form; `***` stands where they stood.
///
/// | form | becomes |
/// |---|---|
/// | `amqp://user:pass@host/vhost` | `amqp://user:***@host/vhost`, also when the password contains `@`, `/` or `:` |
/// | `Password=…;`, `pwd=…`, `"password": "…"`, `password: …`, `DB_PASSWORD=…` | name kept, value `***` |
/// | the same for `secret`, `token`, `api_key` / `apikey` / `x-api-key`, `AccountKey`, `SharedAccessKey`, `SharedAccessSignature`, `private_key`, `access_key`, and whatever ends in one of them (`client_secret`, `access_token`) | |
/// | `sig=…`, `Signature=…` | name kept, value `***` |
/// | `Authorization: Bearer …`, `Authorization: Basic …` | scheme kept, credentials `***` |
/// | `Bearer …` | `Bearer ***` |
/// | a JWT (`eyJ….….…`), an AWS access key id (`AKIA…`), a PEM private key | `***` |
///
/// Applied to every error's text before it is written on a message. It takes linear time, changes nothing else, and
/// applying it twice is the same as applying it once.
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
/// # What it cannot know
///
/// - A secret without a name or a form: a password in plain prose, an argument after `--password`, a value in a
///   tuple, customers' data. Where errors may contain such, give a redactor of your own on top.
/// - The rest of an unquoted value that contains blanks: of `password: correct horse`, `horse` stays. Nor what
///   looks like the next name: of `password=a;b=c`, `b=c` stays.
/// - A password in a URL that begins with a number and a `/` (`user:12/x@host`): that is what a port looks like. `?`
///   and `#` within a password must be percent-encoded, as the standard says.
/// - A user name alone in a URL (`https://token@host`) stays: mostly it is one.
/// - Where a name is followed by a word of an ordinary sentence (`password: must not be empty`) it is left alone; a
///   secret that is such a word is not hidden.
#[must_use]
pub fn redact(text: &str) -> String {
    redacted(text).into_owned()
}

/// The same; a text without secrets, as most are, is not copied.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    let Cow::Owned(mut redacted) = masked(text) else { return Cow::Borrowed(text) };
    // What one form masked may read as the value of another now (`sig=(***` is one). A mask only ever grows, so that it
    // ends; the limit is for a text made to go round.
    for _ in 0..MOST_ROUNDS {
        match masked(&redacted) {
            Cow::Owned(again) if again != redacted => redacted = again,
            _ => break,
        }
    }
    Cow::Owned(redacted)
}

/// The text without what each form finds in it, one form after the other.
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

/// The first secret of one form that begins at or after a position, as a range that is not empty and ends on
/// character boundaries; and from where to look on is always its end. Looking through a whole text must take linear
/// time.
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
