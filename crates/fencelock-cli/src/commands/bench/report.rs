//! The figures of one drill as a page: a single file, which needs no script and fetches nothing.

use std::fmt::Write as _;

use super::figures::{self, Figures, hand_overs};
use super::log::Section;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 70.0;
const BELOW: f64 = 34.0;

const MOST_BARS: usize = 200;

const SPANS: u64 = 50;

const STYLE: &str = "\
:root { color-scheme: light dark; --back: #fff; --ink: #222; --dim: #777; --line: #ddd; --bar: #2a6fb0; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --ink: #e4e4e4; --dim: #999; --line: #3a3d44; --bar: #6aa9e6; } }
body { font: 15px/1.45 sans-serif; background: var(--back); color: var(--ink); max-width: 760px; margin: 2em auto; padding: 0 1em; }
pre { overflow-x: auto; } figure { margin: 2em 0; } figcaption { margin-bottom: .5em; } small { color: var(--dim); }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font: 11px sans-serif; }
svg line { stroke: var(--line); } svg rect { fill: var(--bar); }
";

type Bar = (String, f64);

pub(super) fn page(store: &str, figures: &Figures, sections: &[Section]) -> String {
    let cycles = sections.iter().map(|section| section.releasing - section.asked);
    let plots = [
        plot("Throughput", "sections per second, from the first grant to the last release", "s", &throughput(sections)),
        plot("Cycle", "sections, by the time from the call to just before the release", "", &histogram(cycles)),
        plot(
            "Hand-over",
            "grants, by the time from just before a release to the grant of who waited",
            "",
            &histogram(hand_overs(sections).into_iter()),
        ),
        plot("Fairness", "sections of each worker", "worker", &served(&figures::served(sections, figures.workers()))),
    ];
    let store = text(store);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>fencelock bench: {store}</title>\n<style>\n{STYLE}</style>\n<h1>fencelock bench</h1>\n\
         <p>{store}<br><small>fencelock {}</small></p>\n<pre>{}</pre>\n{}</html>\n",
        env!("CARGO_PKG_VERSION"),
        text(&figures.to_string()),
        plots.concat()
    )
}

/// `given` as text of a page, with all markup escaped.
fn text(given: &str) -> String {
    given.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn throughput(sections: &[Section]) -> Vec<Bar> {
    let first = sections.iter().map(|section| section.granted).min().unwrap_or_default();
    let last = sections.iter().map(|section| section.releasing).max().unwrap_or_default();
    let span = ((last - first) / SPANS).max(1);
    let mut counts = [0_u64; SPANS as usize];
    for section in sections {
        counts[((section.releasing - first) / span).min(SPANS - 1) as usize] += 1;
    }
    let seconds = span as f64 / 1e9;
    let bar = |(at, count): (usize, &u64)| (format!("{:.1}", at as f64 * seconds), *count as f64 / seconds);
    if sections.is_empty() { Vec::new() } else { counts.iter().enumerate().map(bar).collect() }
}

/// How many of `nanos` are in each span of the row 1, 2, 5, 10 µs and so on. Empty spans at both ends are left out.
fn histogram(nanos: impl Iterator<Item = u64>) -> Vec<Bar> {
    let bounds: Vec<u64> = (0..8).flat_map(|ten| [1, 2, 5].map(|digit| digit * 10_u64.pow(ten) * 1_000)).collect();
    let mut counts = vec![0_u64; bounds.len() + 1];
    nanos.for_each(|nanos| counts[bounds.partition_point(|bound| *bound <= nanos)] += 1);
    let bars = counts.iter().enumerate().map(|(at, count)| {
        let label = bounds.get(at).map_or_else(|| "more".to_owned(), |bound| format!("< {}", time(*bound)));
        (label, *count as f64)
    });
    let mut bars: Vec<Bar> = bars.skip_while(|(_, count)| *count == 0.0).collect();
    while bars.last().is_some_and(|(_, count)| *count == 0.0) {
        bars.pop();
    }
    bars
}

fn time(nanos: u64) -> String {
    match nanos {
        1_000_000_000.. => format!("{} s", nanos / 1_000_000_000),
        1_000_000.. => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} µs", nanos / 1_000),
    }
}

