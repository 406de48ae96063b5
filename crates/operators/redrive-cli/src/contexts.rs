//! `redrive context`: the contexts of the configuration file.

use anyhow::Result;
use serde_json::json;

use crate::args::ContextCommand;
use crate::exit::Exit;
use crate::output::{note, print_json, printable, table};
use crate::settings::{Config, Global};

pub(crate) fn run(global: &Global, command: &ContextCommand) -> Result<Exit> {
    let ContextCommand::List = command;
    let config = Config::read(global.config.clone())?;
    let contexts = || {
        config.contexts.iter().map(|(name, context)| (name, context, config.default.as_ref() == Some(name)))
    };
    if global.json {
        let contexts: Vec<_> = contexts()
            .map(|(name, context, default)| match context {
                Ok(context) => json!({
                    "name": name, "default": default, "broker": context.broker.label(), "queues": context.queues,
                    "read_only": context.read_only, "secret": context.secret.as_ref().map(ToString::to_string),
                }),
                Err(error) => json!({ "name": name, "default": default, "error": error }),
            })
            .collect();
        print_json(&contexts)?;
        return Ok(Exit::Ok);
    }
    let mut rows = table(["", "context", "broker", "secret", "queues", ""]);
    for (name, context, default) in contexts() {
        let mark = if default { "*" } else { "" }.to_owned();
        let Ok(context) = context else {
            rows.row([
                mark,
                name.clone(),
                "cannot be used".to_owned(),
                String::new(),
                String::new(),
                String::new(),
            ]);
            continue;
        };
        rows.row([
            mark,
            name.clone(),
            context.broker.label().to_owned(),
            context.secret.as_ref().map(ToString::to_string).unwrap_or_default(),
            context.queues.join(", "),
            if context.read_only { "read-only" } else { "" }.to_owned(),
        ]);
    }
    rows.print();
    for (name, error) in
        config.contexts.iter().filter_map(|(name, context)| Some((name, context.as_ref().err()?)))
    {
        note!("{}", printable(&format!("the context `{name}` cannot be used: {error}")));
    }
    if config.contexts.is_empty() {
        note!("no contexts in {}", config.path.display());
    }
    Ok(Exit::Ok)
}
