//! Routes of the program itself: status, health, metrics, the meaning of error codes.

use super::reply::{Data, Refusal, Reply};
use crate::metrics;
use axum::extract::{Extension, Path, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{Code, DaemonStatus, Envelope, Explanation, Failure};
use varve_control::ControlHandle;

/// How long a shard may take to answer.
const HEALTH_MAX: Duration = Duration::from_secs(2);

/// The OpenAPI document, as JSON.
#[derive(Clone)]
pub(super) struct OpenApiText(pub(super) String);

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(daemon_status))
        .routes(routes!(explain_code))
        .routes(routes!(healthz))
        .routes(routes!(prometheus))
        .routes(routes!(openapi_document))
}

/// The daemon itself, and what happened last.
#[utoipa::path(get, path = "/v1/status", tag = "program", responses((status = 200, body = Envelope<DaemonStatus>)))]
async fn daemon_status(State(control): State<ControlHandle>) -> Reply<DaemonStatus> {
    Ok(Data(control.call(async |control| control.status_with_problems().await).await?))
}

/// What an error code means.
#[utoipa::path(get, path = "/v1/explain/{code}", tag = "program", params(("code" = String, Path, description = "V0123")),
    responses((status = 200, body = Envelope<Explanation>)))]
async fn explain_code(Path(code): Path<String>) -> Reply<Explanation> {
    let missing = || Refusal(Failure::new(Code::CodeNotFound, format!("there is no error code {code:?}")));
    Ok(Data(Code::parse(&code).ok_or_else(missing)?.explain()))
}

/// Whether the daemon serves: `ok`, once its control and every shard answer; else which shard does not.
#[utoipa::path(get, path = "/healthz", tag = "program", responses((status = 200, content_type = "text/plain", body = String)))]
async fn healthz(State(control): State<ControlHandle>) -> Result<&'static str, Refusal> {
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
async fn prometheus(State(control): State<ControlHandle>) -> Result<Response, Refusal> {
    let figures = control.call(async |control| control.figures().await).await?;
    let text = metrics::render(&figures);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// This interface as an OpenAPI document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "program", responses((status = 200, content_type = "application/json")))]
async fn openapi_document(Extension(document): Extension<OpenApiText>) -> Response {
    ([(CONTENT_TYPE, "application/json")], document.0).into_response()
}

/// Everything else.
pub(super) async fn unknown(uri: Uri) -> Response {
    let failure =
        Failure::new(Code::Usage, format!("there is nothing at {}", uri.path())).help("see /v1/openapi.json");
    Refusal(failure).into_response()
}
