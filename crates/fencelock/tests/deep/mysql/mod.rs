//! The store `mysql:` under contention, and while its server is killed and its requests are ended.

mod contended;
#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../mysql/lab.rs"]
mod lab;

/// Two clients for each name, so that requests of waiters and of the releasing holders are ended, too.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_requests_that_are_ended_at_the_server_cost_no_lock_and_admit_no_client_twice() {
    lab::end_requests(8, 4, 3000).await;
}
