//! A service that exports the metrics of its locks, in the format of Prometheus.
//!
//! ```console
//! cargo run -p fencelock-examples --bin metrics                         # locks in memory, any free port
//! cargo run -p fencelock-examples --bin metrics -- redis://127.0.0.1/0 127.0.0.1:9101
//! curl http://127.0.0.1:9101/orders/7 http://127.0.0.1:9101/metrics
//! ```

use std::error::Error;
use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use fencelock::Client;
use fencelock::observe::Metrics;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

/// Seconds: of a wait behind other contenders, of a section, and of a grant without waiters ahead.
const BUCKETS: [f64; 9] = [0.0001, 0.001, 0.01, 0.1, 1.0, 5.0, 10.0, 60.0, 600.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:0".to_owned());

    let prometheus = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let client = Client::builder().observer(Arc::new(Metrics::new().class("orders/*")?)).connect(&url).await?;
    let service = Router::new()
        .route("/metrics", get(move || ready(prometheus.render())))
        .route("/orders/{id}", get(move |Path(id)| order(client.clone(), id)));
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    Ok(axum::serve(listener, service).await?)
}

/// Changes an order; a second change must wait.
async fn order(client: Client, id: String) -> Result<String, (StatusCode, String)> {
    let lock = client.mutex(format!("orders/{id}")).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let done = lock.run(|guard| async move { format!("order {id}, token {:?}\n", guard.token()) }).await;
    done.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}
