//! What a guard holds: marks of types, never values.

/// A mutex: nobody else holds anything under the name.
#[derive(Debug)]
pub enum Exclusive {}

/// A read-write lock for reading: other readers may, no writer does.
#[derive(Debug)]
pub enum Reading {}

/// A read-write lock for writing: nobody else reads or writes.
#[derive(Debug)]
pub enum Writing {}

/// Permits of a semaphore: others hold what is left of its capacity.
#[derive(Debug)]
pub enum Permits {}

/// Something: for code that serves every kind alike.
#[derive(Debug)]
pub enum Any {}
