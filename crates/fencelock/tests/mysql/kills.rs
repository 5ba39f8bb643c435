//! Requests that an administrator ends at the server (KILL QUERY), at each statement of each procedure. MariaDB may end a statement with an
//! error, or report a read that found nothing, or a write that wrote nothing, as a success.

use std::collections::{BTreeMap, BTreeSet};

use fencelock::mysql::Schema;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use crate::lab::{connection, database, is_mariadb, migrated, until};

/// A call: the statements before it, the procedure, and its arguments.
type Step = (&'static str, &'static str, &'static str);
type Rows = Vec<Vec<Option<String>>>;

/// `@s` is the number of the place of the newest request of this client.
const SEQ: &str = "SET @s = (SELECT MAX(seq) FROM fencelock_place WHERE client = 1)";
const BUCKET: &str = "SET @b = CONV(LEFT(SHA2('rw', 256), 3), 16, 10) DIV 256 * 256";

/// The lock before which a procedure waits. Named locks are the whole server's, and other tests have their own databases there.
const GATE: &str = "CONCAT('gate ', DATABASE())";

const STEPS: &[Step] = &[
    ("", "open", "1, 'fencelock_0000000000000001', 60000000, 'h', 1, 1"),
    ("", "open", "2, 'fencelock_0000000000000002', 90000000, 'h', 1, 2"),
    ("", "open", "3, 'fencelock_0000000000000003', 60000000, 'h', 1, 3"),
    ("", "open", "4, 'fencelock_0000000000000004', 60000000, 'h', 1, 4"),
    ("", "enter", "1, 1, 'job', 1, 1, 1, 1, TRUE, FALSE, NULL"),
    ("", "enter", "2, 1, 'job', 2, 1, 1, 1, TRUE, FALSE, NULL"),
    ("", "enter", "3, 1, 'job', 3, 1, 1, 1, TRUE, FALSE, NULL"),
    ("", "enter", "4, 1, 'job', 4, 1, 1, 1, FALSE, FALSE, NULL"),
    ("", "enter", "2, 1, 'job', 2, 1, 1, 1, TRUE, TRUE, NULL"),
    ("", "enter", "4, 1, 'job', 4, 2, 1, 2, TRUE, FALSE, NULL"),
    ("", "contention", "'job', '1-1'"),
    ("", "waited_for", "'[[\"6a6f62\"]]'"),
    ("", "show", "'job', 0, 0, 10"),
    ("", "names", "-1, '', 10"),
    ("", "batch", "3, 1, '[[2,\"6a6f62\",3,1,null,null,null,null,null,null]]'"),
    ("", "leave", "4, 'job', 4, 9, NULL"),
    ("", "enter", "4, 1, 'free', 4, 20, 1, 1, TRUE, FALSE, NULL"),
    ("SET @s = (SELECT seq FROM fencelock_place WHERE name = 'free')", "leave", "4, 'free', 4, 20, @s"),
    ("", "renew", "1, 60000000, ''"),
    ("", "resume", "1, 60000000"),
    ("", "unknown", "1, ''"),
    (SEQ, "look", "1, CONCAT('[[\"6a6f62\",', @s, ']]')"),
    (SEQ, "write_note", "'job', 1, 1, @s, 'v', NULL"),
    ("", "read_note", "'job'"),
    (SEQ, "write_note", "'job', 1, 1, @s, NULL, NULL"),
    (SEQ, "await", "'job', @s"),
    (SEQ, "hold", "'job', @s"),
    (SEQ, "break", "'job', 1, 1, @s, 'record', 'why'"),
    ("", "breaks", "'job'"),
    ("SET @s = (SELECT MAX(seq) FROM fencelock_broken)", "renew", "1, 60000000, @s"),
    ("", "enter", "1, 2, 'job', 1, 2, 1, 1, TRUE, FALSE, NULL"),
    ("UPDATE fencelock_session SET expires = 1 WHERE id = 2", "look", "1, '[[\"6a6f62\",1]]'"),
    (SEQ, "leave", "1, 'job', 1, 2, @s"),
    ("", "open", "9, 'fencelock_0000000000000009', 60000000, 'h', 1, 9"),
    ("", "open", "10, 'fencelock_0000000000000010', 60000000, 'h', 1, 10"),
    ("", "enter", "9, 1, 'one', 9, 1, 1, 1, TRUE, FALSE, NULL"),
    ("", "enter", "10, 1, 'one', 10, 1, 1, 1, TRUE, FALSE, NULL"),
    ("UPDATE fencelock_session SET expires = 1 WHERE id = 10", "enter", "1, 2, 'one', 1, 30, 1, 5, TRUE, FALSE, NULL"),
    ("", "enter", "1, 2, 'rw', 1, 3, 10, 10, FALSE, FALSE, NULL"),
    ("", "enter", "3, 2, 'rw', 3, 3, 1, 10, TRUE, FALSE, NULL"),
    ("", "enter", "4, 1, 'rw', 4, 3, 1, 10, TRUE, FALSE, NULL"),
    (SEQ, "lighten", "1, 'rw', 1, 3, @s, 1"),
    ("", "enter", "1, 2, 'rw', 1, 4, 1, 10, FALSE, FALSE, NULL"),
    ("UPDATE fencelock_session SET expires = 1 WHERE id = 3", "enter", "4, 1, 'rw', 4, 5, 10, 10, TRUE, FALSE, NULL"),
    ("", "open", "5, 'fencelock_0000000000000005', 60000000, 'h', 1, 5"),
    ("", "enter", "5, 1, 'rw', 5, 1, 1, 10, TRUE, FALSE, NULL"),
    ("UPDATE fencelock_session SET expires = 1 WHERE id = 5", "enter", "1, 2, 'rw', 1, 6, 1, 5, TRUE, FALSE, NULL"),
    ("", "open", "6, 'fencelock_0000000000000006', 60000000, 'h', 1, 6"),
    ("", "enter", "6, 1, 'rw', 6, 1, 1, 10, TRUE, FALSE, NULL"),
    (
        "UPDATE fencelock_session SET expires = 1 WHERE id = 6; SET @b = CONV(LEFT(SHA2('rw', 256), 3), 16, 10) DIV 256 * 256",
        "clear_up",
        "@b",
    ),
    (BUCKET, "clear_up", "0"),
    ("", "leave", "1, 'rw', 1, 3, NULL"),
    ("", "batch", "1, 2, '[[2,\"7277\",1,4,null,null,null,null,null,null]]'"),
    ("UPDATE fencelock_session SET expires = 1 WHERE id = 4", "look", "1, '[[\"7277\",1]]'"),
    (
        "INSERT INTO fencelock_queue VALUES (CONV(LEFT(SHA2('old', 256), 3), 16, 10), 'old', 1, FALSE)",
        "enter",
        "1, 9, 'old', 1, 7, 1, 1, TRUE, FALSE, NULL",
    ),
    ("", "open", "8, 'fencelock_0000000000000008', 60000000, 'h', 1, 8"),
    ("", "enter", "8, 1, 'two', 8, 1, 1, 1, FALSE, FALSE, NULL"),
    ("", "enter", "1, 9, 'two', 1, 8, 1, 1, TRUE, FALSE, NULL"),
    (
        "SET @s = (SELECT MIN(seq) FROM fencelock_place WHERE client = 1); SET @t = (SELECT MAX(seq) FROM fencelock_place WHERE client = 1)",
        "look",
        "1, CONCAT('[[\"6f6c64\",', @s, '],[\"74776f\",', @t, ']]')",
    ),
    ("", "batch", r#"8, 1, '[[0,"62",8,2,null,1,1,1,0,null],[0,"6261",8,3,null,1,2,0,0,null]]'"#),
    (
        "",
        "batch",
        r#"1, 9, '[[0,"62",1,21,null,1,1,1,0,null],[0,"6261",1,22,null,1,2,1,1,null],[0,"6262",1,23,null,1,1,1,1,"70"],[0,"6262",1,24,null,1,1,1,1,null]]'"#,
    ),
    (
        "SET @s = (SELECT seq FROM fencelock_place WHERE name = 'b' AND client = 8); SET @t = (SELECT seq FROM fencelock_place WHERE number = 23)",
        "batch",
        r#"8, 1, CONCAT('[[1,"62",8,2,',@s,'],[2,"6261",8,3],[0,"6263",8,4,null,1,1,1,0,null],[1,"74776f",8,1,null]]')"#,
    ),
    (
        "SET @s = (SELECT seq FROM fencelock_place WHERE name = 'bc'); SET @fencelock_taken = FALSE",
        "batch",
        r#"8, 1, CONCAT('[[1,"6263",8,4,',@s,'],[0,"6264",8,5,null,1,1,1,0,null],[0,"6265",8,6,null,1,1,1,0,null],[0,"6266",8,7,null,1,1,1,0,null]]')"#,
    ),
    ("", "fence", "'stock', 7"),
    ("", "listen", "1, 0, 'fencelock_0000000000000001_1', 0"),
    ("UPDATE fencelock_layout SET mark = 'another'", "open", "7, 'fencelock_0000000000000007', 60000000, 'h', 1, 7"),
    ("", "close", "1"),
    ("", "renew", "1, 60000000, ''"),
    ("", "try_bell", "'fencelock_0000000000000001'"),
    ("", "version", ""),
];

/// Without the statements of MariaDB alone, unless this is MariaDB.
fn without_comments(text: &str, is_mariadb: bool) -> String {
    let mut parts = text.split(if is_mariadb { "\0" } else { "/*M! " });
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").unwrap().1)
}

/// Each statement that reads or writes gets a number `n`. With `@fault` 3n it finds or writes nothing, once, after it ran `@skip` times; with 3n + 1
/// and 3n + 2 the procedure waits before it. `@trace` collects the numbers.
fn with_faults(text: &str, count: &mut usize) -> String {
    let (mut out, mut statement) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let begins = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "REPLACE ", "SET STATEMENT "];
        if statement.is_empty() && !begins.iter().any(|word| line.trim_start().starts_with(word)) {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        statement.push_str(line.trim());
        statement.push(' ');
        if line.ends_with(';') {
            out.push_str(&at_fault(*count, statement.trim_end()));
            statement.clear();
            *count += 1;
        }
    }
    out
}

fn at_fault(number: usize, statement: &str) -> String {
    let silent = if !statement.starts_with("SELECT ") {
        "DELETE FROM fencelock_session WHERE FALSE;".to_owned()
    } else if statement.contains(" INTO ") {
        let read = statement.trim_end_matches(';');
        let lock = read.find(" FOR UPDATE").or_else(|| read.find(" LOCK IN SHARE MODE")).unwrap_or(read.len());
        let (read, lock) = read.split_at(lock);
        format!("{} LIMIT 0{lock};", read.strip_suffix(" LIMIT 1").unwrap_or(read))
    } else {
        String::new()
    };
    let (silently, between, within) = (3 * number, 3 * number + 1, 3 * number + 2);
    let trace = format!("SET @trace = CONCAT(@trace, ',', {number});");
    let silently = match silent.as_str() {
        "" => String::new(),
        silent => format!("IF @fault <=> {silently} AND (@skip := @skip - 1) <=> -1 THEN {silent} ELSE "),
    };
    let end = if silently.is_empty() { "" } else { " END IF;" };
    // The end of a condition ends the procedure without an error, and that of a statement is one.
    let between = format!("IF @fault <=> {between} AND GET_LOCK({GATE}, 600) THEN SET @trace = NULL; END IF;");
    let within = format!(
        "IF @fault <=> {within} THEN SELECT MAX(GET_LOCK({GATE}, 600)) INTO @trace FROM fencelock_bucket WHERE b < 2; END IF;"
    );
    format!("{trace} {between} {within} {silently}{statement}{end}\n")
}

/// A server's tables, and procedures that fail where a test asks.
struct Lab {
    url: String,
    conn: Conn,
    admin: Conn,
    statements: usize,
    /// The server's time, in microseconds, before the call that is judged.
    before: u64,
}

async fn call(conn: &mut Conn, (before, procedure, arguments): (&str, &str, &str)) -> mysql_async::Result<Rows> {
    for before in before.split("; ").filter(|before| !before.is_empty()) {
        conn.query_drop(before).await?;
    }
    let (begin, end) = if procedure == "hold" { ("BEGIN", "COMMIT") } else { ("DO 0", "DO 0") };
    conn.query_drop(begin).await?;
    conn.query_drop("SET @fault = @next").await?;
    let rows: Result<Vec<Row>, _> = conn.query(format!("CALL fencelock_{procedure}({arguments})")).await;
    conn.query_drop("SET @fault = NULL, @next = NULL").await?;
    conn.query_drop(end).await?;
    let text = |row: Row| row.unwrap().into_iter().map(mysql_async::from_value).collect();
    rows.map(|rows| rows.into_iter().map(text).collect())
}

impl Lab {
    async fn new() -> Self {
        let url = database();
        migrated(async || Schema::of(&url).unwrap().migrate(&[]).await).await;
        let (mut conn, mut admin) = (Self::connect(&url).await, Self::connect(&url).await);
        let (mut statements, is_mariadb) = (0, is_mariadb(&mut conn).await);
        for text in Schema::of(&url).unwrap().statements(&[]).split("\n//\n") {
            if let Some(at) = text.find("CREATE PROCEDURE") {
                let name = text[at + 17..].split('(').next().unwrap();
                conn.query_drop(format!("DROP PROCEDURE {name}")).await.unwrap();
                let text = with_faults(&without_comments(&text[at..], is_mariadb), &mut statements);
                conn.query_drop(&text).await.unwrap_or_else(|error| panic!("{error}: {text}"));
            }
        }
        let gate: Option<i64> = admin.query_first(format!("SELECT GET_LOCK({GATE}, 0)")).await.unwrap();
        assert_eq!(gate, Some(1), "the gate of this database is closed");
        Self { url, conn, admin, statements, before: 0 }
    }

    async fn connect(url: &str) -> Conn {
        let mut conn = connection(url).await;
        conn.query_drop("SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'").await.unwrap();
        conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
        conn
    }

    /// Does what is before this step, without a fault.
    async fn up_to(&mut self, step: usize) {
        for table in ["place", "queue", "session", "broken", "note", "fenced"] {
            self.admin.query_drop(format!("DELETE FROM fencelock_{table}")).await.unwrap();
        }
        let calm = "UPDATE fencelock_layout SET mark = NULL, quiet_until = 0, quiet_for = 0, longest = 0";
        self.admin.query_drop(calm).await.unwrap();
        for step in &STEPS[..step] {
            call(&mut self.conn, *step).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        }
        self.read_time().await;
    }

    async fn read_time(&mut self) {
        let now = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)";
        self.before = self.admin.query_first(now).await.unwrap().unwrap();
    }

    /// Everything in the tables.
    async fn everything(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for table in ["layout", "bucket", "queue", "place", "session", "broken", "note", "fenced"] {
            let limit = if table == "bucket" { "WHERE last > 0" } else { "" };
            let rows: Vec<Row> = self.admin.query(format!("SELECT * FROM fencelock_{table} {limit}")).await.unwrap();
            all.extend(rows.into_iter().map(|row| format!("{table} {:?}", row.unwrap())));
        }
        all
    }

    async fn count(&mut self, of: &str) -> u64 {
        self.admin.query_first(format!("SELECT COUNT(*) FROM {of}")).await.unwrap().unwrap()
    }

    /// No capacity is exceeded, no waiter stands before a lock with room for it, and a queue exists exactly as long as it has a place.
    async fn check_queues(&mut self, what: &str) {
        let over =
            "(SELECT 1 FROM fencelock_place WHERE granted GROUP BY b, name HAVING SUM(weight) > MIN(capacity)) AS o";
        assert_eq!(self.count(over).await, 0, "{what}: two holders");
        let two = "(SELECT 1 FROM fencelock_place GROUP BY b, name HAVING MIN(capacity) < MAX(capacity)) AS t";
        assert_eq!(self.count(two).await, 0, "{what}: a name of two capacities");
        let early = "fencelock_place AS p JOIN fencelock_place AS q USING (b, name) WHERE q.granted AND NOT p.granted AND p.seq < q.seq";
        assert_eq!(self.count(early).await, 0, "{what}: a grant behind a waiter");
        let lost =
            "fencelock_place AS p LEFT JOIN fencelock_queue AS q USING (b, name) WHERE COALESCE(p.seq < q.head, TRUE)";
        assert_eq!(self.count(lost).await, 0, "{what}: a place without its queue");
        let empty = "fencelock_queue AS q WHERE name <> 'old' AND NOT EXISTS (SELECT 1 FROM fencelock_place AS p WHERE p.b = q.b AND p.name = q.name)";
        assert_eq!(self.count(empty).await, 0, "{what}: a queue without places");
        let room = "fencelock_layout AS l JOIN fencelock_place AS w WHERE l.quiet_until <= UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AND NOT w.granted AND w.weight + (\
            SELECT COALESCE(SUM(p.weight), 0) FROM fencelock_place AS p WHERE p.b = w.b AND p.name = w.name AND p.seq < w.seq) <= w.capacity";
        assert_eq!(self.count(room).await, 0, "{what}: a waiter that the lock has room for");
    }

    /// Checks that the answer of the procedure is true.
    async fn check_answer(&mut self, what: &str, (_, procedure, arguments): Step, rows: &Rows) {
        let Some(row) = rows.first() else { return };
        let given: Vec<&str> = arguments.split(", ").collect();
        if procedure != "batch" {
            return self.check_row(what, procedure, &given, row).await;
        }
        let requests = arguments.split_once("[[").unwrap().1.split_once("]]").unwrap().0.split("],[");
        let answers: Vec<&str> = row[0].as_deref().unwrap_or_else(|| panic!("{what}: no answers")).split(';').collect();
        assert_eq!(answers.len(), requests.clone().count(), "{what}: {row:?}");
        for (request, answer) in requests.zip(answers) {
            let request: Vec<&str> = request.split(',').collect();
            let mut row: Vec<_> = answer.split(',').map(|number| Some(number.to_owned())).collect();
            if request[0] == "0" {
                self.check_row(what, "enter", &[given[0], given[1], "", request[2], request[3]], &row).await;
            } else {
                row.push(None);
                self.check_row(what, "leave", &[given[0], "", request[2], request[3]], &row).await;
            }
        }
    }

    async fn check_row(&mut self, what: &str, procedure: &str, given: &[&str], row: &[Option<String>]) {
        let number = |at: usize| row[at].as_deref().and_then(|text| text.parse::<i64>().ok());
        let place = match procedure {
            "enter" => format!("fencelock_place WHERE client = {} AND number = {}", given[3], given[4]),
            "leave" | "lighten" => format!("fencelock_place WHERE client = {} AND number = {}", given[2], given[3]),
            _ => String::new(),
        };
        let lives = format!("fencelock_session WHERE id = {} AND expires > 1", given[0]);
        match (procedure, number(0)) {
            ("enter", Some(0 | 1)) => {
                let so = format!("{place} AND granted = {} AND seq = {}", number(0) == Some(0), number(1).unwrap());
                assert_eq!((self.count(&so).await, self.count(&place).await), (1, 1), "{what}: {row:?}");
            }
            ("enter", Some(2..=4 | 6)) => assert_eq!(self.count(&place).await, 0, "{what}: {row:?}"),
            ("enter", Some(5)) | ("renew", Some(-1)) | ("resume" | "look", Some(0)) => {
                assert_eq!(self.count(&lives).await, 0, "{what}: {row:?}");
            }
            ("renew", Some(_)) => {
                let late = format!("{lives} AND expires >= {} + 60000000", self.before);
                assert_eq!(self.count(&late).await, 1, "{what}: not renewed");
            }
            ("resume", Some(epoch)) => {
                assert_eq!(self.count(&format!("{lives} AND epoch = {epoch}")).await, 1, "{what}")
            }
            ("leave", Some(0 | 1)) => {
                assert_eq!(self.count(&place).await, 0, "{what}: {row:?}");
                let epoch = number(1)
                    .filter(|epoch| *epoch > 0)
                    .map_or(lives.clone(), |epoch| format!("{lives} AND epoch = {epoch}"));
                assert_eq!(self.count(&epoch).await, self.count(&lives).await, "{what}: {row:?}");
            }
            ("lighten", Some(1)) => {
                assert_eq!(self.count(&format!("{place} AND weight = {}", given[5])).await, 1, "{what}")
            }
            ("look", None) => {
                // The reply has whether the session lives, then for each name the time of the next look and a place.
                let told: Vec<&str> = row[0].iter().flat_map(|told| told.split(',')).skip(1).collect();
                let granted = told.chunks(2).filter(|told| told[1] == "0").count();
                assert!(
                    self.count(&format!("fencelock_place WHERE session = {} AND granted", given[0])).await
                        >= granted as u64,
                    "{what}: {row:?}"
                );
                assert!(!told.chunks(2).any(|told| told == ["-1", "1"]), "{what}: a waiter never looks again");
            }
            ("break", Some(1)) => assert_eq!(self.count("fencelock_broken").await, 1, "{what}"),
            ("break" | "lighten", Some(0)) => panic!("{what}: {row:?}, which is there"),
            ("write_note", Some(held)) => {
                let there = u64::from(given[4] != "NULL");
                assert_eq!((held, self.count("fencelock_note").await), (1, there), "{what}: {row:?}");
            }
            _ => {}
        }
        for told in row.last().into_iter().flatten().filter(|_| ["leave", "lighten"].contains(&procedure)) {
            for granted in told.split_terminator(',') {
                let seq = granted.rsplit('-').next().unwrap();
                assert_eq!(
                    self.count(&format!("fencelock_place WHERE granted AND seq = {seq}")).await,
                    1,
                    "{what}: {told}"
                );
            }
        }
    }

    /// Each place leaves, front first; then nothing is left.
    async fn all_leave(&mut self, what: &str) {
        let places: Vec<(u64, String, u64, u64)> = self
            .admin
            .query("SELECT session, CAST(name AS CHAR), client, number FROM fencelock_place ORDER BY seq")
            .await
            .unwrap();
        for (session, name, client, number) in places {
            let left = format!("CALL fencelock_leave({session}, '{name}', {client}, {number}, NULL)");
            self.conn.query_drop(left).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            self.check_queues(what).await;
        }
        assert_eq!(
            (self.count("fencelock_place").await, self.count("fencelock_queue WHERE name <> 'old'").await),
            (0, 0),
            "{what}"
        );
    }

    /// The numbers of the statements of each step, without a fault, and how often each had run before in this step.
    async fn trace(&mut self) -> BTreeMap<(&'static str, usize, usize), usize> {
        let mut first = BTreeMap::new();
        self.up_to(0).await;
        for (at, step) in STEPS.iter().enumerate() {
            self.conn.query_drop("SET @trace = ''").await.unwrap();
            self.read_time().await;
            let rows = call(&mut self.conn, *step).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
            self.check_queues(&format!("{step:?} {rows:?}")).await;
            self.check_answer(&format!("{step:?}"), *step, &rows).await;
            let trace: String = self.conn.query_first("SELECT @trace").await.unwrap().unwrap();
            self.conn.query_drop("SET @trace = NULL").await.unwrap();
            let mut ran = BTreeMap::new();
            for number in trace.split(',').filter_map(|number| number.parse().ok()) {
                let ran = ran.entry(number).or_insert(0);
                first.entry((step.1, number, *ran)).or_insert(at);
                *ran += 1;
            }
        }
        first
    }
}

