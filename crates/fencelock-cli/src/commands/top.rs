//! `fencelock top`: the locks of a store on a terminal, as they change.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Row, Table, TableState};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::StoreArguments;
use super::watch::classes::Classes;
use super::watch::look::{self, Looked, Seen, Watch};
use crate::arguments;
use crate::output::{Failure, Outcome, code, harmless};
use crate::show::{QUEUE_HEADS, print, print_table};
use crate::times;

const RATED: Duration = Duration::from_secs(10);

const HEADS: [&str; 7] = ["NAME", "WAITING", "HELD FOR", "HELD AS", "HOLDER", "PURPOSE", "STORE"];

/// Show the locks of the store as they change, the most waited for first.
///
/// The store is looked at once per --every. Keys: the arrows and Page Up, Page Down, Home choose a lock, Enter shows its queue, Esc the
/// list again; q or Ctrl-C ends it.
/// Without a terminal, give --once.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store, conflicts_with = "store")]
    url: Option<String>,
    /// Only names that start with this.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// How long to rest between two looks at the store.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = arguments::duration)]
    every: Duration,
    /// Print the list once, as text.
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        if !(self.once || io::stdout().is_terminal() && io::stdin().is_terminal()) {
            return Err(Failure::new(code::USAGE, "this is no terminal: give --once to print the list"));
        }
        let stores = store.or_named(self.url.as_ref()).choose_every()?;
        let (sender, seen) = watch::channel(Seen::nothing(&stores).await?);
        let looks = tokio::spawn(Watch::all(stores, (self.prefix.clone(), Classes::new(&[]), self.every), sender));
        let last = seen.clone();
        let ended = if self.once { once(seen).await } else { on_a_terminal(seen).await };
        looks.abort();
        let last = last.borrow().clone();
        Seen::close(&last, ended.is_err()).await;
        ended.map(|()| 0)
    }
}

async fn once(mut seen: watch::Receiver<Vec<Seen>>) -> Outcome<()> {
    let seen = seen.wait_for(|seen| seen.iter().all(|seen| seen.at.is_some())).await.map(|seen| seen.clone());
    let seen = seen.map_err(|_| Failure::new(code::SOFTWARE, "the reader of the store has ended"))?;
    let failed = seen.iter().find_map(|seen| seen.error.as_ref());
    let failed = failed.map(|error| Failure::new(code::UNAVAILABLE, error.to_string()));
    if count(&seen) == 0
        && let Some(failure) = failed
    {
        return Err(failure);
    }
    let shown = columns(&seen);
    let rows = sorted(&seen).into_iter().map(|(lock, now)| cells(lock, now, lock.row.waiting.to_string()));
    print_table(&HEADS[..shown], rows.map(|cells| cells[..shown].to_vec()))?;
    print(&format!("{}\n", summary(&seen, None)))?;
    failed.map_or(Ok(()), Err)
}

/// How many columns there are: the store is shown where there are several.
fn columns(seen: &[Seen]) -> usize {
    HEADS.len() - usize::from(seen.len() == 1)
}

/// Shows each look until the user ends it.
async fn on_a_terminal(mut seen: watch::Receiver<Vec<Seen>>) -> Outcome<()> {
    let failed = |error: io::Error| Failure::os("cannot use this terminal", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let (mut keys, mut view) = (keys(), View::default());
    let ended = loop {
        let now = seen.borrow_and_update().clone();
        view.count(&now);
        if let Err(error) = terminal.draw(|frame| view.draw(frame, &now)) {
            break Err(failed(error));
        }
        tokio::select! {
            changed = seen.changed() => match changed {
                Ok(()) => {}
                Err(_) => break Err(Failure::new(code::SOFTWARE, "the reader of the store has ended")),
            },
            key = keys.recv() => match key {
                Some(Event::Key(key)) if ends(key, view.open.is_some()) => break Ok(()),
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => view.pressed(key.code, &now),
                Some(_) => {}
                // The terminal is gone.
                None => break Ok(()),
            },
            _ = terminate.recv() => break Ok(()),
        }
    };
    ratatui::restore();
    ended
}

/// The keys. The thread that reads them stays until the process ends.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    keys
}

