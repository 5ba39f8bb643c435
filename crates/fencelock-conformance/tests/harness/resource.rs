//! The resource of the drills objects when it must.

use std::fs;

use fencelock_lab::Resource;
use fencelock_lab::history::{Laws, Write, check, read_directory};

#[test]
fn every_opening_of_the_resource_refuses_an_older_token_after_a_newer_one() {
    let directory = std::env::temp_dir().join(format!("fencelock-resource-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (one, two) = (Resource::open(&directory, "lock-0").unwrap(), Resource::open(&directory, "lock-0").unwrap());
    assert!(one.write(4096).unwrap() && two.write(4096).unwrap() && two.write(8192).unwrap());
    assert!(!one.write(4096).unwrap() && !one.write(-1).unwrap());
    assert!(!Resource::open(&directory, "lock-0").unwrap().write(8191).unwrap());
    assert!(Resource::open(&directory, "lock-1").unwrap().write(1).unwrap());

    let history = read_directory(&directory, 0).unwrap();
    assert_eq!(history.writes.len(), 7);
    assert_eq!(history.writes[6], Write { lock: 1, token: 1, accepted: true });
    assert_eq!(check(&history, Laws::ALL).writes, (7, 3));
    assert!(check(&history, Laws::ALL).is_clean());
    fs::remove_dir_all(&directory).unwrap();
}
