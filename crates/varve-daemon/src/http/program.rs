//! What is served without an envelope: health and metrics.

use super::reply::Refusal;
use crate::metrics::Scrapes;
use axum::Router;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use varve_api::{Code, Failure};
use varve_control::ControlHandle;

/// How long a shard may take to answer.
const HEALTH_MAX: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Router<ControlHandle> {
    Router::new().route("/healthz", get(healthz)).route("/metrics", get(prometheus))
}

/// What a listener for metrics alone serves.
pub(super) fn metrics_route() -> Router<ControlHandle> {
    Router::new().route("/metrics", get(prometheus)).fallback(only_metrics)
}

/// Everything else there.
async fn only_metrics(uri: Uri) -> Response {
    let message = format!("there is nothing at {}: this listener serves metrics alone", uri.path());
    Refusal(Failure::new(Code::Usage, message).help("ask for /metrics")).into_response()
}

/// Whether the daemon serves: `ok`, once its control and every shard answer; else which shard does not.
#[utoipa::path(get, path = "/healthz", tag = "program", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn healthz(State(control): State<ControlHandle>) -> Result<&'static str, Refusal> {
    let asked = control.ask_shards().map(async |(index, answer)| (index, timeout(HEALTH_MAX, answer).await));
    for (index, answer) in join_all(asked).await {
        let says = match answer {
            Ok(true) => continue,
            Ok(false) => "has ended",
            Err(_) => "does not answer",
        };
        return Err(Refusal(Failure::new(Code::Failed, format!("shard {index} {says}"))));
    }
    Ok("ok\n")
}

/// Counters in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", tag = "program", responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn prometheus(
    State(control): State<ControlHandle>,
    Extension(scrapes): Extension<Arc<Scrapes>>,
) -> Result<Response, Refusal> {
    let text = scrapes.scrape(&control).await?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Everything else.
pub(super) async fn unknown(uri: Uri) -> Response {
    let failure =
        Failure::new(Code::Usage, format!("there is nothing at {}", uri.path())).help("see /v1/openapi.json");
    Refusal(failure).into_response()
}
