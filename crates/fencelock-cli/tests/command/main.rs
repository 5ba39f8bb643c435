//! The command from outside: one module for each verb, and for what is around it.

mod bench;
mod break_;
mod common;
mod completions;
mod doctor;
mod documents;
mod elect;
mod ls;
mod nested;
mod outage;
mod page;
mod postgres;
mod readme;
mod redis;
mod routes;
mod run;
mod serve;
mod servers;
mod several;
mod show;
mod store;
mod stores;
mod terminal;
mod zookeeper;
mod zookeeper_by_hand;
mod zookeeper_others;
