//! The page of `fencelock serve` in a real browser.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencelock::Client;
use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::{PROXIES, Port};
use serde_json::json;

use crate::common::browser::{Browser, DOWN, ENTER, ESCAPE};
use crate::common::http::{Served, ask, token};
use crate::common::{Place, Running, ended, until};

/// Holds all of `names` in the store at `url` while `work` is done.
fn held<T>(url: &str, names: impl Iterator<Item = String>, work: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let mut guards = Vec::new();
        for name in names {
            guards.push(client.mutex(name).unwrap().acquire().await.unwrap());
        }
        let done = work();
        client.close().await.unwrap();
        done
    })
}

#[test]
fn a_lock_appears_a_waiter_queues_and_a_hand_over_shows() {
    let place = Place::new();
    let _first = place.holder("first");
    let served = Served::start(&place, &["--class", "job/*"]);
    let browser = Browser::start();
    browser.open(served.address);
    browser.shows("health", &["the store answers"]);
    browser.shows("locks", &["first", "pid", "mutex", "to test"]);
    let mut holder = place.holder("job/one");
    browser.shows("locks", &["job/one"]);
    browser.shows("grants", &["job/one", "granted", "pid"]);
    let classes = [
        "all locks\n2 locks\n2 holders\n0 waiting",
        "job/*\n1 locks\n1 holders\n0 waiting",
        "other\n1 locks\n1 holders\n0 waiting",
    ];
    browser.shows("classes", &classes);
    browser.goes_to("job/one");
    browser.types(ENTER);
    browser.shows("queue-note", &["job/one: 1 in the queue"]);
    let waiter = Running::start(place.run(&["--quiet", "job/one"], "cat").stdin(Stdio::piped()));
    let (holds, waits) = (format!("1.\npid {}", holder.pid()), format!("2.\npid {}", waiter.pid()));
    browser.shows("queue", &[&holds, "holder", &waits, "waiter"]);
    assert!(!browser.text("queue").contains("Break"), "it only shows");
    drop(holder.0.as_mut().unwrap().stdin.take());
    browser.shows("queue", &[&format!("1.\npid {}", waiter.pid()), "holder"]);
    browser.shows("grants", &["ended", "held for"]);
    browser.goes_to("job/one");
}

/// The environment variable with the directory for the pictures of the page. `docs/serve.png` is the one called `wide-light.png`.
const PICTURES: &str = "FENCELOCK_PICTURES";
/// The least time that a kept picture shows.
const PICTURE: Duration = Duration::from_secs(60);

/// Shows the page in each kind of window, checks that it fits, and keeps a picture of each if a directory for them is given.
fn fits_every_window(browser: &Browser, directory: Option<&Path>) {
    for (window, width, height) in [("wide", 1280, 800), ("narrow", 390, 844)] {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": window == "narrow" });
        browser.tool("Emulation.setDeviceMetricsOverride", &metrics);
        for scheme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.tool("Emulation.setEmulatedMedia", &media);
            let picture = browser.picture();
            assert!(picture.starts_with(b"\x89PNG"));
            if let Some(directory) = directory {
                std::fs::write(directory.join(format!("{window}-{scheme}.png")), picture).unwrap();
            }
        }
        let is_in = "(id) => { const box = document.getElementById(id).getBoundingClientRect(); return box.width > 0 && box.left >= 0 && box.right <= innerWidth }";
        for id in ["classes", "locks-section", "timeline-section", "grants-section"] {
            assert_eq!(browser.is(&format!("({is_in})('{id}')")), true, "#{id} is in a {window} window");
        }
        assert_eq!(browser.is("document.documentElement.scrollWidth"), width, "nothing to scroll sideways");
    }
}

