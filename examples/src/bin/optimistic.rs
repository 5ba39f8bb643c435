//! Four editors add a line each, again and again, to one document in PostgreSQL, and no line is lost: without a lock. A `version` column
//! lets a save change nothing if another editor saved in between, and the first one reads again.
//!
//! The document objects by the count of its lines. `cargo run -p fencelock-examples --bin optimistic --
//! postgres://user:password@host/database` runs it. `docs/coming-from-a-lock-table.md` says when this serves and when a lock does.

use std::error::Error;

use tokio_postgres::NoTls;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const EDITORS: usize = 4;
const LINES: usize = 25;

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("name a database, as in postgres://user:password@host/database")?;
    let database = connect(&url).await?;
    database.batch_execute("CREATE TABLE document (id int PRIMARY KEY, body text, version int)").await?;
    database.batch_execute("INSERT INTO document VALUES (7, '', 0)").await?;
    let editors: Vec<_> = (0..EDITORS).map(|editor| tokio::spawn(edit(url.clone(), editor))).collect();
    let mut repeated = 0;
    for editor in editors {
        repeated += editor.await??;
    }
    let row = database.query_one("SELECT body, version FROM document WHERE id = 7", &[]).await?;
    let (body, version): (String, i32) = (row.get(0), row.get(1));
    assert_eq!(body.lines().count(), EDITORS * LINES, "a line is lost");
    assert_eq!(usize::try_from(version)?, EDITORS * LINES, "each save is counted");
    println!("{EDITORS} editors saved {LINES} lines each, and repeated {repeated} saves that came too late");
    Ok(())
}

/// Adds lines, and says how many saves were in vain.
async fn edit(url: String, editor: usize) -> Outcome<usize> {
    let database = connect(&url).await?;
    let mut repeated = 0;
    for line in 0..LINES {
        loop {
            let row = database.query_one("SELECT body, version FROM document WHERE id = 7", &[]).await?;
            let (body, version): (String, i32) = (row.get(0), row.get(1));
            let edited = format!("{body}editor {editor}, line {line}\n");
            let save = "UPDATE document SET body = $1, version = version + 1 WHERE id = 7 AND version = $2";
            match database.execute(save, &[&edited, &version]).await? {
                1 => break,
                _ => repeated += 1,
            }
        }
    }
    Ok(repeated)
}

async fn connect(url: &str) -> Outcome<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
