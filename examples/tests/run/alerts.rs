//! The alerts of `ops/`: Prometheus takes them, they fire on what they are for, and each reads what is counted and has its section.

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
    for arguments in [["check", "rules", "ops/alerts.yml"], ["test", "rules", "ops/alerts_test.yml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(root()).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}\n{}{}", said(&output.stdout), said(&output.stderr));
    }
}

#[test]
fn every_alert_reads_what_is_counted_and_has_its_section() {
    let (rules, counted) = (read("ops/alerts.yml"), read("crates/fencelock/src/metrics.rs"));
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
    assert_eq!(alerts.len(), 7);
}
