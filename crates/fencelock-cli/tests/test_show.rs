//! `fencelock show`: everybody in one queue, in order.

mod common;

use common::{Place, Running, ended, output, stdout};

#[test]
fn every_contender_is_shown_in_order() {
    let place = Place::new();
    let holder = place.holder("job");
    let mut waiters = Vec::new();
    for number in 0..2 {
        waiters.push(Running::start(
            &mut place.run(&["--quiet", "--purpose", &format!("waiter {number}"), "job"], "true"),
        ));
        place.queued("job", number + 2);
    }
    let contenders = place.contenders("job");
    let field = |index: usize, field: &str| contenders[index][field].clone();
    for index in 0..3 {
        assert_eq!(field(index, "position"), index + 1);
        assert_eq!(field(index, "state"), if index == 0 { "holder" } else { "waiter" });
        assert_eq!(field(index, "claim"), "mutex");
        assert!(field(index, "since").as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(field(0, "pid"), holder.pid().as_raw());
    assert!(field(0, "token").as_str().unwrap().parse::<i64>().unwrap() > 0);
    assert!(field(1, "token").is_null());
    assert_eq!((field(1, "purpose"), field(2, "purpose")), ("waiter 0".into(), "waiter 1".into()));
    let table = stdout(&output(&mut place.fencelock(&["show", "job"])));
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[1].contains("holder") && lines[1].contains(&holder.pid().to_string()), "{table}");
    assert!(lines[2].contains("waiter 0") && lines[3].contains("waiter 1"), "{table}");
}

#[test]
fn an_idle_name_and_a_wrong_one_are_told_apart() {
    let place = Place::new();
    let idle = output(&mut place.fencelock(&["show", "idle"]));
    assert_eq!(stdout(&idle), "nobody holds or waits for idle\n");
    assert!(idle.status.success());
    let (code, text) = ended(&mut place.fencelock(&["show", "a//b"]));
    assert_eq!(code, 64);
    assert!(text.contains("a//b"), "{text}");
}
