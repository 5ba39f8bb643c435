//! `cargo xtask examples [URL]`: every example is a program whose resource objects to two holders; each must end well.

use crate::shell::{self, Result, cargo};

pub(crate) fn run(args: &[String]) -> Result {
    let ([] | [_]) = args else { return Err(format!("takes one store URL at most, and was given {args:?}")) };
    let names = names()?;
    if names.is_empty() {
        return Err("there is no example".to_owned());
    }
    for name in names {
        shell::run(cargo(&["run", "--package", "fencelock-examples", "--bin", &name, "--"]).args(args))?;
    }
    Ok(())
}

fn names() -> Result<Vec<String>> {
    let folder = shell::root().join("examples/src/bin");
    let entries = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}
