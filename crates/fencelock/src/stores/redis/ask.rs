//! The answers of a server to commands: its configuration.

use futures_util::future::join;
use redis::{Cmd, Value, from_redis_value};

use super::wire::{Address, Config, fault, shake_hands};
use crate::ask::{AskedServer, Questions};
use crate::kit::bounds::Bounds;

/// Runs each question as a command, on the server that `config` names or that Sentinels do.
pub(super) fn ask(config: Config, questions: Questions) -> AskedServer {
    let shown = format!("{config:?}");
    let answers = async move {
        let Bounds { clock, patience, .. } = Bounds::of(None);
        let config = match &config.address {
            Address::Primary(sentinels) => config.at(sentinels.dialled(&sentinels.find(&*clock, patience).await?)),
            _ => config,
        };
        let (mut wire, driver) = shake_hands(&config, None, &*clock).await?;
        // The driver ends with the connection, which the questions own.
        let answers = async move {
            let mut answers = Vec::new();
            for question in questions {
                let words: Vec<&str> = question.split(' ').collect();
                let answer = Cmd::new().arg(words).query_async(&mut wire).await;
                answers.push(answer.map(text).map_err(|error| fault("ask", &error)));
            }
            answers
        };
        Ok(join(answers, driver).await.0)
    };
    (shown, Box::pin(answers))
}

fn text(answer: Value) -> String {
    match answer {
        Value::Array(items) => items.into_iter().map(text).collect::<Vec<_>>().join("\n"),
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| text(name) + ":" + &text(value)).collect(),
        answer => from_redis_value(answer).unwrap_or_default(),
    }
}
