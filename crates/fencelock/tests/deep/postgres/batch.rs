//! Batches, exhaustively.

use super::model::check_all;

#[tokio::test]
async fn in_every_order_of_three_steps_of_two_sessions_a_batch_is_answered_as_its_requests_are() {
    let states = check_all(3, true).await;
    eprintln!("{states} states");
    assert!(states > 500, "{states} states");
}
