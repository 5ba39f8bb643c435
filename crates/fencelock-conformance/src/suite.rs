//! Runs laws against stores, and holds the excuses to account.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fencelock::inspect::Claim;
use serde::Deserialize;

use crate::fixture::Fixture;
use crate::laws::{Law, Tier, laws};
use crate::world::{BY_CAPABILITY, Fault, NO_PERMITS, NO_SHARED_CLAIMS, NOT_OFFERED, Verdict, World, permits};

/// The excuses of the stores in this repository.
pub const EXCUSED: &str = include_str!("../excused.toml");

/// When a law that never ends counts as broken, in real time: after its own patience.
const HANGS: Duration = Duration::from_secs(600);

/// A law that a store need not keep.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excuse {
    /// The store, as its suite names it.
    pub store: String,
    /// The law's name.
    pub law: String,
    /// Why.
    pub reason: String,
    /// Whether the store breaks the law. Otherwise the law says nothing about it, or cannot be tried on it.
    #[serde(default)]
    pub broken: bool,
    /// Whether chance decides if the store keeps the law: the order of arrival at its server, say.
    #[serde(default)]
    pub chance: bool,
}

/// Reads excuses: a TOML file of `[[excused]]` tables.
///
/// # Errors
/// What is wrong with the file: its syntax, a law that there is not, an excuse given twice, an empty reason.
pub fn read_excuses(text: &str) -> Result<Vec<Excuse>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        excused: Vec<Excuse>,
    }
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    for (index, excuse) in file.excused.iter().enumerate() {
        let Excuse { store, law, reason, .. } = excuse;
        if !laws().iter().any(|known| known.name == law) {
            return Err(format!("there is no law {law}, which {store} is excused from"));
        }
        if reason.trim().is_empty() {
            return Err(format!("{store} is excused from {law} without a reason"));
        }
        if file.excused[..index].iter().any(|other| other.store == *store && other.law == *law) {
            return Err(format!("{store} is excused from {law} twice"));
        }
    }
    Ok(file.excused)
}

/// Tries one law on one empty store, on a runtime of its own. A panic and a hang count as broken. `whole` is the claim that excludes
/// all others: a mutex, a writer, or all permits of a semaphore. The claim changes nothing in laws that are not of exclusive locks.
pub fn run_by(whole: Claim, law: &Law, fixture: Arc<dyn Fixture>, seed: u64) -> Verdict {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Fault::Broken(format!("no runtime: {error}")))?;
        let world = World::new(fixture, seed, whole);
        let verdict = runtime.block_on(async { tokio::time::timeout(HANGS, (law.run)(world)).await });
        runtime.shutdown_background();
        verdict.unwrap_or_else(|_| Err(Fault::Broken(format!("it did not end within {HANGS:?}"))))
    }));
    tried.unwrap_or_else(|_| Err(Fault::Broken("it panicked".to_owned())))
}

/// Tries one law on a store and says what is wrong: a law broken without excuse, or an excuse without need.
///
/// # Errors
/// What is wrong, with the seed that shows it.
pub fn judge(store: &str, law: &str, fixture: Arc<dyn Fixture>, excused: &str, seed: u64) -> Result<(), String> {
    judge_by(Claim::MUTEX, store, law, fixture, excused, seed)
}

/// As [`judge`], where the claim that excludes all others is `whole`. A store need not keep laws of capabilities that it
/// lacks.
pub fn judge_by(
    whole: Claim,
    store: &str,
    law: &str,
    fixture: Arc<dyn Fixture>,
    excused: &str,
    seed: u64,
) -> Result<(), String> {
    let excuse = read_excuses(excused)?.into_iter().find(|excuse| excuse.store == store && excuse.law == law);
    let known = laws().iter().find(|known| known.name == law).ok_or_else(|| format!("there is no law {law}"))?;
    if known.tier() > fixture.tier() {
        let needless = |excuse: Excuse| format!("{law} is beyond what {store} offers, but excused: {}", excuse.reason);
        return excuse.map_or(Ok(()), |excuse| Err(needless(excuse)));
    }
    let offers_less = fixture.tier() < Tier::Break;
    let verdict = run_by(whole, known, fixture, seed);
    match (&verdict, &excuse) {
        (Ok(()), None) => Ok(()),
        (Err(Fault::Inapplicable(why)), None) if BY_CAPABILITY.contains(&&**why) => Ok(()),
        (Err(Fault::Inapplicable(why)), _)
            if whole != Claim::MUTEX && [NO_SHARED_CLAIMS, NO_PERMITS].contains(&&**why) =>
        {
            Ok(())
        }
        (Err(Fault::Broken(why)), None) if offers_less && why.contains(NOT_OFFERED) => Ok(()),
        (Err(Fault::Broken(_)), Some(excuse)) if excuse.broken || excuse.chance => Ok(()),
        (Err(Fault::Inapplicable(_)), Some(excuse)) if !excuse.broken && !excuse.chance => Ok(()),
        (Ok(()), Some(excuse)) if excuse.chance => Ok(()),
        (Ok(()), Some(excuse)) => Err(format!("{law} is kept, but excused: {}", excuse.reason)),
        (Err(fault), Some(excuse)) => Err(format!("{law} is {fault}; that is not the excuse: {}", excuse.reason)),
        (Err(fault), None) => Err(format!("{law} is {fault} (again: FENCELOCK_SEED={seed})")),
    }
}

