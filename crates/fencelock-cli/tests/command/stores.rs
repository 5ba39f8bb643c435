//! `fencelock stores`: the promises of each store, from the capabilities in the code.

use crate::common::{binary, output, stdout};

#[test]
fn every_known_store_is_listed_with_its_promises() {
    let json = stdout(&output(binary().args(["stores", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&json).unwrap();
    let table = stdout(&output(binary().arg("stores")));
    let known = fencelock::capability::stores();
    assert_eq!(listed.as_array().unwrap().len(), known.len());
    for info in known {
        let store = listed.as_array().unwrap().iter().find(|store| store["scheme"] == info.scheme).unwrap();
        assert_eq!(store["compiled_in"], info.capability.is_some());
        assert!(table.contains(info.example), "{table}");
        if let Some(capability) = info.capability {
            assert_eq!(store["capability"]["layout"], capability().layout);
        }
        let layouts = store["layouts"].as_array().unwrap();
        assert_eq!(layouts.len(), info.layouts.len());
        for (listed, (asked_by, capability)) in layouts.iter().zip(info.layouts) {
            assert_eq!(listed["asked_by"], *asked_by);
            assert_eq!(listed["capability"]["layout"], capability().layout);
            assert!(table.contains(&format!("  with {asked_by}\n")), "{table}");
        }
    }
}

#[test]
fn the_list_fits_eighty_columns() {
    let listed = stdout(&output(binary().arg("stores")));
    for line in listed.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(listed.contains("  order     first come, first served\n"), "{listed}");
}

#[test]
fn the_choice_of_a_store_is_the_table_of_its_document_without_figures_of_a_busy_machine() {
    let shown = stdout(&output(binary().args(["stores", "--compare"])));
    let document = format!("{}/../../docs/stores.md", env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(document).unwrap();
    let mark = |which: &str| format!("<!-- made by `cargo xtask bench stores --write`: {which} -->");
    let (_, rest) = document.split_once(&mark("begin")).unwrap();
    let (made, _) = rest.split_once(&mark("end")).unwrap();
    let cells = made.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let cells: Vec<_> = cells.flat_map(|line| line.trim_matches('|').split('|')).map(str::trim).collect();
    assert!(cells.len() > 60 && !shown.contains('|') && !made.contains("worth little"), "{shown}");
    for word in cells.iter().flat_map(|cell| cell.split_whitespace()) {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(cells.iter().all(|cell| cell.split_whitespace().count() <= 12), "{cells:?}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert!(cells.contains(&"costs every lock, even with data on disk"), "a server that was started anew ends locks");
}
