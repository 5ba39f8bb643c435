//! `fencelock top`: the locks of a store on a terminal, as they change.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::StoreArguments;
use super::watch::classes::Classes;
use super::watch::look::{self, Looked, Seen, Watch};
use crate::arguments;
use crate::output::{Failure, Outcome, code, harmless};
use crate::show::{print, print_table};

/// Over how long rates are counted.
const RATED: Duration = Duration::from_secs(10);

const HEADS: [&str; 6] = ["NAME", "WAITING", "HELD FOR", "HELD AS", "HOLDER", "PURPOSE"];

/// Show the locks of the store as they change, those that most wait for first.
///
/// The store is looked at once per --every. Keys: q, Esc or Ctrl-C end it; the arrows and Page Up, Page Down, Home move the list.
/// Without a terminal, give --once.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store(), conflicts_with = "store")]
    url: Option<String>,
    /// Only names that start with this.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = arguments::prefix())]
    prefix: String,
    /// How long to rest between two looks at the store.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = arguments::duration())]
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
        let (chosen, client) = store.or_named(self.url.as_ref()).connect_to_watch(&[]).await?;
        let (sender, seen) = watch::channel(Seen::nothing(&chosen, &client));
        let classes = Classes::new(&[]);
        let looks =
            tokio::spawn(Watch::new(client.clone(), chosen, self.prefix.clone(), classes, self.every).run(sender));
        let ended = if self.once { once(seen).await } else { on_a_terminal(seen).await };
        looks.abort();
        super::farewell(&client, ended.is_err()).await;
        ended.map(|()| 0)
    }
}

/// Prints what the first look finds.
async fn once(mut seen: watch::Receiver<Seen>) -> Outcome<()> {
    let seen = seen.wait_for(|seen| seen.at.is_some()).await.map(|seen| seen.clone());
    let seen = seen.map_err(|_| Failure::new(code::SOFTWARE, "nobody looks at the store any more"))?;
    if let Some(error) = &seen.error {
        return Err(Failure::new(code::UNAVAILABLE, error.to_string()));
    }
    print_table(&HEADS, sorted(&seen).into_iter().map(|lock| cells(lock, &seen).to_vec()))?;
    print(&format!("{}\n", summary(&seen, None)))?;
    Ok(())
}

/// Shows each look until somebody has seen enough.
async fn on_a_terminal(mut seen: watch::Receiver<Seen>) -> Outcome<()> {
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
                Err(_) => break Err(Failure::new(code::SOFTWARE, "nobody looks at the store any more")),
            },
            key = keys.recv() => match key {
                Some(Event::Key(key)) if ends(key) => break Ok(()),
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => view.moved(key.code, now.locks.len()),
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

/// What is typed. The thread that reads it stays until the process ends.
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

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// Those that most wait for first, else by name.
fn sorted(seen: &Seen) -> Vec<&Looked> {
    let mut locks: Vec<_> = seen.locks.iter().collect();
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.row.waiting));
    locks
}

/// A row of the list; nothing in it is obeyed by a terminal.
fn cells(lock: &Looked, seen: &Seen) -> [String; HEADS.len()] {
    let look::Row { name, held_as, holders, holder, waiting, purpose, error, .. } = &lock.row;
    let others = if *holders > 1 { format!(" and {} more", holders - 1) } else { String::new() };
    let holder = holder.as_ref().map_or_else(|| "-".to_owned(), |holder| format!("{holder}{others}"));
    let now = seen.at.unwrap_or(SystemTime::UNIX_EPOCH);
    let age = lock.oldest_hold.and_then(|since| now.duration_since(since).ok());
    let age = age.map_or_else(|| "-".to_owned(), |age| span(age.as_secs()));
    let why = error.clone().or_else(|| purpose.clone()).unwrap_or_default();
    [name.clone(), waiting.to_string(), age, held_as.clone(), holder, why].map(|cell| harmless(&cell, false))
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
fn summary(seen: &Seen, rate: Option<f64>) -> String {
    let (holders, waiting) = seen.contenders();
    let rate = rate.map_or_else(String::new, |rate| format!(", {rate:.1} grants/s"));
    let more = if seen.left_out > 0 { format!(", {} more are not looked at", seen.left_out) } else { String::new() };
    format!("{} locks, {holders} holders, {waiting} waiting{rate}{more}", seen.locks.len())
}

/// What is shown of what was seen.
#[derive(Default)]
struct View {
    /// How many rows are above the screen.
    skipped: usize,
    /// How many fit on it.
    rows: usize,
    /// How many grants had been seen, and when.
    granted: VecDeque<(Instant, u64)>,
}

impl View {
    fn count(&mut self, seen: &Seen) {
        let now = Instant::now();
        self.granted.push_back((now, seen.grants.granted()));
        while self.granted.front().is_some_and(|(then, _)| now.duration_since(*then) > RATED) {
            self.granted.pop_front();
        }
    }

    fn rate(&self) -> Option<f64> {
        let ((first, before), (last, after)) = (self.granted.front()?, self.granted.back()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "nobody counts so many grants in ten seconds")]
        (seconds > 0.5).then(|| (after - before) as f64 / seconds)
    }

    fn moved(&mut self, key: KeyCode, locks: usize) {
        let last = locks.saturating_sub(self.rows);
        self.skipped = match key {
            KeyCode::Down => self.skipped + 1,
            KeyCode::Up => self.skipped.saturating_sub(1),
            KeyCode::PageDown => self.skipped + self.rows,
            KeyCode::PageUp => self.skipped.saturating_sub(self.rows),
            KeyCode::Home => 0,
            _ => self.skipped,
        }
        .min(last);
    }

    fn draw(&mut self, frame: &mut Frame<'_>, seen: &Seen) {
        let [head, sums, list] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        let time = |time: SystemTime| humantime::format_rfc3339_seconds(time).to_string();
        let state = match (&seen.error, seen.since, seen.at) {
            (_, _, None) => "not looked at yet".to_owned(),
            (Some(error), Some(since), _) => format!("cannot be read since {}: {error}", time(since)),
            (..) => format!("answers in {} ms", seen.took.as_millis()),
        };
        let line = harmless(&format!("{}: {state}", seen.store), false);
        let style = if seen.error.is_some() { Style::new().reversed() } else { Style::new().bold() };
        frame.render_widget(Line::styled(line, style), head);
        frame.render_widget(Line::raw(summary(seen, self.rate())), sums);
        self.rows = usize::from(list.height.saturating_sub(1));
        self.skipped = self.skipped.min(seen.locks.len().saturating_sub(self.rows));
        // What does not fit is left out from the right.
        let columns = match list.width {
            0..40 => 2,
            40..70 => 4,
            _ => HEADS.len(),
        };
        let widths = [
            Constraint::Min(8),
            Constraint::Length(7),
            Constraint::Length(8),
            Constraint::Length(12),
            Constraint::Max(32),
            Constraint::Max(32),
        ];
        let locks = sorted(seen).into_iter().skip(self.skipped).take(self.rows);
        let rows = locks.map(|lock| Row::new(cells(lock, seen).into_iter().take(columns)));
        let table = Table::new(rows, widths.into_iter().take(columns));
        frame.render_widget(table.header(Row::new(HEADS.into_iter().take(columns)).bold()), list);
    }
}
