//! The verbs for scripts: `acquire` and `release`, `wait`, `note`.

use std::path::Path;
use std::process::{Command, Stdio};

use fencelock_testbed::redis::shared;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    PROGRAM, Place, Running, children, code, ended, is_alive, output, refused, stderr, stdout, until, written,
};

/// A script of the shell in which `fencelock` is the program under test.
fn script(place: &Place, text: &str) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal", "-u", "FENCELOCK_HELD", "sh", "-c"])
        .arg(format!("fencelock() {{ {PROGRAM} \"$@\"; }}\n{text}"));
    command.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path()).stdin(Stdio::null());
    command
}

/// The process that holds `name`, once one does.
fn keeper(place: &Place, name: &str) -> i32 {
    until("the lock is held", || {
        let contenders = place.contenders(name);
        let holder = contenders.first().filter(|first| first["state"] == "holder")?;
        i32::try_from(holder["pid"].as_i64()?).ok()
    })
}

fn free(place: &Place, name: &str) {
    until("the lock is free", || place.contenders(name).is_empty().then_some(()));
}

fn holds_a_lock_until_it_is_given_back(place: &Place) {
    let text = "token=$(fencelock acquire job --pid $$) || exit
        fencelock show job --json > held
        fencelock run --try job -- true; echo $? > busy
        fencelock note job --set 'half way'
        fencelock acquire --try other --pid $$ > /dev/null
        fencelock release job && fencelock run --try job -- true && fencelock note job && echo $token";
    let ended = output(&mut script(place, text));
    assert_eq!(code(&ended), 0, "{ended:?}");
    let said = stdout(&ended);
    let (note, token) = said.trim().split_once('\n').unwrap();
    let held: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(place.path("held")).unwrap()).unwrap();
    assert_eq!(
        (note, token, &*written(&place.path("busy"))),
        ("half way", held["contenders"][0]["token"].as_str().unwrap(), "75\n")
    );
    // The other one goes with the script.
    free(place, "other");
}

