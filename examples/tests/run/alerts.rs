//! The files in `ops/`. Prometheus accepts the alerts, each fires on its fault and has its section, and the board asks for metrics that
//! exist.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencelock_testbed::PROMETHEUS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_alerts_are_taken_by_prometheus_and_fire_on_what_they_are_for() {
    PROMETHEUS.require();
    let scraped = ["check", "config", "--syntax-only", "ops/prometheus.yml"];
    for arguments in [&["check", "rules", "ops/alerts.yml"][..], &["test", "rules", "ops/alerts_test.yml"], &scraped] {
        let output = Command::new("promtool").args(arguments).current_dir(root()).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}\n{}{}", said(&output.stdout), said(&output.stderr));
    }
}

#[test]
fn every_alert_reads_what_is_counted_and_has_its_section() {
    let of_jobs = read("crates/fencelock-cli/src/commands/serve/metrics.rs");
    let (rules, counted) = (read("ops/alerts.yml"), read("crates/fencelock/src/metrics.rs") + &of_jobs);
    let is_of_a_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    for start in rules.match_indices("fencelock_").map(|(start, _)| start) {
        let name = rules[start..].split(|letter| !is_of_a_name(letter)).next().unwrap();
        let name = name.trim_end_matches("_bucket");
        assert!(counted.contains(&format!("\"{name}\"")), "nothing counts {name}");
    }
    let runbook = read("docs/operating.md");
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        assert!(runbook.lines().any(|line| line == format!("## {alert}")), "{alert} has no section");
        assert!(rules.contains(&format!("operating.md#{}\n", alert.to_lowercase())), "{alert} names no section");
        assert!(read("ops/alerts_test.yml").contains(&format!("alertname: {alert}\n")), "{alert} has no test");
    }
    assert_eq!(alerts.len(), 15);
}

/// Every expression of the board.
fn expressions(board: &str) -> Vec<String> {
    let written = board.lines().filter_map(|line| line.trim().strip_prefix("\"expr\": \"")?.strip_suffix("\","));
    written.map(|expression| expression.replace("\\\"", "\"")).collect()
}

#[test]
fn every_panel_of_the_board_asks_prometheus_for_what_is_counted() {
    PROMETHEUS.require();
    let (board, counted) = (read("ops/grafana.json"), read("crates/fencelock/src/metrics.rs"));
    let expressions = expressions(&board);
    assert!(expressions.len() > 11, "{expressions:?}");
    // The values that Grafana puts in the place of its variables.
    let asked: Vec<_> = expressions
        .iter()
        .map(|expression| expression.replace("$__rate_interval", "5m").replace("$class", ".*"))
        .collect();
    let mut rules = "groups:\n  - name: board\n    rules:\n".to_owned();
    for (number, expression) in asked.iter().enumerate() {
        rules.push_str(&format!("      - record: panel:{number}\n        expr: '{expression}'\n"));
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("board-{}.yml", std::process::id()));
    std::fs::write(&file, &rules).unwrap();
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}\n{rules}", String::from_utf8_lossy(&output.stderr));
    // Each metric that is counted is on the board, and each on the board is counted.
    let counts = counted.split('"').filter(|text| text.starts_with("fencelock_"));
    for metric in counts.clone() {
        assert!(board.contains(metric), "{metric} is not on the board");
    }
    for name in
        asked.iter().flat_map(|asked| asked.split(|letter: char| !(letter.is_ascii_lowercase() || letter == '_')))
    {
        let name = name.trim_end_matches("_bucket");
        assert!(
            !name.starts_with("fencelock_") || counts.clone().any(|metric| metric == name),
            "nothing counts {name}"
        );
    }
}
