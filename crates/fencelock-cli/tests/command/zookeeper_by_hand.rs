//! The drill of `docs/zookeeper-by-hand.md` with ZooKeeper's own command: what stands there is what runs here.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{PROGRAM, Place, Running, code, output, stderr, stdout, until, written};
use fencelock_testbed::ZOOKEEPER_COMMAND;
use fencelock_testbed::zookeeper::shared;

const PAGE: &str = include_str!("../../../../docs/zookeeper-by-hand.md");

/// The page's commands, for the server and the parent of one test.
struct Page {
    place: Place,
    parent: String,
    blocks: std::vec::IntoIter<(&'static str, String)>,
}

impl Page {
    fn open() -> Self {
        let (server, parent) = (shared().address().to_string(), shared().namespace());
        let blocks = PAGE.split("\n```").skip(1).step_by(2).map(|block| {
            let (kind, commands) = block.split_once('\n').unwrap();
            // A session that no slowness of a test ends.
            let store = format!("zk://{server}{parent}?tick_ms=500&ttl_ms=60000");
            let commands = match kind {
                "sh" => commands.replace("zk://localhost:2181/locks", &format!("'{store}'")),
                _ => commands.to_owned(),
            };
            (kind, commands.replace("localhost:2181", &server).replace("/locks", &parent))
        });
        let blocks = blocks.collect::<Vec<_>>().into_iter();
        Self { place: Place::with_store(format!("zk://{server}{parent}")), parent, blocks }
    }

    fn next(&mut self, kind: &str) -> String {
        let (found, commands) = self.blocks.next().expect("another block on the page");
        assert_eq!(found, kind, "{commands}");
        commands
    }

    /// The next commands for a shell, which finds `fencelock` as a user's does.
    fn shell(&mut self) -> Command {
        let found = std::env::var("PATH").unwrap();
        let mut shell = Command::new("env");
        shell.args(["--default-signal", "sh", "-c", &self.next("sh")]).stdin(Stdio::null());
        shell.env("PATH", format!("{}:{found}", Path::new(PROGRAM).parent().unwrap().display()));
        shell
    }
}

/// `zkCli.sh` at which somebody types. It ends when nobody does any more.
struct Typed {
    running: Running,
    said: std::path::PathBuf,
}

impl Typed {
    fn start(page: &mut Page) -> Self {
        let said = page.place.path("said");
        let file = File::create(&said).unwrap();
        let mut shell = page.shell();
        shell.stdin(Stdio::piped()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { running: Running::start(&mut shell), said }
    }

    fn says(&self, what: &str) {
        let said = || std::fs::read_to_string(&self.said).unwrap();
        until(&format!("zkCli.sh says {what:?}"), || said().contains(what).then_some(()));
    }

    fn types(&mut self, commands: &str) {
        self.running.0.as_mut().unwrap().stdin.as_mut().unwrap().write_all(commands.as_bytes()).unwrap();
        self.running.0.as_mut().unwrap().stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

#[test]
fn what_the_page_about_zookeeper_by_hand_says_comes_about() {
    ZOOKEEPER_COMMAND.require();
    let mut page = Page::open();
    let parent = page.parent.clone();
    let mut first = Typed::start(&mut page);
    first.types(&page.next("zkcli"));
    first.says(&format!("Created {parent}/job/lock-0000000000"));

    let tried = output(&mut page.shell());
    let (table, said) = (stdout(&tried), stderr(&tried));
    assert_eq!(code(&tried), 75, "{said}");
    assert!(table.lines().count() == 3 && table.contains("holder") && table.contains("by-hand"), "{table}");
    assert!(said.contains("held by an unknown owner") && said.contains(r#"purpose "by-hand""#), "{said}");

    let told = page.place.path("told");
    let waiting = Running::start(page.shell().stdout(Stdio::piped()).stderr(File::create(&told).unwrap()));
    page.place.queued("job", 2);
    let told = written(&told);
    assert!(told.contains("waiting for job in zk://") && told.contains("held by an unknown owner"), "{told}");
    first.types(&page.next("zkcli"));
    let went_on = waiting.end();
    assert_eq!((code(&went_on), stdout(&went_on).as_str()), (0, "mine now\n"));

    let mut holder = Running::start(page.shell().stdin(Stdio::piped()));
    page.place.queued("job", 1);
    first.types(&page.next("zkcli"));
    page.place.queued("job", 2);
    first.says("-lock-0000000003, lock-0000000004]");
    let shown = stdout(&output(&mut page.shell()));
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[1].contains("holder") && lines[1].contains("backup"), "{shown}");
    assert!(lines[2].contains("waits or holds too") && lines[2].contains("by-hand"), "{shown}");
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert_eq!(holder.code(), 0);
    first.says("NodeChildrenChanged");
    let contenders = page.place.contenders("job");
    assert_eq!((contenders.len(), &contenders[0]["state"]), (1, &"holder".into()));
    assert!(page.blocks.next().is_none(), "every command of the page is played");
}
