//! The route of scrubs.

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{ArrayScrub, Changed, Envelope, Job};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new().routes(routes!(scrub_array))
}

/// Compare all members of an array and make them equal; the answer is a job, which says what was found.
#[utoipa::path(post, path = "/v1/arrays/{array}/scrub", tag = "arrays", params(("array" = String, Path, description = "VG/LV or VG/POOL, escaped as one segment")),
    request_body = ArrayScrub, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn scrub_array(
    State(control): State<ControlHandle>,
    Path(array): Path<String>,
    Body(request): Body<ArrayScrub>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.scrub_array(&array, request).await).await?))
}