#[test]
fn hand_overs_waits_and_a_break_are_drawn_in_every_window_with_nothing_held_and_with_much() {
    let directory = std::env::var_os(PICTURES).map(PathBuf::from);
    // A picture shows a minute; a test without a directory waits for no time.
    let passes = || {
        let since = Instant::now();
        until("the timeline grows", || (directory.is_none() || since.elapsed() > PICTURE / 9).then_some(()));
    };
    let place = Place::new();
    let start = |name: &str, purpose: &str| {
        let options = ["--quiet", "--purpose", purpose, name];
        Running::start(place.run(&options, "cat").stdin(Stdio::piped()))
    };
    let ends = |holder: &mut Running| drop(holder.0.as_mut().unwrap().stdin.take());
    let _first = [start("cache/warm", "warm the cache"), start("mail", "send invoices")];
    place.queued("mail", 1);
    let served = Served::start(&place, &["--class", "deploy/*", "--class", "report/*"]);
    let browser = Browser::start();
    browser.open(served.address);
    browser.is("(() => { document.getElementById('filter').value = 'nothing has this name'; document.getElementById('filter').dispatchEvent(new Event('input')) })()");
    browser.shows("empty", &["No client holds"]);
    fits_every_window(&browser, None);
    browser.is("(() => { document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input')) })()");
    browser.shows("locks", &["cache/warm", "mail"]);
    // The queue of the first lock is shown before one is chosen, without a button that could break another grant.
    browser.shows("queue", &["holder"]);
    let shows = |count: &str, least: u64| {
        let drawn = format!("document.querySelectorAll('#lanes {count}').length");
        until(&format!("{least} of {count}"), || (browser.is(&drawn).as_u64() >= Some(least)).then_some(()));
    };

    let _nightly = start("report/nightly", "figures of November");
    let mut queue = Vec::new();
    for (at, release) in ["1.4", "1.5", "1.6", "1.7", "1.8", "1.9"].into_iter().enumerate() {
        queue.push(start("deploy/web", &format!("release {release}")));
        place.queued("deploy/web", at + 1);
        if at % 2 == 1 {
            passes();
        }
    }
    shows(".held", 4);
    shows(".waited .wait", 5);
    let mut rollback = start("deploy/api", "rollback");
    place.queued("deploy/api", 1);
    passes();
    let _behind = [start("deploy/api", "release 1.4"), start("deploy/api", "release 1.5")];
    place.queued("deploy/api", 3);
    for (ended, mut holder) in (1..).zip(queue.drain(..2)) {
        passes();
        ends(&mut holder);
        assert_eq!(holder.code(), 0);
        shows(".held:not(.open)", ended);
        // A grant that ends before the page sees it is not drawn: each of the five locks has a holder again.
        shows(".held.open", 5);
    }
    let breaks = "[...document.querySelectorAll('#lanes .mark')].filter((mark) => mark.title.includes('broken: stuck since noon')).length";
    assert_eq!(browser.is(breaks), 0);
    passes();
    let break_it = ["break", "deploy/web", "--reason", "stuck since noon", "--yes"];
    assert_eq!(ended(&mut place.fencelock(&break_it)), (0, String::new()));
    until("the break is drawn", || (browser.is(breaks) == 1).then_some(()));
    passes();
    ends(&mut rollback);
    shows(".held:not(.open)", 4);
    passes();

    // The arrow keys choose among the locks, Escape closes the queue.
    browser.shows("queue-note", &["deploy/web: 3 in the queue"]);
    browser.goes_to("deploy/web");
    browser.types(&format!("{DOWN}{ENTER}"));
    browser.shows("queue-note", &["deploy/api: 2 in the queue"]);
    assert_eq!(browser.is("document.getElementById('close').hidden"), false);
    browser.types(ESCAPE);
    browser.shows("queue-note", &["deploy/web: 3 in the queue"]);
    browser.is("document.activeElement.blur()");
    if directory.is_some() {
        // The store of a test has a random name.
        browser.is("Object.defineProperty(Object.assign(document.getElementById('store'), { textContent: 'file:///var/lib/locks (fencelock file layout 1)' }), 'textContent', { writable: true, value: '' })");
    }
    fits_every_window(&browser, directory.as_deref());
}

