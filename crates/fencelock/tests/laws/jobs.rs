//! The laws of jobs: each slot has one run, by the store's clock and no host's.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use fencelock::jobs::{Begun, Job, Run, RunState, Slot};
use fencelock::memory::Operation;
use fencelock::{Client, Error, ErrorKind};
use futures_util::future::join_all;

use crate::support::{Process, World, inside, secs, settle};

const HOUR: Duration = secs(3600);
const MINUTE: Duration = secs(60);

/// A world in which it is midnight of the tenth of September 2001, in UTC.
fn at_midnight() -> World {
    let world = World::new();
    world.clock.jump_wall(secs(80_000));
    world
}

fn slot(text: &str) -> Slot {
    text.parse().unwrap()
}

fn job(process: &Process, schedule: &str) -> Job {
    process.client.job("report", slot(schedule)).unwrap()
}

async fn begun(job: &Job) -> Box<Run> {
    match job.try_begin().await.unwrap() {
        Begun::Run(run) => run,
        Begun::Already(last) => panic!("it ran already: {last:?}"),
    }
}

/// Asks as a host whose job takes no time. Returns whether the job ran.
async fn asks(job: &Job) -> bool {
    match job.try_begin().await.unwrap() {
        Begun::Run(run) => run.succeed().await.is_ok(),
        Begun::Already(_) => false,
    }
}

async fn status(client: &Client) -> fencelock::jobs::JobStatus {
    client.job_status("report").await.unwrap().unwrap()
}