/// The sections of each worker. With many workers, a bar is the average of several neighbours.
fn served(counts: &[u64]) -> Vec<Bar> {
    let together = counts.len().div_ceil(MOST_BARS).max(1);
    let mean = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let bars = counts.chunks(together).enumerate();
    bars.map(|(at, counts)| ((at * together).to_string(), mean(counts))).collect()
}

fn plot(title: &str, about: &str, unit: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut drawn = String::new();
    for share in [0.0, 0.5, 1.0] {
        let y = 8.0 + HEIGHT * (1.0 - share);
        let _ = writeln!(drawn, "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>", LEFT + WIDTH);
        let (x, base, value) = (LEFT - 6.0, y + 4.0, number(most * share));
        let _ = writeln!(drawn, "<text x=\"{x}\" y=\"{base}\" text-anchor=\"end\">{value}</text>");
    }
    let wide = WIDTH / bars.len().max(1) as f64;
    // The numbers on the axis, as many as fit.
    let each = bars.len().div_ceil(12).max(1);
    for (at, (label, value)) in bars.iter().enumerate() {
        let x = LEFT + wide * at as f64;
        let high = if most > 0.0 { HEIGHT * value / most } else { 0.0 };
        let (y, bar, label) = (8.0 + HEIGHT - high, (wide * 0.86).max(0.5), text(label));
        let _ = writeln!(
            drawn,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{high:.1}\"><title>{label} {unit}: {}</title></rect>",
            number(*value)
        );
        if at % each == 0 {
            let (middle, base) = (x + bar / 2.0, HEIGHT + 24.0);
            let _ = writeln!(drawn, "<text x=\"{middle:.1}\" y=\"{base}\" text-anchor=\"middle\">{label}</text>");
        }
    }
    let (whole, high) = (LEFT + WIDTH + 10.0, HEIGHT + BELOW);
    let empty = if bars.is_empty() { " (none)" } else { "" };
    format!(
        "<figure><figcaption><b>{title}</b> <small>{about}{empty}</small></figcaption>\n\
         <svg viewBox=\"0 0 {whole} {high}\" role=\"img\" aria-label=\"{title}: {about}\">\n{drawn}</svg></figure>\n"
    )
}

fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_begins_and_ends_where_something_is() {
        let bars = histogram([3_000, 4_999, 5_000, 30_000].into_iter());
        let expected = [("< 5 µs", 2.0), ("< 10 µs", 1.0), ("< 20 µs", 0.0), ("< 50 µs", 1.0)];
        assert_eq!(bars, expected.map(|(label, count)| (label.to_owned(), count)));
        assert_eq!(histogram([u64::MAX].into_iter()), [("more".to_owned(), 1.0)]);
    }

    #[test]
    fn every_section_is_in_one_span_of_the_throughput() {
        let section = |at| Section { worker: 0, asked: at, granted: at, releasing: at + 1_000, token: 1 };
        let sections: Vec<_> = (0..1_000).map(|number| section(number * 1_000_000)).collect();
        let bars = throughput(&sections);
        let whole: f64 = bars.iter().map(|(_, rate)| rate).sum();
        assert!((whole / bars.len() as f64 - 1_000.0).abs() < 20.0, "{whole}");
        assert!(throughput(&[]).is_empty());
    }

    #[test]
    fn many_workers_share_bars() {
        let bars = served(&[0; 1_000]);
        assert_eq!((bars.len(), bars[1].0.as_str()), (200, "5"));
    }

    #[test]
    fn nothing_that_a_store_is_called_is_obeyed() {
        assert_eq!(text("<script>&\""), "&lt;script&gt;&amp;&quot;");
    }
}
