//! The page in a real terminal, key by key.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::common::{Cli, Shop};

const ROWS: u16 = 30;
const COLUMNS: u16 = 120;
/// Only tells a hang from an answer.
const IN_TIME: Duration = Duration::from_secs(60);

/// `redrive` in a terminal of its own.
pub(super) struct Terminal {
    pty: pty_process::Pty,
    screen: vt100::Parser,
    process: Child,
}

impl Terminal {
    pub(super) fn start(cli: &Cli, arguments: &[&str]) -> Self {
        let (pty, pts) = pty_process::open().expect("a terminal");
        pty.resize(pty_process::Size::new(ROWS, COLUMNS)).expect("its size");
        let mut command = pty_process::Command::new(env!("CARGO_BIN_EXE_redrive")).kill_on_drop(true);
        for (name, value) in cli.command(&[]).as_std().get_envs() {
            command = match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let process = command.args(arguments).env("TERM", "xterm-256color").spawn(pts).expect("it runs");
        let size = |cells| std::num::NonZeroU16::new(cells).expect("not 0");
        Self { pty, screen: vt100::Parser::new(size(ROWS), size(COLUMNS), 0), process }
    }

    /// Reads until the screen shows all of this.
    pub(super) async fn shows(&mut self, wanted: &[&str]) {
        let shown = async {
            while !wanted.iter().all(|text| self.screen.screen().contents().contains(text)) {
                assert!(self.read().await, "it has ended");
            }
        };
        let in_time = tokio::time::timeout(IN_TIME, shown).await.is_ok();
        assert!(in_time, "{wanted:?} is missing on\n{}", self.screen.screen().contents());
    }

    pub(super) async fn press(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).await.expect("typed");
    }

    /// Reads to its end. The terminal is as it was, and what it said at last can be read there.
    async fn has_ended(&mut self, code: i32, said: &str) {
        let ended = async {
            while self.read().await {}
            self.process.wait().await.expect("it ended").code()
        };
        assert_eq!(tokio::time::timeout(IN_TIME, ended).await.expect("it ends"), Some(code));
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        assert_eq!(screen.contents().trim(), said);
    }

    /// Returns false at the end.
    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // Linux reports the end of the other side as an error.
        let read = self.pty.read(&mut bytes).await.unwrap_or(0);
        self.screen.process(&bytes[..read]);
        read > 0
    }
}

/// Find why orders fail, send the group back, see it go.
pub(super) async fn the_page(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let mut terminal = Terminal::start(&cli, &["watch", &shop.queue]);
    terminal.shows(&["dead-letter", " 5 ", "parking"]).await;
    terminal.press("\r").await;
    terminal.shows(&["g1", "no answer from the stock", "g2", "no such customer"]).await;
    terminal.press("\r\r").await;
    terminal.shows(&["attempts  1", "order-"]).await;
    // Its escape sequence is text.
    terminal.shows(&["\\u{1b}[31m"]).await;

    let service = shop.repaired().await;
    terminal.press("\x7f\x7fr").await;
    terminal.shows(&["redrive 3 messages", "to the consumer of"]).await;
    terminal.press("\r").await;
    terminal.shows(&["redrive 3 messages? [y/N]"]).await;
    terminal.press("y").await;
    terminal.shows(&["done      3 of 3", "3 handled, 0 failed the same way", "the run is over"]).await;
    service.handled(3).await;
    service.stop().await;
    shop.has_shelved(2).await;
    terminal.press("q").await;
    terminal.has_ended(0, "").await;
    shop.tidy_up().await;
}

/// As a machine that shuts down does it.
pub(super) async fn told_to_end(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let mut terminal = Terminal::start(&cli, &["watch", &shop.queue]);
    terminal.shows(&["dead-letter", " 5 "]).await;
    assert!(terminal.screen.screen().alternate_screen());
    crate::common::tell_to_end(&terminal.process);
    terminal.has_ended(0, "").await;
    shop.tidy_up().await;
}
