//! Redis: one ordered queue for each name, kept by scripts that the server runs whole. See NOTES.md.
#![allow(dead_code, reason = "the session that calls the scripts is still to come")]

mod layout;
mod scripts;
