//! Servers of several processes, and of hosts of their own: they break and come back on command.

mod redis;
mod zookeeper;
