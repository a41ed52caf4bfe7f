//! Routes of physical volumes.

use super::reply::{Body, Data, Reply};
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{
    Changed, Empty, Envelope, Job, PhysicalVolume, PhysicalVolumeChange, PhysicalVolumeCreate,
    PhysicalVolumeMove, PhysicalVolumeRemove, PhysicalVolumeReplace, PhysicalVolumeScan, VolumeArray,
};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_disks, create_disks))
        .routes(routes!(scan_disks))
        .routes(routes!(remove_disk))
        .routes(routes!(forget_disk))
        .routes(routes!(change_disk))
        .routes(routes!(replace_disk))
        .routes(routes!(move_disk))
}

/// List the disks that the daemon knows.
#[utoipa::path(get, path = "/v1/pvs", tag = "physical volumes",
    responses((status = 200, body = Envelope<Vec<PhysicalVolume>>)))]
async fn list_disks(State(control): State<ControlHandle>) -> Reply<Vec<PhysicalVolume>> {
    Ok(Data(control.call(async |control| Ok(control.list_disks())).await?))
}

/// Label disks.
#[utoipa::path(post, path = "/v1/pvs", tag = "physical volumes", request_body = PhysicalVolumeCreate,
    responses((status = 200, body = Envelope<Changed<Vec<PhysicalVolume>>>)))]
async fn create_disks(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeCreate>,
) -> Reply<Changed<Vec<PhysicalVolume>>> {
    Ok(Data(control.call(async move |control| control.create_disks(request).await).await?))
}

/// Take labelled disks into use.
#[utoipa::path(post, path = "/v1/pvs/scan", tag = "physical volumes", request_body = PhysicalVolumeScan,
    responses((status = 200, body = Envelope<Changed<Vec<PhysicalVolume>>>)))]
async fn scan_disks(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeScan>,
) -> Reply<Changed<Vec<PhysicalVolume>>> {
    Ok(Data(control.call(async move |control| control.scan_disks(request).await).await?))
}

/// Wipe the label of a disk that no group uses.
#[utoipa::path(post, path = "/v1/pvs/remove", tag = "physical volumes", request_body = PhysicalVolumeRemove,
    responses((status = 200, body = Envelope<Changed<Empty>>)))]
async fn remove_disk(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeRemove>,
) -> Reply<Changed<Empty>> {
    Ok(Data(control.call(async move |control| control.remove_disk(request).await).await?))
}

/// Release a disk that no group uses, and leave what is on it as it is.
#[utoipa::path(post, path = "/v1/pvs/forget", tag = "physical volumes", request_body = PhysicalVolumeRemove,
    responses((status = 200, body = Envelope<Changed<Empty>>)))]
async fn forget_disk(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeRemove>,
) -> Reply<Changed<Empty>> {
    Ok(Data(control.call(async move |control| control.forget_disk(request).await).await?))
}

/// Change what a disk is for.
#[utoipa::path(post, path = "/v1/pvs/change", tag = "physical volumes", request_body = PhysicalVolumeChange,
    responses((status = 200, body = Envelope<Changed<Vec<PhysicalVolume>>>)))]
async fn change_disk(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeChange>,
) -> Reply<Changed<Vec<PhysicalVolume>>> {
    Ok(Data(control.call(async move |control| control.change_disk(request).await).await?))
}

/// Put the members of arrays that lie on a disk on others, which are rebuilt while the volumes serve.
#[utoipa::path(post, path = "/v1/pvs/replace", tag = "physical volumes", request_body = PhysicalVolumeReplace,
    responses((status = 200, body = Envelope<Changed<Vec<VolumeArray>>>)))]
async fn replace_disk(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeReplace>,
) -> Reply<Changed<Vec<VolumeArray>>> {
    Ok(Data(control.call(async move |control| control.replace_disk(request).await).await?))
}

/// Move what lies on a disk to others; the answer is a job.
#[utoipa::path(post, path = "/v1/pvs/move", tag = "physical volumes", request_body = PhysicalVolumeMove,
    responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn move_disk(
    State(control): State<ControlHandle>,
    Body(request): Body<PhysicalVolumeMove>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.move_disk(request).await).await?))
}