/// The seed of this run: `FENCELOCK_SEED`, or a new one every time.
#[must_use]
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let given = std::env::var("FENCELOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(0) >> 1)
}

/// The claims that exclude all others: a mutex's, a writer's, and that of all permits of a semaphore.
#[must_use]
pub fn wholes() -> [Claim; 3] {
    [Claim::MUTEX, Claim::WRITER, permits(3, 3)]
}

/// A `#[test]` for every law. A law of exclusive locks has two more, with a writer and with a holder of all permits in
/// place of the mutex: `suite!("name of the store", factory)`, where `factory()` makes a [`Fixture`].
///
/// The name finds the store's excuses; the store's own file of excuses may be given as `, excused = text`. With `, only = mutexes`
/// or `, only = mutexes_and_writers` less stands for the mutex, where the rest is shown already. A last `, laws = untimed` or `,
/// laws = timed` leaves the other laws out: laws that judge real time, or load a server, and laws that do not.
///
/// ```no_run
/// # struct Mine;
/// # impl fencelock_conformance::Fixture for Mine {
/// #     fn process(&self) -> futures_core::future::BoxFuture<'_, fencelock::Result<fencelock_conformance::Process>> {
/// #         Box::pin(std::future::pending())
/// #     }
/// # }
/// fencelock_conformance::suite!("mine", || Mine, excused = "");
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! suite {
    ($store:expr, $factory:expr) => {
        $crate::suite!($store, $factory, excused = $crate::EXCUSED);
    };
    ($store:expr, $factory:expr, excused = $excused:expr) => {
        $crate::with_laws!(__law_tests(every, $store, $factory, $excused, all));
    };
    ($store:expr, $factory:expr, only = $wholes:ident) => {
        $crate::with_laws!(__law_tests(every, $store, $factory, $crate::EXCUSED, $wholes));
    };
    ($store:expr, $factory:expr, only = $wholes:ident, laws = $laws:ident) => {
        $crate::with_laws!(__law_tests($laws, $store, $factory, $crate::EXCUSED, $wholes));
    };
    ($store:expr, $factory:expr, laws = $laws:ident) => {
        $crate::with_laws!(__law_tests($laws, $store, $factory, $crate::EXCUSED, all));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law_tests {
    ((every, $($suite:tt)*) [$($a:tt)*] [$($b:tt)*] [$($c:tt)*] [$($d:tt)*]) => {
        $crate::__law_tests!(of ($($suite)*) [$($a)* $($c)*] [$($b)* $($d)*]);
    };
    ((untimed, $($suite:tt)*) $a:tt $b:tt $c:tt $d:tt) => {
        $crate::__law_tests!(of ($($suite)*) $a $b);
    };
    ((timed, $($suite:tt)*) $a:tt $b:tt $c:tt $d:tt) => {
        $crate::__law_tests!(of ($($suite)*) $c $d);
    };
    (
        of ($store:expr, $factory:expr, $excused:expr, $wholes:ident)
        [$($exclusive:ident :: $law:ident,)*] [$($group:ident :: $other:ident,)*]
    ) => {
        /// Tries a law by a claim to the whole of a lock.
        fn keeps(law: &str, whole: usize) {
            let (whole, fixture) = ($crate::wholes()[whole], ::std::sync::Arc::new(($factory)()));
            let judged = $crate::judge_by(whole, $store, law, fixture, $excused, $crate::seed());
            judged.unwrap_or_else(|wrong| panic!("{}, by {whole}: {wrong}", $store));
        }

        $crate::__law_tests!(by keeps, 0, $($law)* $($other)*);
        $crate::__law_tests!($wholes $($law)*);
    };
    (mutexes $($law:ident)*) => {};
    (mutexes_and_writers $($law:ident)*) => {
        mod by_a_writer {
            $crate::__law_tests!(by super::keeps, 1, $($law)*);
        }
    };
    (all $($law:ident)*) => {
        $crate::__law_tests!(mutexes_and_writers $($law)*);

        mod by_all_permits {
            $crate::__law_tests!(by super::keeps, 2, $($law)*);
        }
    };
    (by $keeps:path, $whole:literal, $($law:ident)*) => {
        $(
            #[test]
            fn $law() {
                $keeps(stringify!($law), $whole);
            }
        )*
    };
}