fn ends(key: KeyEvent, has_queue: bool) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || key.code == KeyCode::Char('q') || key.code == KeyCode::Esc && !has_queue
}

fn count(seen: &[Seen]) -> usize {
    seen.iter().map(|seen| seen.locks.len()).sum()
}

/// The locks with the most waiters first, then the oldest; each with the time of its look, by its store's clock.
fn sorted(seen: &[Seen]) -> Vec<(&Looked, Option<SystemTime>)> {
    let mut locks: Vec<_> = seen.iter().flat_map(|seen| seen.locks.iter().map(|lock| (lock, seen.clock))).collect();
    locks.sort_by_cached_key(|(lock, _)| lock.urgency());
    locks
}

fn cells(lock: &Looked, now: Option<SystemTime>, waiters: String) -> [String; HEADS.len()] {
    let look::Row { name, store, held_as, holders, holder, purpose, error, .. } = &lock.row;
    let others = if *holders > 1 { format!(" and {} more", holders - 1) } else { String::new() };
    let holder = holder.as_ref().map_or_else(|| "-".to_owned(), |holder| format!("{holder}{others}"));
    let age = lock.oldest_hold.and_then(|since| now?.duration_since(since).ok());
    let age = age.map_or_else(|| "-".to_owned(), |age| span(age.as_secs()));
    let why = error.clone().or_else(|| purpose.clone()).unwrap_or_default();
    [name.clone(), waiters, age, held_as.clone(), holder, why, store.clone()].map(|cell| harmless(&cell, false))
}

