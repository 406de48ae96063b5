//! Splits a text into tokens.

use super::SqlError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A bare name, which may be a keyword.
    Word(String),
    /// A name in brackets or double quotes, which is never a keyword.
    Name(String),
    Parameter(String),
    Text(String),
    Long(i64),
    Double(f64),
    /// One of the operators and punctuation marks.
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 17] =
    ["<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", ".", ";", "+", "-", "*", "/", "%"];

/// Returns the tokens, each with the position of its first character, counted from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SqlError> {
    let mut lexer = Lexer { characters: text.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.at + 1;
        let token = lexer.token()?;
        let end = token == Token::End;
        tokens.push((at, token));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    characters: Vec<char>,
    at: usize,
}

impl Lexer {
    fn token(&mut self) -> Result<Token, SqlError> {
        let Some(first) = self.peek(0) else { return Ok(Token::End) };
        match first {
            '\'' => self.quoted('\'').map(Token::Text),
            '"' => self.quoted('"').map(Token::Name),
            '[' => self.quoted(']').map(Token::Name),
            '@' => {
                self.at += 1;
                match self.word() {
                    name if name.is_empty() => Err(self.error("a parameter's name")),
                    name => Ok(Token::Parameter(name)),
                }
            }
            _ if first.is_ascii_digit() => self.number(),
            '.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) && !self.after_name() => {
                self.number()
            }
            _ if is_word(first) => Ok(Token::Word(self.word())),
            _ => self.sign(),
        }
    }

    fn sign(&mut self) -> Result<Token, SqlError> {
        let rest = &self.characters[self.at..];
        let sign = SIGNS.iter().find(|sign| sign.chars().eq(rest.iter().copied().take(sign.len())));
        match sign {
            Some(sign) => {
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
            None => Err(self.error("a name, a value or an operator")),
        }
    }

    /// Reads up to the closing quote; a doubled quote stands for itself.
    fn quoted(&mut self, close: char) -> Result<String, SqlError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.peek(0) {
                None => return Err(self.error("the closing quote")),
                Some(character) if character == close => {
                    self.at += 1;
                    if self.peek(0) != Some(close) {
                        return Ok(text);
                    }
                    text.push(close);
                }
                Some(character) => text.push(character),
            }
            self.at += 1;
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        self.characters[start..self.at].iter().collect()
    }

    fn number(&mut self) -> Result<Token, SqlError> {
        let start = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self.word();
            return i64::from_str_radix(&digits, 16).map(Token::Long).map_err(|_| self.error("a number"));
        }
        self.digits();
        let mut whole = true;
        if self.peek(0) == Some('.') {
            whole = false;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.peek(0), Some('+' | '-')) {
                self.at += 1;
            }
            self.digits();
        }
        let text: String = self.characters[start..self.at].iter().collect();
        if self.peek(0).is_some_and(is_word) {
            return Err(self.error("the end of the number"));
        }
        let number =
            if whole { text.parse().map(Token::Long).ok() } else { text.parse().map(Token::Double).ok() };
        number.ok_or_else(|| self.error("a number that fits 64 bits"))
    }

    fn digits(&mut self) {
        while self.peek(0).is_some_and(|digit| digit.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// `user.5` is no number.
    fn after_name(&self) -> bool {
        self.at > 0 && is_word(self.characters[self.at - 1])
    }

    fn skip_space(&mut self) {
        while self.peek(0).is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn error(&self, expected: &str) -> SqlError {
        SqlError::Syntax { at: self.at + 1, reason: format!("expected {expected}") }
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '#')
}
