//! The kinds of guards: marker types without values.

/// A mutex: no other client holds anything under the name.
#[derive(Debug)]
pub enum Exclusive {}

/// A read-write lock for reading: other readers may hold it, no writer does.
#[derive(Debug)]
pub enum Reading {}

/// A read-write lock for writing: no other client reads or writes.
#[derive(Debug)]
pub enum Writing {}

/// Permits of a semaphore: other contenders hold the rest of its capacity.
#[derive(Debug)]
pub enum Permits {}

/// Any kind: for code that treats all kinds alike.
#[derive(Debug)]
pub enum Any {}
