//! Every order of batches of three requests by two sessions, with transactions that hold a grant, crashes of a client, and lost answers.
//!
//! Every step is taken once from each state that a number of steps reaches: the requests of a batch in turn in a first
//! schema, and together in a second schema. Both schemas then have the same answers, grants and queues.

use std::collections::HashSet;
use std::mem;

use fencelock_testbed::postgres::Settings;
use futures_util::future::join;
use tokio_postgres::Client;

use super::lab::{connection, server};
use super::side::{Request, Side, turn};

/// The places of a session: the name and its capacity, the weight, and whether the request waits.
const PLACES: [(&str, i64, i64, bool); 3] = [("pages", 2, 2, true), ("pages", 2, 1, true), ("job", 1, 1, false)];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The kinds of the requests for the session's places. A late batch was sent before the session resumed. For `is_taken`, see
    /// [`Side::set_taken`].
    Batch {
        session: i64,
        kinds: [i64; 3],
        is_late: bool,
        is_taken: bool,
    },
    /// A transaction holds this grant, until `End`.
    Hold {
        session: i64,
        number: i64,
    },
    End,
    /// The session ends without a release.
    Crash(i64),
    /// The session lost answers, and resumes on another connection, and sends its requests again.
    Cut(i64),
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Queued {
    name: String,
    session: i64,
    number: i64,
    is_granted: bool,
    seq: i64,
}

/// The tables of both schemas, and the state outside of them.
#[derive(Debug, Clone, Default)]
struct State {
    held: Option<(i64, i64)>,
    cut: [bool; 2],
    saved: [String; 2],
    path: Vec<Step>,
}

struct Schema {
    side: Side,
    holder: Client,
}

impl Schema {
    async fn new(url: &str, schema: &'static str) -> Self {
        Self { side: Side::new(url, schema).await, holder: connection(url).await }
    }

    async fn text(&self, sql: &str) -> String {
        self.side.user.query_one(&sql.replace("$schema", self.side.schema), &[]).await.unwrap().get(0)
    }

    async fn save(&self) -> String {
        self.text(
            "SELECT jsonb_build_object('place', coalesce((SELECT jsonb_agg(p) FROM $schema.place AS p), '[]'),
            'session', coalesce((SELECT jsonb_agg(s) FROM $schema.session AS s), '[]'))::text",
        )
        .await
    }

    async fn restore(&self, saved: &str, held: Option<(i64, i64)>) {
        let schema = self.side.schema;
        self.holder.batch_execute("ROLLBACK").await.unwrap();
        let restored = format!(
            "DELETE FROM $schema.place; DELETE FROM $schema.session; UPDATE $schema.bucket SET low = 0 WHERE low > 0;
            INSERT INTO $schema.place SELECT p.* FROM jsonb_populate_recordset(NULL::$schema.place, '{saved}'::jsonb -> 'place') AS p;
            INSERT INTO $schema.session SELECT s.* FROM jsonb_populate_recordset(NULL::$schema.session, '{saved}'::jsonb -> 'session') AS s"
        );
        self.side.run(&restored).await;
        if let Some((session, number)) = held {
            let hold = format!(
                "BEGIN; SELECT FROM {schema}.place WHERE session = {session} AND number = {number} AND granted FOR KEY SHARE"
            );
            self.holder.batch_execute(&hold).await.unwrap();
        }
    }

    async fn queued(&self) -> Vec<Queued> {
        let asked = "SELECT name, session, number, granted, seq FROM $schema.place ORDER BY name, seq";
        let rows = self.side.user.query(&asked.replace("$schema", self.side.schema), &[]).await.unwrap();
        let place = |row: &tokio_postgres::Row| Queued {
            name: row.get(0),
            session: row.get(1),
            number: row.get(2),
            is_granted: row.get(3),
            seq: row.get(4),
        };
        rows.iter().map(place).collect()
    }

    /// The sessions, without times and epochs.
    async fn sessions(&self) -> String {
        self.text(
            "SELECT coalesce(string_agg(id || ' ' || (expires > clock_timestamp()), ',' ORDER BY id), '') FROM $schema.session",
        )
        .await
    }

    /// The requests of a batch, as the session would send them.
    async fn requests(&self, state: &State, session: i64, kinds: [i64; 3]) -> Vec<Request> {
        let queued = self.queued().await;
        let request = |at: usize| {
            let ((name, capacity, weight, wait), number) = (PLACES[at], at as i64 + 1);
            let known = queued.iter().find(|place| (place.session, place.number) == (session, number));
            let again = known.is_some() || state.cut[session as usize - 1];
            // A session that never received the number of a place leaves the place without it.
            let seq = known.filter(|_| kinds[at] == 1 && number < 3).map(|place| place.seq);
            Request { kind: kinds[at], name: name.to_owned(), number, seq, weight, capacity, wait, again }
        };
        // The second session has the opposite order.
        let mut order = [0, 1, 2];
        if session == 2 {
            order.reverse();
        }
        order.into_iter().map(request).collect()
    }

    async fn outside(&self, step: Step) {
        let schema = self.side.schema;
        match step {
            Step::Batch { .. } => {}
            Step::Hold { session, number } => {
                let hold = format!(
                    "BEGIN; SELECT {schema}.hold(name, seq) FROM {schema}.place WHERE session = {session} AND number = {number}"
                );
                self.holder.batch_execute(&hold).await.unwrap();
            }
            Step::End => self.holder.batch_execute("COMMIT").await.unwrap(),
            Step::Crash(session) => {
                let crash = "UPDATE $schema.session SET expires = clock_timestamp() WHERE id = ";
                self.side.run(&format!("{crash}{session}")).await;
            }
            Step::Cut(session) => self.side.run(&format!("SELECT $schema.resume({session}, 3600000)")).await,
        }
    }
}

