//! Calls of an account that may do nothing but call the procedures.

use fencelock::Name;
use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::Row;
use mysql_async::prelude::Queryable;

use crate::lab::{acquire, client, connection};

/// With these as the arguments, each is refused.
const WRONG: &[(&str, &[&str])] = &[
    (
        "enter",
        &[
            "1, 1, 'job', 1, 9, -1, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, 0, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, 0, 0, FALSE, FALSE, NULL",
            "1, 1, 'job', 1, 9, 2, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, -2, -1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, NULL, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, 1, NULL, TRUE, FALSE, NULL",
            "1, 1, 'wide', 1, 9, 1, 4294967296, TRUE, FALSE, NULL",
            "1, 1, '', 1, 9, 1, 1, TRUE, FALSE, NULL",
            "1, 1, NULL, 1, 9, 1, 1, TRUE, FALSE, NULL",
            "1, 1, REPEAT('n', 513), 1, 9, 1, 1, TRUE, FALSE, NULL",
            "1, NULL, 'job', 1, 9, 1, 1, TRUE, FALSE, NULL",
            "1, 0, 'job', 1, 9, 1, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', NULL, 9, 1, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, -9, 1, 1, TRUE, FALSE, NULL",
            "1, 1, 'job', 1, 9, 1, 1, NULL, FALSE, NULL",
            "1, 1, 'job', 1, 9, 1, 1, TRUE, NULL, NULL",
            "1, 1, 'job', 1, 9, 1, 1, TRUE, FALSE, REPEAT('p', 513)",
        ],
    ),
    (
        "open",
        &[
            "9, 'fencelock_0000000000000009', 0, 'h', 1, 1",
            "9, 'fencelock_0000000000000009', -1, 'h', 1, 1",
            "9, 'fencelock_0000000000000009', 9223372036854775807, 'h', 1, 1",
            "9, 'fencelock_0000000000000009', NULL, 'h', 1, 1",
            "9, 'theirs', 1000000, 'h', 1, 1",
            "9, NULL, 1000000, 'h', 1, 1",
            "NULL, 'fencelock_0000000000000009', 1000000, 'h', 1, 1",
            "9, 'fencelock_0000000000000009', 1000000, NULL, 1, 1",
            "9, 'fencelock_0000000000000009', 1000000, 'h', -1, 1",
        ],
    ),
    ("resume", &["1, 0", "1, -1", "1, NULL", "1, 9223372036854775807"]),
    ("renew", &["1, 0, ''", "1, -1, ''", "1, NULL, ''", "1, 9223372036854775807, ''", "1, 1000000, NULL"]),
    (
        "leave",
        &[
            "1, '', 1, 1, NULL, FALSE",
            "1, NULL, 1, 1, NULL, FALSE",
            "1, 'job', NULL, 1, NULL, FALSE",
            "1, 'job', 1, 1, NULL, NULL",
        ],
    ),
    (
        "lighten",
        &["1, 'job', 1, 1, 1, 0", "1, 'job', 1, 1, 1, -1", "1, 'job', 1, 1, 1, NULL", "1, 'job', 1, 1, NULL, 1"],
    ),
    (
        "batch",
        &[
            "1, 1, NULL",
            "1, 1, ''",
            "1, 1, '[]'",
            "1, 1, 'x'",
            "1, 0, '[[1,\"6a6f62\",1,1,null]]'",
            "1, 1, '[[3,\"6a6f62\",1,1,null]]'",
            "1, 1, '[[1,\"6a6f62\",1,1,null],[null,\"6a6f62\",1,1,null]]'",
            "1, 1, '[[1,\"6a6f62\",1,1,null],[1,\"\",1,1,null]]'",
            "1, 1, '[[1,\"6a6f62\",1,1,null],[1,\"6a6f6\",1,null,null]]'",
            "1, 1, '[[0,\"61\",1,9,null,1,1,1,0,null],[0,\"62\",1,9,null,2,1,1,0,null]]'",
            "1, 1, '[[0,\"61\",1,9,null,1,1,1,0,null],[0,\"62\",1,9,null,1,4294967296,1,0,null]]'",
            "1, 1, '[[0,\"61\",1,9,null,1,1,1,0,null],[0,\"62\",1,9,null,1,1,null,0,null]]'",
            "1, 1, '[[0,\"61\",1,9,null,1,1,1,0,null],[0,\"62\",1,9,null,1,1,1,2,null]]'",
            "1, 1, CONCAT('[[0,\"', REPEAT('61', 513), '\",1,9,null,1,1,1,0,null]]')",
            "1, 1, CONCAT('[[0,\"61\",1,9,null,1,1,1,0,\"', REPEAT('61', 513), '\"]]')",
            "1, 1, CONCAT('[', REPEAT('[0,\"61\",1,9,null,1,1,1,0,null],', 64), '[0,\"61\",1,9,null,1,1,1,0,null]]')",
        ],
    ),
    ("look", &["1, NULL"]),
    (
        "break",
        &[
            "NULL, 1, 1, 1, 'r', 'w'",
            "'job', 1, 1, 0, 'r', 'w'",
            "'job', 1, 1, 1, NULL, 'w'",
            "'job', 1, 1, 1, 'r', NULL",
        ],
    ),
    (
        "write_note",
        &[
            "NULL, 1, 1, 1, 'v', NULL",
            "'job', 1, 1, 1, 'v', 0",
            "'job', 1, 1, 1, 'v', -1",
            "'job', 1, 1, 1, REPEAT('v', 4097), NULL",
            "'job', 1, 1, 1, 'v', 9223372036854775807",
        ],
    ),
    ("clear_up", &["NULL", "-1", "4096"]),
    ("hold", &["NULL, 1", "'job', NULL", "'job', 0", "'job', -1"]),
    ("fence", &["NULL, 1", "'stock', NULL", "REPEAT('n', 513), 1"]),
];

