//! Servers of several processes, and of hosts of their own: they break and come back as they are told to.

mod redis;
mod zookeeper;
