//! Routes of jobs.
#![allow(unused_qualifications, reason = "the path macro qualifies the types of query parameters")]

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{Changed, Envelope, Job, JobCancel};
use varve_control::ControlHandle;

/// The longest that one request waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_jobs))
        .routes(routes!(show_job))
        .routes(routes!(wait_job))
        .routes(routes!(cancel_job))
}

/// List jobs.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", responses((status = 200, body = Envelope<Vec<Job>>)))]
async fn list_jobs(State(control): State<ControlHandle>) -> Reply<Vec<Job>> {
    Ok(Data(control.call(async |control| Ok(control.jobs().all())).await?))
}

/// Show a job.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "The job")),
    responses((status = 200, body = Envelope<Job>)))]
async fn show_job(State(control): State<ControlHandle>, Path(id): Path<String>) -> Reply<Job> {
    Ok(Data(control.call(async move |control| control.jobs().show(&id)).await?))
}

/// How long a request waits.
#[derive(Deserialize, IntoParams)]
struct WaitQuery {
    /// Milliseconds; a minute if not given, and at most.
    timeout_ms: Option<u64>,
}

/// Wait until a job has ended, or for a while; the answer is how it stands then.
#[utoipa::path(get, path = "/v1/jobs/{id}/wait", tag = "jobs",
    params(("id" = String, Path, description = "The job"), WaitQuery), responses((status = 200, body = Envelope<Job>)))]
async fn wait_job(
    State(control): State<ControlHandle>,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Reply<Job> {
    let wait = query.timeout_ms.map_or(WAIT_MAX, Duration::from_millis).min(WAIT_MAX);
    let name = id.clone();
    let ended = control.call(async move |control| control.jobs().ended(&name)).await?;
    let _ = tokio::time::timeout(wait, ended).await;
    Ok(Data(control.call(async move |control| control.jobs().show(&id)).await?))
}

/// Ask a job to end.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path, description = "The job")),
    request_body = JobCancel, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn cancel_job(
    State(control): State<ControlHandle>,
    Path(id): Path<String>,
    Body(request): Body<JobCancel>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.jobs().cancel(&id, &request)).await?))
}
