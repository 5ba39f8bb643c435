//! How long looking takes.

use std::io::Write;
use std::time::{Duration, Instant};

use fencelock::Client;
use fencelock_testbed::redis::{Server, Settings};

use super::lab::{client, queued, server};

/// A session without renewals, and `names` places of it.
fn crashed(server: &Server, names: usize) {
    let mut wire = std::net::TcpStream::connect(server.address()).unwrap();
    let mut mass = Vec::new();
    for number in 0..names {
        let (key, field) = (format!("fencelock:2:{{{:03x}}}:bucket", number % 4096), format!("dead/{number:06}"));
        let record = "00000000000000aa-1 g 7 1700000000:0 1 1 0 00000000000000aa ";
        let words = ["HSET".to_owned(), key, field, record.to_owned()];
        write!(mass, "*{}\r\n", words.len()).unwrap();
        words.iter().for_each(|word| write!(mass, "${}\r\n{word}\r\n", word.len()).unwrap());
    }
    // A client that writes so much must hear the answers, too.
    let mut answers = wire.try_clone().unwrap();
    let heard = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    wire.write_all(&mass).unwrap();
    wire.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = heard.join();
}

#[tokio::test]
async fn names_are_listed_at_the_first_time_among_any_number_that_crashed_clients_left() {
    const DEAD: usize = 200_000;
    let server = server(Settings::default());
    crashed(&server, DEAD);
    let holder = client(&server.url(), 600_000).await;
    let _held = holder.mutex("job").unwrap().acquire().await.unwrap();
    assert_eq!(queued(&holder, "job").await, 1);
    let list = async |deadline: Duration| {
        let builder = Client::builder().session_when_needed(true).request_deadline(deadline);
        let looks = builder.connect(&format!("{}?ttl_ms=600000", server.url())).await.unwrap();
        let start = Instant::now();
        let names = looks.names("", None, usize::MAX).await?;
        assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["job"]);
        Ok::<_, fencelock::Error>(start.elapsed())
    };
    let mut failed = Vec::new();
    loop {
        let all = list(Duration::from_secs(60)).await.unwrap();
        // A request has less time than all of them take together on this machine, and far more than one portion takes. A machine that has
        // become slower meanwhile is measured anew: a client that read all of them in one request would never be answered in time.
        match list((all / 2).max(Duration::from_millis(1500))).await {
            Ok(_) => return,
            Err(error) => failed.push((all, error)),
        }
        assert!(failed.len() < 8, "{DEAD} dead names, and what came of half the time that they take: {failed:?}");
    }
}