/// The granted places are the first of each queue, and their weights fit its capacity.
fn check(queued: &[Queued], path: &[Step]) {
    for (name, capacity, ..) in PLACES {
        let places: Vec<_> = queued.iter().filter(|place| place.name == name).collect();
        let granted = places.iter().take_while(|place| place.is_granted).count();
        assert!(places[granted..].iter().all(|place| !place.is_granted), "{path:?}: {queued:?}");
        let used: i64 = places[..granted].iter().map(|place| PLACES[place.number as usize - 1].2).sum();
        assert!(used <= capacity, "{path:?}: {queued:?}");
    }
}

fn without_numbers(queued: &[Queued]) -> Vec<Queued> {
    queued.iter().map(|place| Queued { seq: 0, ..place.clone() }).collect()
}

struct Model {
    one: Schema,
    all: Schema,
    is_late: bool,
}

impl Model {
    fn steps(&self, state: &State, queued: &[Queued], sessions: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        for session in 1..=2 {
            for code in 0..27 {
                let kinds = [code % 3, code / 3 % 3, code / 9];
                // With late batches there are many steps, and each batch runs one way.
                let ways = if self.is_late { vec![code % 2 == 1] } else { vec![false, true] };
                let batch = |is_late| {
                    ways.iter()
                        .map(move |&is_taken| Step::Batch { session, kinds, is_late, is_taken })
                        .collect::<Vec<_>>()
                };
                steps.extend(batch(false));
                if self.is_late && state.cut[session as usize - 1] && kinds.contains(&0) {
                    steps.extend(batch(true));
                }
            }
            if sessions.contains(&format!("{session} true")) {
                steps.extend([Step::Crash(session), Step::Cut(session)]);
                let mine = queued.iter().filter(|place| place.session == session && place.is_granted);
                let hold = mine.map(|place| Step::Hold { session, number: place.number });
                steps.extend(hold.filter(|_| state.held.is_none()));
            }
        }
        steps.extend(state.held.map(|_| Step::End));
        steps
    }

    /// Takes a step in both schemas, and returns the new state.
    async fn step(&self, state: &State, step: Step) -> State {
        let (one, all) = (&self.one, &self.all);
        let mut next = state.clone();
        next.path.push(step);
        join(one.restore(&state.saved[0], state.held), all.restore(&state.saved[1], state.held)).await;
        join(one.outside(step), all.outside(step)).await;
        match step {
            Step::Hold { session, number } => next.held = Some((session, number)),
            Step::End => next.held = None,
            Step::Cut(session) => next.cut[session as usize - 1] = true,
            Step::Crash(_) => {}
            Step::Batch { session, kinds, is_late, is_taken } => {
                let epoch = one.side.epoch(session).await - i64::from(is_late);
                let (single, batch) = (one.requests(state, session, kinds), all.requests(state, session, kinds));
                let (single, batch) = join(single, batch).await;
                all.side.set_taken(is_taken).await;
                let (mut expected, mut grants) = (vec![Vec::new(); 3], Vec::new());
                for at in 0..3 {
                    for (request, expected) in
                        single.iter().zip(&mut expected).filter(|(request, _)| turn(request) == at)
                    {
                        let (answer, granted) = one.side.alone(session, epoch, request).await;
                        *expected = answer;
                        grants.extend(granted);
                    }
                }
                let (answers, granted) = all.side.batch_and_grants(session, epoch, &batch).await.unwrap();
                assert_eq!((answers.len(), granted), (9, grants), "{:?}", next.path);
                for ((request, expected), answer) in single.iter().zip(&expected).zip(answers.chunks(3)) {
                    let compared = if request.kind == 0 && expected[0] < 2 { 1 } else { 3 };
                    assert_eq!(answer[..compared], expected[..compared], "{request:?} of {:?}", next.path);
                    assert!(!is_late || request.kind > 0 || expected[0] > 3, "{request:?} of {:?}", next.path);
                }
            }
        }
        next
    }
}

/// Checks every sequence of `steps` steps; late batches are steps only if `is_late`. Returns the number of states.
pub(crate) async fn check_all(steps: usize, is_late: bool) -> usize {
    let own = server(Settings::default().with("fsync = off"));
    let url = own.url();
    let model = Model { one: Schema::new(&url, "one").await, all: Schema::new(&url, "everything").await, is_late };
    join(model.one.side.begin(), model.all.side.begin()).await;
    let saved = [model.one.save().await, model.all.save().await];
    let (mut known, mut states) = (HashSet::new(), vec![State { saved, ..State::default() }]);
    for _ in 0..steps {
        for state in mem::take(&mut states) {
            model.one.restore(&state.saved[0], None).await;
            let (queued, sessions) = (model.one.queued().await, model.one.sessions().await);
            for step in model.steps(&state, &queued, &sessions) {
                let mut next = model.step(&state, step).await;
                let (one, all) = join(model.one.queued(), model.all.queued()).await;
                check(&all, &next.path);
                let key = (without_numbers(&all), model.all.sessions().await, next.held, next.cut);
                assert_eq!((&without_numbers(&one), &model.one.sessions().await), (&key.0, &key.1), "{:?}", next.path);
                if known.insert(key) {
                    next.saved = [model.one.save().await, model.all.save().await];
                    states.push(next);
                }
            }
        }
    }
    known.len()
}
