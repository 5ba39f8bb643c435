//! Losses and refusals between two commands: no change is half done, and holders are notified.

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_lost_bucket_is_reported_by_the_next_renewal_whether_or_not_another_one_was_made() {
    let (mut bed, name) = (Bed::new(), name("lost"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (_, seq) = bed.hold(session, &name, Claim::MUTEX);
    let slot = layout.slot(&name);
    let held = HeldIn { bucket: slot.bucket, lowest: seq, highest: seq };
    let lost = |bed: &mut Bed| match bed.run(renew(&layout, session, LONG, &[held], &[])) {
        Renewed::Alive { lost, .. } => lost,
        Renewed::Gone => panic!("the session is gone"),
    };
    assert_eq!(lost(&mut bed), []);
    bed.words(&["DEL", &slot.bucket_key]);
    assert_eq!(lost(&mut bed), [LostBucket { index: 0, born: None }]);
    bed.words(&["SET", &slot.bucket_key, "somebody else's"]);
    assert_eq!(lost(&mut bed), [LostBucket { index: 0, born: None }]);
    bed.words(&["DEL", &slot.bucket_key]);
    let (_, born) = bed.hold(other, &name, Claim::MUTEX);
    assert_eq!(lost(&mut bed), [LostBucket { index: 0, born: Some(born) }]);
}

#[test]
fn an_order_left_over_from_a_lost_bucket_is_in_nobodys_way() {
    let (mut bed, name) = (Bed::new(), name("left over"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    bed.hold(session, &name, Claim::MUTEX);
    for _ in 0..3 {
        bed.wait(session, &name, Claim::MUTEX);
    }
    bed.words(&["DEL", &layout.slot(&name).bucket_key]);
    let (held, _) = bed.hold(session, &name, Claim::MUTEX);
    let (next, ..) = bed.wait(session, &name, Claim::MUTEX);
    assert_eq!(bed.line(&name), [held, next]);
}

/// The writing commands of the scripts.
const WRITES: &[&str] = &["hset", "hdel", "zadd", "zrem", "del", "publish", "hincrby", "pexpire", "rpush", "ltrim"];

#[test]
fn a_script_that_is_refused_a_command_at_its_first_write_leaves_everything_as_it_was() {
    for command in WRITES {
        let server = Server::start(Settings::default()).unwrap();
        let (mut bed, name) = (Bed::at(&server.url()), name("refused"));
        let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
        let (held, seq) = bed.hold(session, &name, Claim::WRITER);
        bed.wait(other, &name, Claim::READER);
        bed.wait(other, &name, Claim::READER);
        for script in all() {
            bed.ask(&script.load()).unwrap();
        }
        bed.words(&["ACL", "SETUSER", "default", &format!("-{command}")]);
        let owner = Owner { client: 7, host: "there".to_owned(), pid: 3 };
        let refused = bed.try_run(open(&layout, 7, LONG, &owner)).unwrap_err().to_string();
        assert!(refused.contains(&command.to_uppercase()), "{refused}");
        assert_eq!(bed.words(&["EXISTS", &layout.session_key(7)]), redis::Value::Int(0), "{command}");
        // Reading is refused before anything is written.
        bed.words(&["ACL", "SETUSER", "default", &format!("+{command}"), "-zrange", "-zrank"]);
        let before = bed.words(&["HGETALL", &layout.slot(&name).bucket_key]);
        bed.try_run(leave(&layout, (&name, held), Some(seq))).unwrap_err();
        assert_eq!(bed.words(&["HGETALL", &layout.slot(&name).bucket_key]), before, "half of it was done");
        bed.words(&["ACL", "SETUSER", "default", "+@all"]);
        assert!(bed.run(leave(&layout, (&name, held), Some(seq))));
    }
}
