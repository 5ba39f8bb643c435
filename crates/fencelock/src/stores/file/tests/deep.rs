//! Tests that judge time.

mod wakes;

use super::*;
