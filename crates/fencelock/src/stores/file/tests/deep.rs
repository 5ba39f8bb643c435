//! What is told by time.

mod wakes;

use super::*;