#[tokio::test]
async fn a_statement_that_is_ended_without_an_error_deletes_and_grants_nothing_and_tells_nothing_that_is_not_so() {
    let mut lab = Lab::new().await;
    let first = lab.trace().await;
    let met: BTreeSet<usize> = first.keys().map(|(_, number, _)| *number).collect();
    let missing: Vec<usize> = (0..lab.statements).filter(|number| !met.contains(number)).collect();
    assert!(missing.is_empty(), "no step comes to the statements {missing:?}");
    for ((procedure, number, ran), at) in first {
        let (step, what) = (STEPS[at], format!("{procedure}, statement {number}, which ran {ran} times, step {at}"));
        lab.up_to(at).await;
        for before in step.0.split("; ").filter(|before| !before.is_empty()) {
            lab.conn.query_drop(before).await.unwrap();
        }
        let before = lab.everything().await;
        lab.conn.query_drop(format!("SET @next = {}, @skip = {ran}", 3 * number)).await.unwrap();
        match call(&mut lab.conn, ("", step.1, step.2)).await {
            Ok(rows) => {
                lab.check_answer(&what, step, &rows).await;
                lab.check_queues(&what).await;
            }
            Err(error) if !["look", "clear_up", "fence"].contains(&procedure) => {
                assert_eq!(lab.everything().await, before, "{what}: {error}");
            }
            Err(_) => lab.check_queues(&what).await,
        }
        lab.all_leave(&what).await;
    }
}