/// The number of waiters with a bar of at most five characters, which is full at `full` waiters, ten or more.
fn bar(waiting: usize, full: usize) -> String {
    format!("{waiting:>3} {}", "█".repeat((waiting * 5).div_ceil(full).min(5)))
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The sums, and how many grants there are in a second where that is known.
fn summary(seen: &[Seen], rate: Option<f64>) -> String {
    let sum = |of: fn(&Looked) -> usize| -> usize { seen.iter().flat_map(|seen| seen.locks.iter()).map(of).sum() };
    let (holders, waiting) = (sum(|lock| lock.row.holders), sum(|lock| lock.row.waiting));
    let left_out: usize = seen.iter().map(|seen| seen.left_out).sum();
    let rate = rate.map_or_else(String::new, |rate| format!(", {rate:.1} grants/s"));
    let more = if left_out > 0 { format!(", {left_out} more are not looked at") } else { String::new() };
    format!("{} locks, {holders} holders, {waiting} waiting{rate}{more}", count(seen))
}

#[derive(Default)]
struct View {
    /// How many rows are above the screen, and which row is chosen.
    skipped: usize,
    at: usize,
    /// The store and the name of the lock whose queue is shown.
    open: Option<(String, String)>,
    rows: usize,
    granted: VecDeque<(Instant, u64)>,
}

impl View {
    fn count(&mut self, seen: &[Seen]) {
        let now = Instant::now();
        self.granted.push_back((now, seen.iter().map(|seen| seen.grants.granted()).sum()));
        while self.granted.front().is_some_and(|(then, _)| now.duration_since(*then) > RATED) {
            self.granted.pop_front();
        }
    }

    fn rate(&self) -> Option<f64> {
        let ((first, before), (last, after)) = (self.granted.front()?, self.granted.back()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "no store counts so many grants in ten seconds")]
        (seconds > 0.5).then(|| (after - before) as f64 / seconds)
    }

    fn pressed(&mut self, key: KeyCode, seen: &[Seen]) {
        self.at = match key {
            KeyCode::Down => self.at + 1,
            KeyCode::Up => self.at.saturating_sub(1),
            KeyCode::PageDown => self.at + self.rows,
            KeyCode::PageUp => self.at.saturating_sub(self.rows),
            KeyCode::Home => 0,
            _ => self.at,
        };
        self.at = self.at.min(count(seen).saturating_sub(1));
        match key {
            KeyCode::Esc => self.open = None,
            KeyCode::Enter => {
                let chosen = sorted(seen).into_iter().nth(self.at);
                self.open = chosen.map(|(lock, _)| (lock.row.store.clone(), lock.row.name.clone()));
            }
            _ => {}
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, seen: &[Seen]) {
        let stores = Constraint::Length(u16::try_from(seen.len()).unwrap_or(u16::MAX));
        let hints = Constraint::Length(u16::from(frame.area().height > 7));
        let [head, sums, list, keys] =
            Layout::vertical([stores, Constraint::Length(1), Constraint::Min(0), hints]).areas(frame.area());
        let time = times::to_second;
        let lines = seen.iter().map(|seen| {
            let state = match (&seen.error, seen.since, seen.at) {
                (_, _, None) => "not looked at yet".to_owned(),
                (Some(error), Some(since), _) => format!("cannot be read since {}: {error}", time(since)),
                (..) => format!("answers in {} ms", seen.took.as_millis()),
            };
            let style = if seen.error.is_some() { Style::new().reversed() } else { Style::new().bold() };
            Line::styled(harmless(&format!("{}: {state}", seen.store), false), style)
        });
        frame.render_widget(Text::from_iter(lines), head);
        self.rows = usize::from(list.height.saturating_sub(1));
        if let Some((store, name)) = &self.open {
            let locks = seen.iter().filter(|seen| *seen.store == **store).flat_map(|seen| seen.locks.iter());
            let whole = locks.filter(|lock| lock.row.name == *name).find_map(|lock| lock.whole.as_ref());
            let queued = whole.map_or(0, |whole| whole.queued);
            frame.render_widget(Line::raw(harmless(&format!("{name}: {queued} in the queue"), false)), sums);
            frame.render_widget(Line::raw("Esc: all locks   q: quit"), keys);
            let contenders = whole.iter().flat_map(|whole| &whole.contenders).take(self.rows);
            let rows = contenders.map(|one| one.row().iter().map(|cell| harmless(cell, false)).collect()).collect();
            frame.render_widget(fitted(&QUEUE_HEADS, rows, list.width), list);
            return;
        }
        frame.render_widget(Line::raw(summary(seen, self.rate())), sums);
        frame.render_widget(Line::raw("Up, Down, Page Up, Page Down, Home: choose   Enter: its queue   q: quit"), keys);
        self.at = self.at.min(count(seen).saturating_sub(1));
        self.skipped = self.skipped.clamp((self.at + 1).saturating_sub(self.rows), self.at);
        let full = seen.iter().flat_map(|seen| seen.locks.iter()).map(|lock| lock.row.waiting).fold(10, usize::max);
        let locks = sorted(seen).into_iter().skip(self.skipped).take(self.rows);
        let rows = locks.map(|(lock, now)| cells(lock, now, bar(lock.row.waiting, full)).to_vec()).collect();
        let table = fitted(&HEADS[..columns(seen)], rows, list.width).row_highlight_style(Style::new().reversed());
        let mut chosen = TableState::default().with_selected(Some(self.at - self.skipped));
        frame.render_stateful_widget(table, list, &mut chosen);
    }
}

/// A table with as many columns as have room: the first gets the width that it needs, and the other columns share the rest.
fn fitted<'a>(heads: &[&'a str], rows: Vec<Vec<String>>, width: u16) -> Table<'a> {
    let (mut left, mut widths) = (width, Vec::new());
    for (at, head) in heads.iter().enumerate() {
        let longest = rows.iter().map(|row| row[at].chars().count()).chain([head.len()]).max().unwrap_or_default();
        let room = if at == 0 { left.saturating_sub(8) } else { left };
        let wide = u16::try_from(longest).unwrap_or(u16::MAX).min(room);
        if at > 1 && usize::from(wide) < longest.min(10) {
            break;
        }
        widths.push(Constraint::Length(wide));
        left = left.saturating_sub(wide + 1);
    }
    let count = widths.len();
    let rows = rows.into_iter().map(|row| Row::new(row.into_iter().take(count)));
    Table::new(rows, widths).header(Row::new(heads.iter().copied().take(count)).bold())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_longer_for_more_waiters_and_never_longer_than_its_column() {
        let bars = [0, 1, 3, 10, 30].map(|waiting| bar(waiting, 30));
        assert_eq!(bars, ["  0 ", "  1 █", "  3 █", " 10 ██", " 30 █████"]);
        assert_eq!([bar(1, 10), bar(10, 10)], ["  1 █", " 10 █████"]);
    }
}