#[test]
fn of_many_concurrent_callers_one_runs_and_the_others_wait_for_its_end() {
    inside(at_midnight(), async |world, []| {
        let mut processes = Vec::new();
        for _ in 0..20 {
            processes.push(world.process().await);
        }
        let (running, ran) = (Cell::new(0), Cell::new(0));
        for times in 1..4 {
            let asked = processes.iter().map(|process| async {
                let body = async |_| {
                    running.set(running.get() + 1);
                    assert_eq!(running.get(), 1);
                    settle().await;
                    running.set(running.get() - 1);
                    ran.set(ran.get() + 1);
                    Ok::<_, Error>(())
                };
                job(process, "daily").run(body).await.unwrap()
            });
            let asked = join_all(asked).await;
            assert_eq!((asked.iter().flatten().count(), ran.get()), (1, times));
            world.clock.jump_wall(24 * HOUR);
        }
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn hosts_whose_clocks_are_an_hour_off_run_a_job_once_a_day() {
    inside(at_midnight(), async |world, []| {
        for schedule in ["daily", "1d", "0 3 * * *"] {
            // Each host is started by its own clock at three, which is up to an hour early or late by the store's.
            let hosts = [-3600, -1800, -1, 0, 2, 600, 3600];
            let mut asked = Vec::new();
            for day in 0..5_u64 {
                asked.extend(hosts.map(|late: i64| (day, (day * 86_400).cast_signed() + 3 * 3600 + late)));
            }
            asked.sort_unstable_by_key(|(_, at)| *at);
            let (process, runs) = (world.process().await, RefCell::new(Vec::new()));
            let job = process.client.job(format!("report/{}", schedule.len()), slot(schedule)).unwrap();
            let mut now = 0;
            for (day, at) in asked {
                world.clock.jump_wall(secs((at - now).unsigned_abs()));
                now = at;
                if asks(&job).await {
                    runs.borrow_mut().push((day, at));
                }
            }
            // By a schedule that begins at three, the first run is that of the day before.
            let days: Vec<_> =
                runs.borrow().iter().map(|(day, _)| *day).skip(usize::from(schedule.contains(' '))).collect();
            assert_eq!(days, [0, 1, 2, 3, 4], "{schedule}: {runs:?}");
            world.clock.jump_wall(secs((5 * 86_400 - now).unsigned_abs()));
        }
    });
}

#[test]
fn a_host_that_is_a_little_early_one_day_misses_no_slot() {
    inside(at_midnight(), async |world, [process]| {
        let cron = process.client.job("report", slot("1d").tolerant()).unwrap();
        let mut ran = Vec::new();
        world.clock.jump_wall(24 * HOUR);
        for early in [0, 1, 0, 1] {
            world.clock.jump_wall(24 * HOUR - secs(early));
            ran.push(asks(&cron).await);
            world.clock.jump_wall(secs(early));
            ran.push(asks(&cron).await);
        }
        assert_eq!(ran, [true, false].repeat(4));
        assert_eq!(status(&process.client).await.missed, Some(0));
    });
}

#[test]
fn a_run_that_dies_is_followed_by_another_one_for_its_slot() {
    inside(at_midnight(), async |world, [one, other]| {
        let first = begun(&job(&one, "daily")).await;
        assert_eq!(status(&other.client).await.last.state, RunState::Running);
        let waits = job(&other, "daily");
        assert_eq!(waits.try_begin().await.unwrap_err().kind(), ErrorKind::Busy);
        one.store.crash();
        let dies = async {
            world.advance(secs(30)).await;
        };
        let (second, ()) = tokio::join!(waits.begin(), dies);
        let Begun::Run(second) = second.unwrap() else { panic!("the first one died") };
        let before = second.previous().unwrap();
        assert_eq!((before.state, before.attempt, &before.owner), (RunState::Died, 1, one.client.owner()));
        assert_eq!((second.this().attempt, &*second.this().slot), (2, "2001-09-10"));
        assert!(second.guard().token() > first.guard().token() && first.guard().check().is_err());
        assert_eq!(first.succeed().await.unwrap_err().kind(), ErrorKind::Lost, "it says nothing any more");
        second.succeed_with("7 rows").await.unwrap();
        let last = status(&other.client).await.last;
        assert_eq!((last.state, last.detail.as_deref(), last.attempt), (RunState::Succeeded, Some("7 rows"), 2));
        assert!(!asks(&waits).await);
        // A dropped run has died as well.
        world.clock.jump_wall(24 * HOUR);
        drop(begun(&waits).await);
        settle().await;
        assert_eq!(status(&other.client).await.last.state, RunState::Died);
        assert!(asks(&waits).await && !asks(&waits).await);
    });
}

#[test]
fn a_run_that_fails_is_the_last_of_its_slot_unless_more_are_allowed() {
    inside(at_midnight(), async |world, [process]| {
        for retries in 0..3 {
            let job = job(&process, "hourly").retries(retries);
            for attempt in 1..=retries + 1 {
                let run = begun(&job).await;
                assert_eq!(run.this().attempt, attempt);
                run.fail("exit code 3\n").await.unwrap();
            }
            let Begun::Already(last) = job.try_begin().await.unwrap() else { panic!("no more are allowed") };
            assert_eq!((last.state, last.detail.as_deref()), (RunState::Failed, Some("exit code 3 ")));
            world.clock.jump_wall(HOUR);
        }
        let hourly = job(&process, "hourly");
        let failing = hourly.run(async |_| Err::<(), _>(Error::new(ErrorKind::Config, "body", "no")));
        assert_eq!(failing.await.unwrap_err().operation(), "body");
        assert_eq!(status(&process.client).await.last.state, RunState::Failed);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn host_start_duration_and_missed_slots_can_be_seen() {
    inside(at_midnight(), async |world, [one, other]| {
        assert_eq!(other.client.job_status("report").await.unwrap(), None);
        let run = begun(&job(&one, "hourly")).await;
        world.clock.jump_wall(5 * MINUTE);
        run.succeed().await.unwrap();
        world.clock.jump_wall(3 * HOUR);
        let seen = status(&other.client).await;
        assert_eq!((&*seen.last.slot, &seen.last.owner), ("2001-09-10T00:00:00Z", one.client.owner()));
        assert_eq!(
            (seen.last.took, seen.now.duration_since(seen.last.began).unwrap()),
            (Some(5 * MINUTE), 3 * HOUR + 5 * MINUTE)
        );
        assert_eq!((seen.missed, seen.last.schedule.as_deref()), (Some(3), Some("1h")), "at one, two and three");
        let late = begun(&job(&other, "hourly")).await;
        assert_eq!((late.this().missed, status(&one.client).await.missed), (2, Some(0)));
    });
}

#[test]
fn a_run_that_is_longer_than_its_slot_never_overlaps_another_one() {
    inside(at_midnight(), async |world, [one, other]| {
        let long = begun(&job(&one, "hourly")).await;
        let waits = job(&other, "hourly");
        let goes_on = async {
            settle().await;
            world.clock.jump_wall(2 * HOUR + MINUTE);
            settle().await;
            assert_eq!(job(&one, "hourly").try_begin().await.unwrap_err().kind(), ErrorKind::Busy);
            long.succeed().await.unwrap();
        };
        let (next, ()) = tokio::join!(waits.begin(), goes_on);
        let Begun::Already(last) = next.unwrap() else {
            panic!("it asked within the first hour, which has had its run")
        };
        assert_eq!(&*last.slot, "2001-09-10T00:00:00Z");
        let next = begun(&waits).await;
        assert_eq!((&*next.this().slot, next.this().missed), ("2001-09-10T02:00:00Z", 1));
    });
}

#[test]
fn a_job_that_two_hosts_start_just_before_midnight_runs_once_each_evening() {
    inside(at_midnight(), async |world, [one, other]| {
        let of = |process: &Process| process.client.job("report", slot("daily").tolerant()).unwrap();
        world.clock.jump_wall(24 * HOUR - secs(40));
        for day in ["2001-09-10", "2001-09-11", "2001-09-12"] {
            let run = begun(&of(&one)).await;
            assert_eq!((&*run.this().slot, run.this().missed), (day, 0));
            let job = of(&other);
            let ends = async {
                settle().await;
                world.clock.jump_wall(secs(45));
                run.succeed().await.unwrap();
            };
            let (waited, ()) = tokio::join!(job.begin(), ends);
            assert!(matches!(waited.unwrap(), Begun::Already(last) if last.slot == day), "{day}");
            world.clock.jump_wall(24 * HOUR - secs(45));
        }
    });
}

#[test]
fn a_waiter_takes_over_the_slot_that_it_asked_in_and_leaves_the_next_one_its_run() {
    inside(at_midnight(), async |world, [one, other]| {
        let first = begun(&job(&one, "hourly")).await;
        let waits = job(&other, "hourly");
        let dies = async {
            settle().await;
            world.clock.jump_wall(HOUR + MINUTE);
            drop(first);
        };
        let (second, ()) = tokio::join!(waits.begin(), dies);
        let Begun::Run(second) = second.unwrap() else { panic!("the first one died") };
        assert_eq!((&*second.this().slot, second.this().attempt), ("2001-09-10T00:00:00Z", 2));
        second.succeed().await.unwrap();
        let next = begun(&waits).await;
        assert_eq!((&*next.this().slot, next.this().missed), ("2001-09-10T01:00:00Z", 0));
        next.succeed().await.unwrap();
        assert!(!asks(&job(&one, "hourly")).await);
    });
}

#[test]
fn one_waiter_of_a_host_waits_for_a_slot_and_a_slow_job_fills_no_queue() {
    inside(at_midnight(), async |world, []| {
        let mut processes = Vec::new();
        for _ in 0..5 {
            processes.push(world.process().await);
        }
        let one = |process: &Process| job(process, "hourly").one_waiter_per_host();
        let runs = begun(&one(&processes[0])).await;
        let (waits, later) = (one(&processes[1]), one(&processes[2]));
        let refused = async |process: &Process| {
            let error = one(process).begin().await.unwrap_err();
            assert_eq!((error.kind(), error.operation()), (ErrorKind::QueueFull, "job"));
        };
        let asks = async {
            settle().await;
            refused(&processes[3]).await;
            world.clock.jump_wall(HOUR);
            let next = async {
                settle().await;
                refused(&processes[3]).await;
                world.clock.jump_wall(HOUR);
                refused(&processes[4]).await;
                assert_eq!(processes[0].client.queue("report").await.unwrap().queued, 3);
                runs.succeed().await.unwrap();
            };
            tokio::join!(later.begin(), next).0.unwrap()
        };
        let (waited, later) = tokio::join!(waits.begin(), asks);
        assert!(matches!(waited.unwrap(), Begun::Already(_)));
        let Begun::Run(later) = later else { panic!("its slot had no run") };
        assert_eq!(later.this().slot, "2001-09-10T01:00:00Z");
        // Each named slot has a waiter of its own.
        let named = |text| processes[3].client.job("other", Slot::named(text).unwrap()).unwrap().one_waiter_per_host();
        let holds = begun(&named("a")).await;
        let (a, b) = (named("a"), named("b"));
        let both = async {
            settle().await;
            assert_eq!(processes[3].client.queue("other").await.unwrap().queued, 3);
            holds.succeed().await.unwrap();
        };
        let (a, b, ()) = tokio::join!(a.begin(), b.begin(), both);
        assert!(matches!((a.unwrap(), b.unwrap()), (Begun::Already(_), Begun::Run(_))));
    });
}

#[test]
fn the_jobs_of_a_store_are_listed_with_their_last_runs_and_last_success() {
    inside(at_midnight(), async |world, [one, other]| {
        assert_eq!(other.client.job_names().await.unwrap(), []);
        for name in ["report", "backup", "nightly/mail"] {
            let run = one.client.job(name, slot("hourly")).unwrap().try_begin().await.unwrap();
            let Begun::Run(run) = run else { panic!("{name} never ran") };
            run.succeed().await.unwrap();
        }
        let names: Vec<_> = other.client.job_names().await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["backup", "nightly/mail", "report"]);
        for hour in 1..7 {
            world.clock.jump_wall(HOUR);
            let run = begun(&job(&one, "hourly")).await;
            world.clock.jump_wall(secs(hour));
            match hour {
                1..5 => run.succeed().await.unwrap(),
                5 => drop(run),
                _ => run.fail("exit code 3").await.unwrap(),
            }
            settle().await;
        }
        let seen = status(&other.client).await;
        let runs: Vec<_> = seen.earlier.iter().map(|run| (&run.slot[11..13], run.state, run.took_ms)).collect();
        let succeeded = |slot, secs: u64| (slot, RunState::Succeeded, Some(secs * 1000));
        assert_eq!(
            runs,
            [("05", RunState::Died, None), succeeded("04", 4), succeeded("03", 3), succeeded("02", 2)],
            "{seen:?}"
        );
        assert_eq!(seen.earlier[0].host, one.client.owner().host);
        assert_eq!((seen.last.state, seen.last.detail.as_deref()), (RunState::Failed, Some("exit code 3")));
        let ago = seen.now.duration_since(seen.succeeded.unwrap()).unwrap();
        assert_eq!(ago, 2 * HOUR + secs(5 + 6));
    });
}

#[test]
fn a_run_that_ends_while_it_is_looked_at_has_not_died() {
    inside(at_midnight(), async |_, [one, other]| {
        let run = begun(&job(&one, "hourly")).await;
        let held_up = other.store.delay_next(Operation::Contention);
        let ends = async {
            held_up.caught().await;
            run.succeed().await.unwrap();
            assert!(held_up.release());
        };
        let (seen, ()) = tokio::join!(status(&other.client), ends);
        assert_eq!(seen.last.state, RunState::Succeeded);
    });
}

#[test]
fn a_slot_that_began_without_a_run_is_missed_unless_a_run_is_under_way() {
    inside(at_midnight(), async |world, [process]| {
        let nightly = job(&process, "30 2 * * *");
        world.clock.jump_wall(2 * HOUR + 30 * MINUTE);
        assert!(asks(&nightly).await);
        assert_eq!(status(&process.client).await.missed, Some(0));
        world.clock.jump_wall(30 * HOUR);
        assert_eq!(status(&process.client).await.missed, Some(1), "that of today");
        let run = begun(&nightly).await;
        world.clock.jump_wall(24 * HOUR);
        assert_eq!(status(&process.client).await.missed, Some(0));
        run.succeed().await.unwrap();
        assert_eq!(status(&process.client).await.missed, Some(1));
    });
}

#[test]
fn a_record_from_the_future_is_reported_and_stops_no_other_slot() {
    inside(at_midnight(), async |_, [process]| {
        let record = async |text: &str| {
            let guard = process.client.mutex("report").unwrap().acquire().await.unwrap();
            guard.write_note(text, None).await.unwrap();
            guard.release().await.unwrap();
        };
        for (start, is_ahead) in [("2002-09-10T00:00:00Z", true), ("2001-09-10T02:00:00Z", true)] {
            record(&format!(
                r#"{{"job":1,"slot":"{start}","slot_start":"{start}","schedule":"1h","state":"succeeded","began":"{start}","attempt":1,"missed":0}}"#
            ))
            .await;
            let seen = status(&process.client).await;
            assert_eq!((seen.is_ahead, seen.missed), (is_ahead, Some(0)));
            let run = begun(&job(&process, "hourly")).await;
            assert_eq!(run.this().slot, "2001-09-10T00:00:00Z");
            run.succeed().await.unwrap();
            assert!(!status(&process.client).await.is_ahead && !asks(&job(&process, "hourly")).await);
        }
        // The run of the present slot must not be repeated.
        record(
            r#"{"job":1,"slot":"2001-09-10","slot_start":"2001-09-10T00:00:00Z","schedule":"daily@UTC","state":"succeeded","began":"2001-09-10T02:00:00Z","attempt":1,"missed":0}"#,
        )
        .await;
        assert!(status(&process.client).await.is_ahead && !asks(&job(&process, "daily")).await);
    });
}

#[test]
fn a_clock_that_was_ahead_for_one_run_repeats_neither_that_slot_nor_an_earlier_one() {
    let (now, ahead) = ("2001-09-10T00:00:00Z", "2001-09-10T01:00:00Z");
    // The slot of another schedule can have the same text.
    let other_slot = "2001-09-09T12:00:00Z";
    for (earlier, began, runs) in
        [("succeeded", now, false), ("failed", now, false), ("died", now, true), ("succeeded", other_slot, true)]
    {
        inside(at_midnight(), async |world, [process]| {
            let guard = process.client.mutex("report").unwrap().acquire().await.unwrap();
            let record = format!(
                r#"{{"job":1,"slot":"{ahead}","slot_start":"{ahead}","schedule":"1h","state":"succeeded","began":"{ahead}","attempt":1,"missed":0,"runs":[{{"slot":"{now}","state":"{earlier}","detail":null,"host":"h","began":"{began}","took_ms":1}}]}}"#
            );
            guard.write_note(record, None).await.unwrap();
            guard.release().await.unwrap();
            assert_eq!(asks(&job(&process, "hourly")).await, runs, "{earlier} {began}");
            world.clock.jump_wall(HOUR);
            assert!(!asks(&job(&process, "hourly")).await, "it ran while the clock was ahead");
            world.clock.jump_wall(HOUR);
            assert!(asks(&job(&process, "hourly")).await);
        });
    }
}

#[test]
fn a_schedule_that_changes_between_releases_repeats_nothing_within_its_slot() {
    inside(at_midnight(), async |world, [process]| {
        world.clock.jump_wall(14 * HOUR + 30 * MINUTE);
        assert!(asks(&job(&process, "daily")).await);
        assert!(!asks(&job(&process, "hourly")).await, "it ran within this hour");
        world.clock.jump_wall(HOUR);
        assert!(asks(&job(&process, "hourly")).await);
        for longer in ["daily", "daily@Europe/Berlin", "0 3 * * *", "1w"] {
            assert!(!asks(&job(&process, longer)).await, "{longer}");
        }
        world.clock.jump_wall(24 * HOUR);
        assert!(asks(&job(&process, "daily")).await);
        // A failed run is repeated under its own schedule.
        world.clock.jump_wall(24 * HOUR);
        begun(&job(&process, "daily")).await.fail("").await.unwrap();
        let again = begun(&job(&process, "hourly").retries(1)).await;
        assert_eq!((&*again.this().slot, again.this().attempt), ("2001-09-12", 2));
    });
}

#[test]
fn a_named_slot_runs_once_in_any_order_of_slots() {
    inside(at_midnight(), async |_, [process]| {
        let named = |text: &str| process.client.job("report", Slot::named(text).unwrap()).unwrap();
        for (text, runs) in [("2001-09-10", true), ("2001-09-11", true), ("2001-09-10", false), ("2001-09-11", false)] {
            assert_eq!(asks(&named(text)).await, runs, "{text}");
        }
        for number in 0..100 {
            assert!(asks(&named(&format!("2002-{number:03}"))).await);
        }
        assert!(!asks(&named("2002-000")).await, "a hundred of them are remembered");
        for number in 0..40 {
            assert!(asks(&named(&format!("{number}{}", "\"".repeat(126)))).await, "also where a text needs more room");
        }
        assert_eq!(status(&process.client).await.missed, None);
    });
}

#[test]
fn a_named_run_that_died_is_followed_although_another_slot_ran_since() {
    inside(at_midnight(), async |_, [process]| {
        let named = |text: &str| process.client.job("report", Slot::named(text).unwrap()).unwrap();
        drop(begun(&named("2001-09-10")).await);
        settle().await;
        assert!(asks(&named("2001-09-11")).await);
        assert!(asks(&named("2001-09-10")).await && !asks(&named("2001-09-10")).await);
        assert!(!asks(&named("2001-09-11")).await);
    });
}

#[test]
fn an_end_whose_answer_is_lost_is_reported_again() {
    inside(at_midnight(), async |world, [process]| {
        let run = begun(&job(&process, "daily")).await;
        process.store.lose_next_reply(Operation::WriteNote);
        let (ended, ()) = tokio::join!(run.succeed(), world.advance(secs(5)));
        ended.unwrap();
        assert_eq!(status(&process.client).await.last.state, RunState::Succeeded);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_note_that_is_none_of_a_job_is_left_alone() {
    inside(at_midnight(), async |_, [process]| {
        for note in ["", "10.0.0.7:80", "{\"job\":2,\"new\":true}", "{\"job\":1}"] {
            let guard = process.client.mutex("report").unwrap().acquire().await.unwrap();
            guard.write_note(note, None).await.unwrap();
            guard.release().await.unwrap();
            assert_eq!(job(&process, "daily").begin().await.unwrap_err().kind(), ErrorKind::Layout, "{note}");
            assert_eq!(process.client.job_status("report").await.unwrap_err().kind(), ErrorKind::Layout);
            assert_eq!(process.client.note("report").await.unwrap().note.unwrap().text(), Some(note));
        }
        let other = process.client.mutex("other").unwrap().acquire().await.unwrap();
        assert_eq!(job(&process, "daily").begin_under(other).await.unwrap_err().kind(), ErrorKind::Config);
    });
}

#[test]
fn the_note_is_a_small_text_that_others_can_read() {
    inside(at_midnight(), async |_, [process]| {
        begun(&job(&process, "daily")).await.fail("exit code 3").await.unwrap();
        let note = process.client.note("report").await.unwrap().note.unwrap();
        let text = r#"{"job":1,"slot":"2001-09-10","slot_start":"2001-09-10T00:00:00Z","schedule":"daily@UTC","state":"failed","detail":"exit code 3","began":"2001-09-10T00:00:00Z","attempt":1,"missed":0}"#;
        assert_eq!(note.text(), Some(text));
    });
}
