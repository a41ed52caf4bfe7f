//! Routes of arrays.

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, Changed, Envelope, VolumeArray};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(show_arrays))
        .routes(routes!(change_arrays))
        .routes(routes!(fail_members))
        .routes(routes!(replace_members))
        .routes(routes!(rebuild_array))
}

/// Show the arrays of a volume or pool, those of its snapshot stores included.
#[utoipa::path(get, path = "/v1/arrays/{volume}", tag = "arrays",
    params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<Vec<VolumeArray>>)))]
async fn show_arrays(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
) -> Reply<Vec<VolumeArray>> {
    Ok(Data(control.call(async move |control| control.show_arrays(&volume).await).await?))
}

/// Change what the arrays of a volume or pool declare.
#[utoipa::path(post, path = "/v1/arrays/{volume}/change", tag = "arrays", request_body = ArrayChange,
    params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<Changed<Vec<VolumeArray>>>)))]
async fn change_arrays(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<ArrayChange>,
) -> Reply<Changed<Vec<VolumeArray>>> {
    Ok(Data(control.call(async move |control| control.change_arrays(&volume, request).await).await?))
}

/// Take the members on a disk out of use.
#[utoipa::path(post, path = "/v1/arrays/{volume}/fail", tag = "arrays", request_body = ArrayFail,
    params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<Changed<Vec<VolumeArray>>>)))]
async fn fail_members(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<ArrayFail>,
) -> Reply<Changed<Vec<VolumeArray>>> {
    Ok(Data(control.call(async move |control| control.fail_members(&volume, request).await).await?))
}

/// Put the members that lie on a disk on others, which are rebuilt while the volume serves.
#[utoipa::path(post, path = "/v1/arrays/{volume}/replace", tag = "arrays", request_body = ArrayReplace,
    params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<Changed<Vec<VolumeArray>>>)))]
async fn replace_members(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<ArrayReplace>,
) -> Reply<Changed<Vec<VolumeArray>>> {
    Ok(Data(control.call(async move |control| control.replace_members(&volume, request).await).await?))
}

/// Fill a member anew, or accept that regions are lost which nobody can know without a member that is missing.
#[utoipa::path(post, path = "/v1/arrays/{volume}/rebuild", tag = "arrays", request_body = ArrayRebuild,
    params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<Changed<Vec<VolumeArray>>>)))]
async fn rebuild_array(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<ArrayRebuild>,
) -> Reply<Changed<Vec<VolumeArray>>> {
    Ok(Data(control.call(async move |control| control.rebuild_array(&volume, request).await).await?))
}
