//! The table of a run.

use std::time::Duration;

use anyhow::Result;

use crate::cells::{Cell, Scene, words_of};
use crate::play::Played;

/// The title of a cell.
pub(crate) fn title(cell: &Cell) -> String {
    format!("{} holds{}, {} tries", cell.holder.title, more(cell.scene), cell.contender.title)
}

/// A cell on one line, directly after its game.
pub(crate) fn line(cell: &Cell, outcome: &Result<Played>) -> String {
    match outcome {
        Ok(Played { refusal: Some(why), .. }) => format!("ok      {}: is refused: {why}", title(cell)),
        Ok(_) => format!("ok      {}: {}", title(cell), words_of(cell.expected)),
        Err(fault) => format!("FAILED  {}: {fault:#}", title(cell)),
    }
}

/// All cells.
pub(crate) fn table(cells: &[Cell], played: &[Result<Played>]) -> String {
    let mut table = format!(
        "{:<49}{:<49}{:<13}{:>8}{:>9}{:>11}  result\n",
        "holds", "tries", "it", "wake ms", "counted", "takeover s"
    );
    for (cell, outcome) in cells.iter().zip(played) {
        let verdict = words_of(cell.expected);
        let (figures, result) = match outcome {
            Ok(played) => (figures(played), "ok"),
            Err(_) => (figures(&Played::default()), "FAILED"),
        };
        table.push_str(&format!(
            "{:<49}{:<49}{verdict:<13}{figures}  {result}\n",
            format!("{}{}", cell.holder.title, more(cell.scene)),
            cell.contender.title
        ));
    }
    table
}

fn more(scene: Scene) -> &'static str {
    match scene {
        Scene::Hold => "",
        Scene::Downgrade => ", downgrading",
        Scene::Killed => ", one killed",
        Scene::Silent => ", one silent",
    }
}

fn figures(played: &Played) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
    format!(
        "{:>8}{:>9}{:>11}",
        or_dash(played.wake.map(millis)),
        or_dash(played.counted.map(|counted| counted.to_string())),
        or_dash(played.takeover.map(seconds))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;

    #[test]
    fn the_table_has_a_line_for_every_cell_and_says_what_failed() {
        let cells = cells::all(cells::Among::All);
        let mut played: Vec<Result<Played>> = cells.iter().map(|_| Ok(Played::default())).collect();
        played[1] = Err(anyhow::anyhow!("both hold"));
        let table = table(&cells, &played);
        assert_eq!(table.lines().count(), cells.len() + 1);
        assert_eq!(table.matches("FAILED").count(), 1);
        assert!(line(&cells[1], &played[1]).contains("both hold"));
    }
}
