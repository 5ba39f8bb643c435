//! Readers of what other programs write: a module of the library in the build of the fuzzer, and of the unit tests.

#[cfg(test)]
#[path = "changes.rs"]
mod changes;

use redis::Value;

use crate::ask::ask_servers;
use crate::engine::options::TimingOptions;
use crate::kit::address::HostPort;
use crate::kit::served::{News, news};
use crate::store::{StoreUrl, known};
use crate::stores::file::config::Config;
use crate::stores::file::ticket::{Ticket, TicketText, decode};
use crate::stores::redis::cluster::nodes::Ownership;
use crate::stores::redis::fair::{notes, scripts::replies};
use crate::stores::redis::try_again::dialect;
use crate::stores::redis::wire::Server;

/// Reads `text` as a URL, with the times and the options of its store. Connects to no server.
pub fn url(text: &str) {
    let Ok(mut url) = StoreUrl::parse(text) else { return };
    let _ = format!("{url} {url:?}");
    let mut timing = TimingOptions::default();
    let is_timed = timing.fill_from(&mut url).is_ok();
    if let Some(capability) = known(&url).ok().and_then(|store| store.capability).filter(|_| is_timed) {
        let _ = timing.resolve(&capability().pace);
    }
    let _ = (Config::from_url(url.clone()), ask_servers(url, &[]));
}

/// Reads `text` as the file name and as the target of a ticket. A ticket has a single file name.
pub fn ticket(text: &str) {
    if let Some((encoded, ticket)) = Ticket::parse(text) {
        assert_eq!(ticket.file_name(encoded), text);
        let _ = decode(encoded);
    }
    let _ = TicketText::decode(text);
}

/// Reads `bytes` as a message of a Redis server, and as the reply to each request.
pub fn reply(bytes: &[u8]) {
    let _: Vec<News> = news(bytes);
    let Ok(reply) = redis::parse_redis_value(bytes) else { return };
    let reply = || reply.clone();
    let _ = (replies::open(reply()), replies::resumed(reply()), replies::renewed(reply()), replies::enter(reply()));
    let _ = (replies::look(reply()), replies::done(reply()), replies::withdrawn(reply()));
    let _ = (replies::shown(reply()), replies::in_short(reply()), replies::names(reply()), replies::swept(reply()));
    let _ = notes::read_of(&reply());
    let _ = (dialect::token(reply()), dialect::tried(reply()), dialect::passed(reply()), dialect::found(reply()));
    let _ = Server::answered(reply());
    if let Value::Array(answers) = reply() {
        let _ = Ownership::read(answers, &HostPort { host: "localhost".to_owned(), port: 7000 });
    }
}

#[cfg(test)]
mod tests {
    use super::changes::change_seeds;

    #[test]
    fn every_reader_survives_the_seeds_of_the_fuzzer_and_many_changes_of_them() {
        change_seeds("url", 300, |bytes| super::url(&String::from_utf8_lossy(bytes)));
        change_seeds("ticket", 1000, |bytes| super::ticket(&String::from_utf8_lossy(bytes)));
        change_seeds("reply", 1000, super::reply);
    }
}