/// The block of `docs/command.md` that is for `proxy`, before `served`.
fn block(proxy: &str, served: &Served) -> String {
    let text = std::fs::read_to_string(format!("{}/../../docs/command.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (_, rest) = text.split_once(&format!("```{proxy}\n")).unwrap();
    rest.split_once("```").unwrap().0.replace("127.0.0.1:7433", &served.address.to_string())
}

#[test]
fn the_page_works_behind_nginx_and_haproxy_as_the_document_sets_them_up() {
    PROXIES.require();
    let place = Place::new();
    let _first = place.holder("first");
    let (token, file) = token(&place);
    let served = Served::start(&place, &["--allow-break", "--token-file", &file]);
    let ports = [Port::reserve().unwrap(), Port::reserve().unwrap()];
    let [nginx, haproxy] = ports.each_ref().map(Port::address);
    let directory = place.directory.path().display();
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path {directory}/{of};"));
    let config = format!(
        "daemon off; master_process off; pid {directory}/pid; error_log stderr; events {{}} http {{ access_log off; {} server {{ listen {nginx}; {} }} }}",
        temporary.concat(),
        block("nginx", &served)
    );
    std::fs::write(place.path("nginx.conf"), config).unwrap();
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n timeout check 60s\nfrontend all\n bind {haproxy}\n stats enable\n stats uri /stats\n use_backend locks if {{ path_beg /locks/ }}\n{}",
        block("haproxy", &served)
    );
    std::fs::write(place.path("haproxy.cfg"), config).unwrap();
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        Running::start(command.current_dir(place.directory.path()).args(arguments).stdout(Stdio::null()))
    };
    let _nginx = start("/usr/sbin/nginx", &["-p", ".", "-c", "nginx.conf", "-e", "stderr"]);
    let _haproxy = start("/usr/sbin/haproxy", &["-f", "haproxy.cfg"]);
    let browser = Browser::start();
    for proxy in [nginx, haproxy] {
        until("the proxy listens", || TcpStream::connect(proxy).ok());
        browser.open_at(&format!("http://{proxy}/locks/"));
        browser.shows("health", &["a token is needed"]);
        browser.is("document.getElementById('token').focus()");
        browser.types(&format!("{token}{ENTER}"));
        browser.shows("health", &["the store answers"]);
        browser.shows("locks", &["first"]);
        let name = format!("job/{}", proxy.port());
        let mut holder = place.holder(&name);
        browser.shows("grants", &[&name, "granted"]);
        browser.goes_to(&name);
        browser.types(ENTER);
        browser.shows("queue", &["Break…"]);
        browser.goes_to("Break…");
        browser.types(ENTER);
        browser.shows("break-whose", &[&name]);
        browser.types(&format!("stuck{ENTER}"));
        let _typed = holder.0.as_mut().unwrap().stdin.take();
        assert_eq!(holder.code(), 76);
    }
    until("HAProxy's check succeeds", || {
        ask(haproxy, "GET", "/stats;csv", &[], "").body.contains("L7OK").then_some(())
    });
}

#[test]
fn a_grant_is_broken_by_the_keyboard_after_the_token_was_given() {
    let place = Place::new();
    let (token, file) = token(&place);
    let mut holder = place.holder("job");
    let served = Served::start(&place, &["--allow-break", "--token-file", &file]);
    let browser = Browser::start();
    browser.open(served.address);
    browser.shows("health", &["a token is needed"]);
    for (given, said) in [("wrong", "That token is wrong."), (token, "")] {
        browser.is("document.getElementById('token').focus()");
        browser.types(&format!("{given}{ENTER}"));
        browser.shows("login-error", &[said]);
    }
    browser.shows("locks", &["job"]);
    browser.goes_to("job");
    browser.types(ENTER);
    browser.shows("queue", &["Break…"]);
    browser.goes_to("Break…");
    browser.types(ENTER);
    let holder_pid = holder.pid();
    browser.shows("break-whose", &["job", &format!("held by pid {holder_pid}"), "to test"]);
    browser.types(&format!("stuck since noon{ENTER}"));
    // The holder would end by itself if its stdin were closed.
    let _typed = holder.0.as_mut().unwrap().stdin.take();
    assert_eq!(holder.code(), 76);
    browser.shows("queue-note", &["no client holds or waits for job"]);
    let by = format!("by pid {}", served.running.pid());
    browser.shows("breaks", &["broken", &format!("pid {holder_pid}"), &by, "stuck since noon"]);
    assert_eq!(browser.is("document.getElementById('break').open"), false);
}