#[tokio::test]
async fn a_request_that_is_ended_before_any_of_its_statements_changes_nothing() {
    let mut lab = Lab::new().await;
    let mut numbers = BTreeSet::new();
    let first = lab.trace().await.into_iter().filter(|((_, number, _), _)| numbers.insert(*number));
    let faults: Vec<_> = first.flat_map(|fault| [(fault, 1), (fault, 2)]).collect();
    for (((procedure, number, _), at), how) in faults {
        let (step, what) = (STEPS[at], format!("{procedure}, statement {number}, step {at}, way {how}"));
        lab.up_to(at).await;
        for before in step.0.split("; ").filter(|before| !before.is_empty()) {
            lab.conn.query_drop(before).await.unwrap();
        }
        let before = lab.everything().await;
        lab.conn.query_drop(format!("SET @next = {}", 3 * number + how)).await.unwrap();
        let id = lab.conn.id();
        let mut conn = std::mem::replace(&mut lab.conn, Lab::connect(&lab.url).await);
        let ended = tokio::spawn(async move { call(&mut conn, ("", step.1, step.2)).await });
        let sleeps = format!("information_schema.processlist WHERE id = {id} AND state = 'User lock'");
        // A failed ring does not stop the other rings, so a loop may wait a second time.
        until("it ended", async || {
            if lab.count(&sleeps).await == 1 {
                let killed = lab.admin.query_drop(format!("KILL QUERY {id}")).await;
                // The connection may have ended since it was counted.
                let has_ended = |error: &mysql_async::Error| error.to_string().contains("Unknown thread id");
                assert!(killed.as_ref().err().is_none_or(has_ended), "{what}: {killed:?}");
            }
            ended.is_finished()
        })
        .await;
        let answer = ended.await.unwrap();
        // The client ends the connection, and the server its transaction.
        let is_gone = format!("information_schema.processlist WHERE id = {id}");
        until("the connection is gone", async || lab.count(&is_gone).await == 0).await;
        let changed = lab.everything().await != before;
        // The end of a ring after the commit is ignored.
        if let Ok(rows) = answer {
            assert!(changed || rows.is_empty(), "{what}: {rows:?}");
            lab.check_answer(&what, step, &rows).await;
        }
        // Some statements come after the commit, and look and clear_up commit name by name.
        if !changed {
            let again: Vec<&str> = step.0.split("; ").filter(|before| before.starts_with("SET ")).collect();
            let rows = call(&mut lab.conn, (&again.join("; "), step.1, step.2)).await;
            let rows = rows.unwrap_or_else(|error| panic!("{what}: {error}"));
            lab.check_answer(&what, step, &rows).await;
        }
        lab.check_queues(&what).await;
        lab.all_leave(&what).await;
    }
}