#[tokio::test]
async fn an_account_that_may_only_call_the_procedures_is_refused_wrong_parameters_and_they_change_nothing() {
    let server = Server::start(Settings::default()).unwrap();
    drop(acquire(&client(&server.url(), 60_000).await, "another").await);
    server.sql("CREATE USER guest@'%'; GRANT EXECUTE ON fencelock.* TO guest@'%'").unwrap();
    let mut guest = connection(&format!("mysql://guest@{}/fencelock", server.address())).await;
    let mut admin = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    guest.query_drop("SET time_zone = '+00:00'").await.unwrap();
    for call in [
        "open(1, 'fencelock_0000000000000001', 60000000, 'h', 1, 1)",
        "enter(1, 1, 'job', 1, 1, 1, 1, TRUE, FALSE, NULL)",
    ] {
        guest.query_drop(format!("CALL fencelock_{call}")).await.unwrap();
    }
    let everything = "SELECT GROUP_CONCAT(CONCAT_WS('/', b, name, seq, granted, weight, capacity) ORDER BY b, seq), (SELECT GROUP_CONCAT(id, '/', ttl, '/', expires, '/', epoch ORDER BY id) \
         FROM fencelock_session WHERE pid = 1), (SELECT COUNT(*) FROM fencelock_note), (SELECT COUNT(*) FROM fencelock_fenced), (SELECT longest FROM fencelock_layout) FROM fencelock_place";
    let before: Row = admin.query_first(everything).await.unwrap().unwrap();
    for (procedure, wrong) in WRONG {
        for arguments in *wrong {
            let call = format!("CALL fencelock_{procedure}({arguments})");
            assert!(guest.query_drop(&call).await.is_err(), "{call}");
            let after: Row = admin.query_first(everything).await.unwrap().unwrap();
            assert_eq!(format!("{:?}", after.unwrap()), format!("{:?}", before.clone().unwrap()), "{call}");
        }
    }
    for call in [
        "open(2, 'fencelock_0000000000000002', 60000000, X'68FF', 1, 2)",
        "enter(2, 1, 'odd', 2, 1, 1, 1, TRUE, FALSE, X'70FF0A00')",
        "enter(2, 1, X'6FEDA080', 2, 2, 1, 1, TRUE, FALSE, NULL)",
    ] {
        guest.query_drop(format!("CALL fencelock_{call}")).await.unwrap();
    }
    let looker = client(&server.url(), 60_000).await;
    let names = looker.names("", None, 10).await.unwrap();
    let mut names: Vec<&str> = names.iter().map(Name::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["job", "odd"]);
    let queue = looker.queue(&Name::new("odd").unwrap()).await.unwrap();
    assert!(queue.contenders[0].grant.is_some() && queue.contenders[0].purpose.is_some(), "{queue:?}");
}
