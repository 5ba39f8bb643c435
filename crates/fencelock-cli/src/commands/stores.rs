//! `fencelock stores`: which stores this program knows, and what each promises.

use clap::Args;
use fencelock::store::{Liveness, Order, StoreInfo, Tokens, stores};
use serde::Serialize;

use crate::say::Outcome;
use crate::show::{print_json, print_table};

/// List the stores that this program knows, and what each promises.
///
/// With --json: an array of objects with `scheme`, `example`, `options` (of its URL, besides those that every store
/// takes), `feature`, `compiled_in`, and `capability` (null when it is not compiled in) with `layout`, `liveness`,
/// `order`, `tokens`, `certainty`, `shared_claims`, `detection_slack_ms`, `wake_bound_ms` and `residue`.
#[derive(Debug, Args)]
pub(crate) struct Stores {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Stores {
    pub(super) fn run(&self) -> Outcome<u8> {
        let mut known: Vec<_> = stores().iter().map(Known::new).collect();
        known.sort_by_key(|store| store.scheme);
        if self.json {
            print_json(&known)?;
        } else {
            let heads = ["URL", "LAYOUT", "LIVENESS", "ORDER", "TOKENS", "SHARED", "WOKEN WITHIN", "OPTIONS"];
            print_table(&heads, known.iter().map(Known::row))?;
        }
        Ok(0)
    }
}

#[derive(Serialize)]
struct Known {
    scheme: &'static str,
    example: &'static str,
    options: &'static [&'static str],
    feature: &'static str,
    compiled_in: bool,
    capability: Option<Promises>,
}

#[derive(Serialize)]
struct Promises {
    layout: &'static str,
    liveness: &'static str,
    order: &'static str,
    tokens: &'static str,
    certainty: &'static str,
    shared_claims: bool,
    detection_slack_ms: u64,
    wake_bound_ms: u64,
    residue: &'static str,
}

impl Known {
    fn new(info: &StoreInfo) -> Self {
        let capability = info.capability.map(|capability| {
            let capability = capability();
            let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            Promises {
                layout: capability.layout,
                liveness: liveness(capability.liveness),
                order: order(capability.order),
                tokens: tokens(capability.tokens),
                certainty: capability.certainty,
                shared_claims: capability.shared_claims,
                detection_slack_ms: ms(capability.detection_slack),
                wake_bound_ms: ms(capability.wake_bound),
                residue: capability.residue,
            }
        });
        Self {
            scheme: info.scheme,
            example: info.example,
            options: info.options,
            feature: info.feature,
            compiled_in: capability.is_some(),
            capability,
        }
    }

    fn row(&self) -> Vec<String> {
        let Some(promises) = &self.capability else {
            return vec![self.example.to_owned(), format!("not compiled in (feature {})", self.feature)];
        };
        vec![
            self.example.to_owned(),
            promises.layout.to_owned(),
            promises.liveness.to_owned(),
            promises.order.to_owned(),
            promises.tokens.to_owned(),
            if promises.shared_claims { "yes" } else { "no" }.to_owned(),
            format!("{} ms", promises.wake_bound_ms),
            self.options.join(" "),
        ]
    }
}

fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Process => "process",
        Liveness::Session => "session",
        Liveness::Lease => "lease",
        Liveness::Memory => "memory",
        _ => "other",
    }
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Fifo => "first come, first served",
        Order::None => "none",
        _ => "other",
    }
}

fn tokens(tokens: Tokens) -> &'static str {
    match tokens {
        Tokens::ClockFlooredCounter => "counter, floored by the clock",
        Tokens::CommitNumber => "commit number",
        Tokens::None => "none",
        _ => "other",
    }
}
