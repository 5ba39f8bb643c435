//! The limits of ZooKeeper, reached on purpose: numbers that end, and nodes with too many children.

use std::io;
use std::time::Duration;

use fencelock_testbed::zookeeper::Ensemble;
use fencelock_testbed::{PATIENCE, wait_until};
use fencelock_zookeeper::{Acl, Client, Config, CreateMode, ErrorKind};
use tokio::runtime::Runtime;

/// The last number that the store grants: a million before they end.
const LAST_GRANTED: i32 = i32::MAX - 1_000_000;

/// How many grants are left when not all numbers are used up.
const A_FEW: i32 = 60;

/// Strangers of 500 bytes each that do not fit into a mebibyte.
const STRANGERS: usize = 2_200;

/// A client that does by hand what fencelock refuses.
#[derive(Debug)]
pub(super) struct Hands {
    client: Client,
    runtime: Runtime,
}

impl Hands {
    pub(super) fn new(ensemble: &Ensemble) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let config = Config::new(&ensemble.connect_string()).map_err(io::Error::other)?;
        let config = config.session_timeout(Duration::from_secs(60));
        let (client, _events) = runtime.block_on(Client::connect(config)).map_err(io::Error::other)?;
        Ok(Self { client, runtime })
    }

    /// The paths of the locks under `parent`.
    fn locks(&self, parent: &str) -> io::Result<Vec<String>> {
        Ok(self.children(parent)?.into_iter().map(|lock| format!("{parent}/{lock}")).collect())
    }

    fn children(&self, path: &str) -> io::Result<Vec<String>> {
        match self.runtime.block_on(self.client.get_children(path)) {
            Ok((children, _)) => Ok(children),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(Vec::new()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Writes `count` times; returns the first transaction.
    pub(super) fn pass_transactions(&self, count: usize) -> io::Result<i64> {
        const PATH: &str = "/fencelock-testbed-passes";
        let created = self.runtime.block_on(self.client.create(PATH, b"", CreateMode::Persistent, &[Acl::open()]));
        if let Err(error) = created
            && error.kind() != ErrorKind::NodeExists
        {
            return Err(io::Error::other(error));
        }
        // Each request goes out when it is made.
        let written: Vec<_> = (0..count).map(|_| self.client.set_data(PATH, b"", None)).collect();
        let mut first = None;
        for written in written {
            let stat = self.runtime.block_on(written).map_err(io::Error::other)?;
            first.get_or_insert(stat.mzxid);
        }
        Ok(first.unwrap_or_default())
    }

    /// Puts more into the queue `lock` than fits into an answer.
    fn fill(&self, lock: &str) -> io::Result<()> {
        let stranger =
            |number| self.client.create(&format!("{lock}/{number:0>500}"), b"", CreateMode::Ephemeral, &[Acl::open()]);
        // Each request goes out when it is made; a few at a time, for a busy server hangs up on too many.
        for some in (0..STRANGERS).collect::<Vec<_>>().chunks(200) {
            for made in some.iter().map(stranger).collect::<Vec<_>>() {
                self.runtime.block_on(made).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Goes, and everything that it put anywhere with it.
    pub(super) fn leave(self) -> io::Result<()> {
        self.runtime.block_on(self.client.close()).map_err(io::Error::other)
    }
}

/// Puts more into every queue under `parent` than fits into an answer. Each queue gets a session of its own: a server whose
/// log has a session's end with more than two mebibytes of node names does not start again (ZOOKEEPER-4306).
pub(super) fn overflow_queues(ensemble: &Ensemble, parent: &str) -> io::Result<Vec<Hands>> {
    let hands = Hands::new(ensemble)?;
    let locks = hands.locks(parent)?;
    hands.leave()?;
    let fill = |lock: &String| {
        let hands = Hands::new(ensemble)?;
        hands.fill(lock)?;
        Ok(hands)
    };
    locks.iter().map(fill).collect()
}

/// Sets the numbers of all queues under `parent` so that all are used up, or a few are left.
pub(super) fn end_numbers(ensemble: &Ensemble, parent: &str, random: u64) -> io::Result<()> {
    let next = if random.is_multiple_of(2) { i32::MAX - 1 } else { LAST_GRANTED - A_FEW };
    set_numbers(ensemble, parent, next)
}

/// Lets the numbers of all queues under `parent` begin anew, once every contender from before their end has left: a later
/// one is refused.
pub(super) fn begin_numbers(ensemble: &Ensemble, parent: &str) -> io::Result<()> {
    set_numbers(ensemble, parent, i32::MAX - 1)?;
    let hands = Hands::new(ensemble)?;
    let number = |child: &String| child.rsplit('-').next()?.parse::<i64>().ok();
    let is_early = |child: &String| number(child).is_some_and(|number| number <= LAST_GRANTED.into());
    let mut early = Ok(true);
    let is_over = wait_until(PATIENCE, || {
        let locks = hands.locks(parent).and_then(|locks| locks.iter().map(|lock| hands.children(lock)).collect());
        early = locks.map(|children: Vec<_>| children.iter().flatten().any(is_early));
        !matches!(early, Ok(true))
    });
    early?;
    hands.leave()?;
    match is_over {
        true => set_numbers(ensemble, parent, 0),
        false => Err(io::Error::other("who came before the end of the numbers does not leave")),
    }
}

fn set_numbers(ensemble: &Ensemble, parent: &str, next: i32) -> io::Result<()> {
    let hands = Hands::new(ensemble)?;
    let locks = hands.locks(parent)?;
    hands.leave()?;
    ensemble.server(0).set_sequence(&locks, next)
}