#[test]
fn a_script_holds_a_lock_until_it_is_given_back_or_the_script_ends() {
    holds_a_lock_until_it_is_given_back(&Place::new());
    holds_a_lock_until_it_is_given_back(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

#[test]
fn open_files_of_a_script_are_not_kept_open_by_the_keeper_or_the_guardian() {
    let open = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().map(|file| file.path());
    let has_own = |pid: i32, own: &Path| open(pid).any(|file| std::fs::read_link(file).is_ok_and(|file| file == own));
    for place in [Place::new(), Place::with_store(shared().url_with("ttl_ms=60000"))] {
        let own = place.path("own").canonicalize().unwrap_or_else(|_| place.path("own"));
        let text = "exec 9> own; fencelock acquire job --pid $$ > /dev/null
            fencelock run --close other -- sh -c 'test -e /proc/self/fd/9 && echo > ready; sleep 1000'; true";
        let worker = Running::start(&mut script(&place, text));
        written(&place.path("ready"));
        let (keeper, runner) = (keeper(&place, "job"), place.contenders("other")[0]["pid"].as_i64().unwrap());
        let guardian = children(Pid::from_raw(i32::try_from(runner).unwrap())).into_iter();
        let guardian = guardian
            .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"fencelock\0guard"));
        let apart: Vec<_> = guardian.chain([keeper]).collect();
        assert_eq!(apart.len(), 2);
        assert!(has_own(worker.pid().as_raw(), &own));
        until("the descriptor is closed", || (!apart.iter().any(|pid| has_own(*pid, &own))).then_some(()));
        kill(Pid::from_raw(i32::try_from(runner).unwrap()), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_lock_goes_with_the_script_that_is_killed_and_with_the_one_that_waits() {
    let place = Place::new();
    let first =
        Running::start(&mut script(&place, "fencelock acquire --quiet job --pid $$ > /dev/null; sleep 1000; true"));
    let kept_by = keeper(&place, "job");
    // A killed waiter leaves nothing in the queue.
    let waits = Running::start(&mut place.fencelock(&["acquire", "--quiet", "job", "--pid", &first.pid().to_string()]));
    assert_eq!(waits.code(), 73, "it is held for that process already");
    let process = std::process::id().to_string();
    let waits = Running::start(&mut place.fencelock(&["acquire", "--quiet", "job", "--pid", &process]));
    place.queued("job", 2);
    waits.signal(Signal::SIGKILL);
    place.queued("job", 1);
    let next = Running::start(&mut place.fencelock(&["wait", "job"]));
    first.signal(Signal::SIGKILL);
    assert_eq!(next.code(), 0);
    until("the keeper ends", || (!is_alive(kept_by)).then_some(()));
}

#[test]
fn a_script_whose_lock_is_broken_is_asked_to_end() {
    let place = Place::new();
    let text = "trap 'echo told > told; exit 5' TERM; fencelock acquire job --pid $$ > /dev/null; while :; do sleep 0.05; done";
    let victim = Running::start(&mut script(&place, text));
    let kept_by = keeper(&place, "job");
    assert_eq!(ended(&mut place.fencelock(&["break", "job", "--reason", "stuck", "--yes"])).0, 0);
    assert_eq!((victim.code(), &*written(&place.path("told"))), (5, "told\n"));
    until("the keeper ends", || (!is_alive(kept_by)).then_some(()));
}

#[test]
fn a_wait_that_ends_without_the_lock_is_no_success() {
    let place = Place::new();
    let holder = place.holder("job");
    let script_of = |place: &Place| Running::start(&mut script(place, "exec sleep 1000"));
    let acquire = |of: &Running| {
        let mut command = place.fencelock(&["acquire", "job", "--pid", &of.pid().to_string()]);
        let waits = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        place.queued("job", 2);
        let kept_by = place.contenders("job")[1]["pid"].as_i64().unwrap();
        (waits, Pid::from_raw(i32::try_from(kept_by).unwrap()))
    };
    let (script, all) = (script_of(&place), [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL]);
    for signal in all {
        let (waits, kept_by) = acquire(&script);
        kill(kept_by, signal).unwrap();
        let ended = waits.end();
        assert_eq!((code(&ended), &*stdout(&ended)), (128 + signal as i32, ""), "{ended:?}");
        assert!(stderr(&ended).contains(signal.as_str()) || stderr(&ended).contains("ended early"), "{ended:?}");
        place.queued("job", 1);
    }
    let (waits, _) = acquire(&script);
    drop(script);
    let ended = waits.end();
    assert_eq!((code(&ended), &*stdout(&ended)), (64, ""), "{ended:?}");
    assert!(stderr(&ended).contains("has ended, and the lock job is not held"), "{ended:?}");
    place.queued("job", 1);
    drop(holder);
    let ours = std::process::id().to_string();
    let (code, said) = self::ended(&mut place.fencelock(&["acquire", "-E", "0", "job", "--pid", &ours]));
    assert!(code == 64 && said.contains("-E 0"), "{code} {said}");
}

/// Stops the script as systemd stops a unit with the default `KillMode=`.
fn works_on_under_its_lock(place: &Place) {
    let text = "trap 'echo > trapped; while ! test -e go; do sleep 0.02; done; fencelock release job; exit 7' TERM
        fencelock acquire job --pid $$ > /dev/null; echo > ready; while :; do sleep 0.02; done";
    let worker = Running::start(&mut script(place, text));
    written(&place.path("ready"));
    let kept_by = keeper(place, "job");
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        kill(Pid::from_raw(kept_by), signal).unwrap();
    }
    worker.signal(Signal::SIGTERM);
    written(&place.path("trapped"));
    assert_eq!(ended(&mut place.run(&["--quiet", "--try", "job"], "true")), (75, String::new()));
    assert_eq!(keeper(place, "job"), kept_by);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(worker.code(), 7);
    until("the keeper ends", || (!is_alive(kept_by)).then_some(()));
    free(place, "job");
}

#[test]
fn a_signal_to_script_and_keeper_releases_nothing_while_the_script_works_on() {
    works_on_under_its_lock(&Place::new());
    works_on_under_its_lock(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

#[test]
fn no_script_releases_the_lock_of_another_script() {
    let place = Place::new();
    let release = ["release", "job"];
    let (code, said) = ended(&mut place.fencelock(&release));
    assert!(code == 69 || code == 1, "{said}");
    let holder = place.holder("job");
    let (code, said) = ended(&mut place.fencelock(&release));
    assert!(code == 1 && said.contains("nothing was given back") && said.contains("to test"), "{code} {said}");
    drop(holder);
    free(&place, "job");
    let script = Running::start(&mut script(&place, "fencelock acquire job --pid $$ > /dev/null; sleep 1000; true"));
    let kept_by = keeper(&place, "job");
    assert_eq!(ended(&mut place.fencelock(&release)).0, 1);
    assert!(is_alive(kept_by) && place.contenders("job").len() == 1);
    // With `--pid`, any process of the same user may release the lock.
    assert_eq!(
        ended(&mut place.fencelock(&["release", "job", "--pid", &script.pid().to_string()])),
        (0, String::new())
    );
    assert!(place.contenders("job").is_empty());
}

#[test]
fn a_lock_is_taken_for_a_process_of_ones_own_that_is_there() {
    let place = Place::new();
    let gone = output(Command::new("sh").args(["-c", "echo $$"]));
    for (pid, said) in
        [("1", "first one"), ("0", "first one"), ("-5", "first one"), (stdout(&gone).trim(), "no such process")]
    {
        let (code, text) = ended(&mut place.fencelock(&["acquire", "job", "--pid", pid]));
        assert!(code == 64 && text.contains(said), "{pid}: {code} {text}");
    }
    let ours = std::process::id().to_string();
    let holder = place.holder("job");
    refused(&mut place.fencelock(&["acquire", "--try", "job", "--pid", &ours]), &format!("pid {}", holder.pid()));
    assert_eq!(
        ended(&mut place.fencelock(&["acquire", "--wait", "10ms", "-qE", "9", "job", "--pid", &ours])),
        (9, String::new())
    );
    let inside = output(&mut place.run(&["other"], &format!("{PROGRAM} acquire other --pid $$")));
    assert_eq!(code_and(&inside), (73, true), "{}", stderr(&inside));
}

fn code_and(output: &std::process::Output) -> (i32, bool) {
    (code(output), stderr(output).contains("would never end"))
}

#[test]
fn a_wait_ends_when_the_lock_has_no_holder_or_names_the_holder() {
    let place = Place::new();
    let mut holder = place.holder("job");
    let (code, text) = ended(&mut place.fencelock(&["wait", "job", "--timeout", "10ms"]));
    assert!(code == 75 && text.contains(&format!("pid {}", holder.pid())), "{code} {text}");
    let waits = Running::start(&mut place.fencelock(&["wait", "job"]));
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert_eq!(waits.code(), 0);
    assert_eq!(ended(&mut place.fencelock(&["wait", "job", "--timeout", "0"])), (0, String::new()));
}

fn an_idle_sticky_lock_ends_for_a_wait(place: &Place) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = runtime.block_on(fencelock::Client::connect(&place.url())).unwrap();
    let sticky = client.mutex("job").unwrap().sticky(std::time::Duration::from_secs(36_000));
    for limit in [&[][..], &["--timeout", "1h"]] {
        runtime.block_on(async { sticky.acquire().await.unwrap().release().await }).unwrap();
        assert_eq!(ended(&mut place.fencelock(&["wait", "job", "--timeout", "0"])).0, 75);
        assert_eq!(ended(&mut place.fencelock(&[&["wait", "job"], limit].concat())), (0, String::new()));
        assert!(place.contenders("job").is_empty());
    }
    runtime.block_on(client.close()).unwrap();
}

#[test]
fn an_idle_sticky_lock_is_given_up_for_a_wait() {
    an_idle_sticky_lock_ends_for_a_wait(&Place::new());
    an_idle_sticky_lock_ends_for_a_wait(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

fn writes_and_shows_a_note(place: &Place) {
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", "10.0.0.7:80"])), (0, String::new()));
    assert_eq!(stdout(&output(&mut place.fencelock(&["note", "job"]))), "10.0.0.7:80\n");
    // Under `run` it is the lock that is held there.
    let inner = format!("{PROGRAM} note job --set inside --ttl 1h && {PROGRAM} note job --json");
    let shown = output(&mut place.run(&["job"], &inner));
    assert_eq!(code(&shown), 0, "{shown:?}");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((shown["value"].as_str(), shown["bytes"].as_u64()), (Some("inside"), Some(6)));
    assert!(shown["expires"].is_string() && shown["token"].is_string() && shown["pid"].is_u64(), "{shown}");
    let mut holder = place.holder("job");
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", "x", "--wait", "0"])).0, 75);
    assert_eq!(stdout(&output(&mut place.fencelock(&["note", "job"]))), "inside\n");
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert_eq!(holder.code(), 0);
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--delete"])), (0, String::new()));
    let (code, text) = ended(&mut place.fencelock(&["note", "job"]));
    assert!(code == 1 && text.contains("there is no note on job"), "{code} {text}");
}

#[test]
fn the_holder_writes_the_note_on_a_lock_and_every_client_sees_it() {
    writes_and_shows_a_note(&Place::new());
    writes_and_shows_a_note(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

#[test]
fn a_script_takes_no_lock_whose_holder_is_hidden() {
    let place = Place::new();
    let url = format!("{}?owner=opaque", place.url());
    let text = "fencelock --store \"$0\" acquire job --pid $$";
    let ended = output(script(&place, text).arg(url));
    assert!(code(&ended) == 64 && stderr(&ended).contains("owner=opaque"), "{ended:?}");
}
