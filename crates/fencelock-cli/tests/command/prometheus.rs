//! A real Prometheus that reads `fencelock serve` alone: the board of stores and the rules have data.

use std::fs;
use std::process::{Command, Stdio};

use fencelock_testbed::{PROMETHEUS, Port};

use crate::common::http::{Served, ask, token};
use crate::common::{Place, Running, output, until};

fn ops(file: &str) -> String {
    fs::read_to_string(format!("{}/../../ops/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A Prometheus with the example's configuration, which reads `served` with the token in `file`.
fn prometheus(place: &Place, served: &Served, file: &str) -> (Running, Port) {
    let example = ops("prometheus.yml");
    let (of, with) = ("locks.example:7433", "/etc/prometheus/fencelock-token");
    assert!(example.contains(of) && example.contains(with), "{example}");
    let config = example.replace(of, &served.address.to_string()).replace(with, file);
    fs::write(place.path("prometheus.yml"), format!("global: {{ scrape_interval: 1s }}\n{config}")).unwrap();
    fs::write(place.path("alerts.yml"), ops("alerts.yml")).unwrap();
    let port = Port::reserve().unwrap();
    let address = port.address();
    let mut command = Command::new("prometheus");
    command.current_dir(place.directory.path()).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(&mut command);
    until("Prometheus listens", || std::net::TcpStream::connect(address).ok());
    (running, port)
}

#[test]
fn every_panel_of_the_board_of_stores_and_every_rule_has_data_from_serve_alone() {
    PROMETHEUS.require();
    let place = Place::new();
    let _ = output(&mut place.run(&["--slot", "a", "nightly"], "true"));
    let _holder = place.holder("job/one");
    let (_, file) = token(&place);
    let served = Served::start(&place, &["--token-file", &file, "--class", "job/*"]);
    let (_prometheus, port) = prometheus(&place, &served, &file);
    let has_data = |expression: &str| {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = ask(port.address(), "GET", &format!("/api/v1/query?query={encoded}"), &[], "");
        answer.status == 200 && answer.json()["data"]["result"].as_array().is_some_and(|result| !result.is_empty())
    };
    let board: serde_json::Value = serde_json::from_str(&ops("grafana-stores.json")).unwrap();
    let panels = board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked: Vec<_> = panels.map(|target| target["expr"].as_str().unwrap()).collect();
    for expression in &asked {
        let grafana = [("$__rate_interval", "1m"), ("$store", ".*"), ("$class", ".*")];
        let expression =
            grafana.iter().fold((*expression).to_owned(), |asked, (name, value)| asked.replace(name, value));
        until(&expression, || has_data(&expression).then_some(()));
    }
    let rules = ops("alerts.yml");
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let of_serve: Vec<_> = expressions
        .filter(|expression| expression.contains("fencelock_store_") && !expression.contains("errors_total"))
        .collect();
    assert_eq!(of_serve.len(), 7, "{of_serve:?}");
    for expression in of_serve {
        // The left side of the comparison.
        let measured = expression.rsplit_once(" > ").or(expression.rsplit_once(" == ")).unwrap().0;
        until(measured, || has_data(measured).then_some(()));
    }
    // Each figure of serve is on the board.
    let with = [("Authorization", "Bearer 0123456789abcdef0123456789abcdef")];
    let text = ask(served.address, "GET", "/metrics", &with, "").body;
    let figures: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(figures.len() > 15, "{text}");
    for figure in figures {
        assert!(asked.iter().any(|expression| expression.contains(figure)), "{figure} is not on the board");
    }
}
