//! A schema whose functions a test calls by itself, as clients do, a request at a time or a batch.

use fencelock::postgres::Schema;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::lab::{AS_CLIENTS, connection, migrated, with};

const CALL: &str =
    "CALL $schema.batch($1::bigint, $2::bigint, $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bool[], $11::bool[], $12::text[])";

#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) kind: i64,
    pub(crate) name: String,
    pub(crate) number: i64,
    pub(crate) seq: Option<i64>,
    pub(crate) weight: i64,
    pub(crate) capacity: i64,
    pub(crate) wait: bool,
    pub(crate) again: bool,
}

/// A schema with three sessions, of which the last one is expired.
pub(crate) struct Side {
    pub(crate) user: Client,
    pub(crate) schema: &'static str,
}

impl Side {
    pub(crate) async fn new(url: &str, schema: &'static str) -> Self {
        let user = connection(url).await;
        migrated(async || Schema::of(&with(url, &format!("schema={schema}"))).unwrap().migrate(&[]).await).await;
        user.batch_execute(AS_CLIENTS).await.unwrap();
        Self { user, schema }
    }

    pub(crate) async fn begin(&self) {
        let schema = self.schema;
        self.run("TRUNCATE $schema.place, $schema.session").await;
        for session in 1..=3 {
            let open = format!(
                "SELECT {schema}.open({session}, 'fencelock_000000000000000{session}', 3600000, 'h', 1, {session})"
            );
            self.run(&open).await;
        }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.user.batch_execute(&sql.replace("$schema", self.schema)).await.unwrap();
    }

    /// Whether the last request found places, as far as the server knows: few requests of a batch then run one by one, and else together.
    pub(crate) async fn set_taken(&self, is_taken: bool) {
        self.run(if is_taken { "SET fencelock.taken = on" } else { "SET fencelock.taken = off" }).await;
    }

    pub(crate) async fn batch(
        &self,
        session: i64,
        epoch: i64,
        requests: &[Request],
    ) -> Result<Vec<i64>, tokio_postgres::Error> {
        self.batch_and_grants(session, epoch, requests).await.map(|(answers, _)| answers)
    }

    /// The answers, and the requests of this session that were granted.
    pub(crate) async fn batch_and_grants(
        &self,
        session: i64,
        epoch: i64,
        requests: &[Request],
    ) -> Result<(Vec<i64>, Vec<i64>), tokio_postgres::Error> {
        let numbers = |number: fn(&Request) -> i64| requests.iter().map(number).collect::<Vec<_>>();
        let flags = |flag: fn(&Request) -> bool| requests.iter().map(flag).collect::<Vec<_>>();
        let names: Vec<_> = requests.iter().map(|request| request.name.as_str()).collect();
        let seqs: Vec<_> = requests.iter().map(|request| request.seq).collect();
        let (kinds, clients, purposes) =
            (numbers(|r| r.kind), vec![session; requests.len()], vec![None::<&str>; requests.len()]);
        let (ids, weights, capacities) = (numbers(|r| r.number), numbers(|r| r.weight), numbers(|r| r.capacity));
        let (waits, agains) = (flags(|r| r.wait), flags(|r| r.again));
        let sql = CALL.replace("$schema", self.schema);
        let [kinds, ids, weights, capacities, clients] =
            [&kinds, &ids, &weights, &capacities, &clients].map(|numbers| numbers as &(dyn ToSql + Sync));
        let whose: [&(dyn ToSql + Sync); 2] = [&session, &epoch];
        let what: [&(dyn ToSql + Sync); 10] =
            [kinds, &names, clients, ids, &seqs, weights, capacities, &waits, &agains, &purposes];
        let parameters = [whose.as_slice(), what.as_slice()].concat();
        self.user.query_one(&sql, &parameters).await.map(|row| (row.get(0), granted(&row)))
    }

    /// Sends one request outside of a batch. Returns its answer as three numbers, and the requests of this session that were granted.
    pub(crate) async fn alone(&self, session: i64, epoch: i64, request: &Request) -> (Vec<i64>, Vec<i64>) {
        let Request { kind, name, number, seq, weight, capacity, wait, again } = request;
        let seq = seq.map_or_else(|| "NULL".to_owned(), |seq| seq.to_string());
        let call = match kind {
            0 => format!(
                "SELECT s.enter({session}, {epoch}, '{name}', {session}, {number}, {weight}, {capacity}, {wait}, {again}, NULL)"
            ),
            1 => format!("CALL s.leave({session}, '{name}', {session}, {number}, {seq}, false)"),
            _ => return self.batch_and_grants(session, epoch, std::slice::from_ref(request)).await.unwrap(),
        };
        let row = self.user.query_one(&call.replace("s.", &format!("{}.", self.schema)), &[]).await.unwrap();
        let mut answer = if *kind == 1 { vec![row.get::<_, i32>(0).into()] } else { row.get::<_, Vec<i64>>(0) };
        answer.resize(3, 0);
        (answer, if *kind == 0 { Vec::new() } else { granted(&row) })
    }

    /// The queues in their order, without the numbers, which differ.
    pub(crate) async fn queues(&self) -> String {
        let sql = "SELECT coalesce(string_agg(concat_ws(' ', name, session, number, granted, weight, capacity), chr(10) ORDER BY name, seq), '')
            FROM $schema.place";
        self.user.query_one(&sql.replace("$schema", self.schema), &[]).await.unwrap().get(0)
    }

    /// The requests; two of three that leave also name the number of their place.
    pub(crate) async fn with_seqs(&self, session: i64, requests: &[Request]) -> Vec<Request> {
        let sql = format!("SELECT seq FROM {}.place WHERE session = $1 AND number = $2", self.schema);
        let mut requests = requests.to_vec();
        for request in requests.iter_mut().filter(|request| request.kind == 1 && request.number % 3 > 0) {
            let row = self.user.query_opt(&sql, &[&session, &request.number]).await.unwrap();
            request.seq = row.map(|row| row.get(0));
        }
        requests
    }

    pub(crate) async fn epoch(&self, session: i64) -> i64 {
        let sql = format!("SELECT coalesce(max(epoch), 1) FROM {}.session WHERE id = $1", self.schema);
        self.user.query_one(&sql, &[&session]).await.unwrap().get(0)
    }
}

/// The requests of the session's own places in an answer, which lists a place as number, client and request.
fn granted(row: &Row) -> Vec<i64> {
    let told: Option<Vec<i64>> = row.get(1);
    told.unwrap_or_default().chunks(3).map(|place| place[2]).collect()
}

/// In a batch, grants whose numbers are known leave first, and requests that are taken back are last.
pub(crate) fn turn(request: &Request) -> u8 {
    match (request.kind, request.seq) {
        (0, _) => 1,
        (1, Some(_)) => 0,
        _ => 2,
    }
}