#[test]
fn the_lock_that_most_wait_for_comes_first_and_its_queue_is_in_view_on_a_phone_by_a_link() {
    let place = Place::new();
    held(&place.url(), (0..300).map(|number| format!("job/{number:04}")), || {
        let waiter = Running::start(place.run(&["--quiet", "job/0250"], "cat").stdin(Stdio::piped()));
        place.queued("job/0250", 2);
        let served = Served::start(&place, &[]);
        let browser = Browser::start();
        let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true });
        browser.tool("Emulation.setDeviceMetricsOverride", &phone);
        browser.open(served.address);
        let first = || browser.is("document.querySelector('#locks button')?.innerText");
        until("the lock with a waiter is first", || (first() == "job/0250").then_some(()));
        let in_view = "(() => { const box = document.getElementById('queue-note').getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight })()";
        browser.is("document.querySelectorAll('#locks button')[80].scrollIntoView()");
        browser.is("document.querySelectorAll('#locks button')[80].click()");
        browser.shows("queue-note", &["job/", "1 in the queue"]);
        assert_eq!(browser.is(in_view), true, "the queue that was chosen is on the screen");
        browser.is("(() => { const order = document.getElementById('order'); order.value = 'false'; order.dispatchEvent(new Event('change')) })()");
        until("they are ordered by name", || (first() == "job/0000").then_some(()));
        // A link to one lock, in another window.
        let link = browser.is("location.href.replace(/lock=[^&]*/, 'lock=job%2F0250')");
        drop(browser);
        let browser = Browser::start();
        browser.open_at(link.as_str().unwrap());
        browser.shows("queue", &[&format!("2.\npid {}", waiter.pid()), "waiter"]);
    });
}

#[test]
fn names_of_strangers_stay_text_on_a_narrow_screen_in_the_dark() {
    let place = Place::new();
    let long = "x".repeat(500);
    let names =
        ["<img src=x onerror=\"document.title='owned'\">", "'\"><script>document.title='owned'</script>", "a\u{202e}b"];
    let names = names.into_iter().chain([long.as_str()]);
    let served = held(&place.url(), names.map(str::to_owned), || {
        let served = Served::start(&place, &[]);
        let browser = Browser::start();
        let narrow = json!({ "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true });
        browser.tool("Emulation.setDeviceMetricsOverride", &narrow);
        browser.open(served.address);
        browser.shows("locks", &["<img src=x onerror=", "<script>document", "a\\u{202e}b", &long]);
        browser
            .is("[...document.querySelectorAll('#locks button')].find((b) => b.innerText.startsWith('<img')).click()");
        browser.shows("queue-note", &["<img src=x onerror="]);
        assert_eq!(browser.is("document.querySelectorAll('img, main script').length"), 0);
        assert_eq!(browser.is("document.title"), "fencelock");
        assert_eq!(browser.is("document.documentElement.clientWidth"), 360);
        assert_eq!(browser.is("document.documentElement.scrollWidth"), 360, "nothing to scroll sideways");
        let colour = |of: &str| browser.is(&format!("getComputedStyle(document.body).{of}")).to_string();
        let mut seen = Vec::new();
        for scheme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.tool("Emulation.setEmulatedMedia", &media);
            seen.push((colour("backgroundColor"), colour("color")));
        }
        assert!(seen[0].0 != seen[1].0 && seen[0].1 != seen[1].1, "{seen:?}");
        served
    });
    drop(served);
}

#[test]
fn two_thousand_locks_are_paged_and_filtered() {
    let place = Place::new();
    held(&place.url(), (0..2000).map(|number| format!("job/{number:04}")), || {
        let served = Served::start(&place, &[]);
        let browser = Browser::start();
        browser.open(served.address);
        browser.shows("count", &["1 to 100 of 2000 shown"]);
        browser.is("(() => { const order = document.getElementById('order'); order.value = 'false'; order.dispatchEvent(new Event('change')) })()");
        browser.shows("locks", &["job/0000", "job/0099"]);
        browser.goes_to("Next 100");
        browser.types(ENTER);
        browser.shows("locks", &["job/0100", "job/0199"]);
        browser.is("document.getElementById('filter').focus()");
        browser.types("/199");
        browser.shows("count", &["10 shown"]);
        browser.shows("locks", &["job/1990", "job/1999"]);
    });
}

#[test]
fn an_outage_of_the_store_and_the_end_of_the_server_are_said() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    let browser = Browser::start();
    browser.open(served.address);
    browser.shows("locks", &["job"]);
    server.kill();
    browser.shows("health", &["the store cannot be read since"]);
    server.restart().unwrap();
    browser.shows("health", &["the store answers"]);
    // The server forgot the lock. The page marks the outage as a time that it did not watch.
    until("the loss is drawn", || {
        let loss = browser.is("document.querySelector('#lanes .mark')?.title");
        loss.as_str().is_some_and(|loss| loss.contains("ended while the store did not answer")).then_some(())
    });
    let gaps = browser.is("document.querySelectorAll('#lanes .lane:first-child .unseen').length");
    assert!(gaps.as_u64() >= Some(2), "before the page was opened, and in the outage: {gaps}");
    drop(served);
    browser.shows("health", &["fencelock serve does not answer since"]);
}
