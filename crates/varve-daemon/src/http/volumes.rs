//! Routes of volumes.
#![allow(unused_qualifications, reason = "the path macro qualifies the types of query parameters")]

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{
    Activate, Changed, Commit, Convert, Deactivate, Empty, Envelope, Flatten, Job, LogicalVolume, Remove,
    Rename, Resize, Split, VolumeChange, VolumeCreate, VolumeMap,
};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_volumes, create_volume))
        .routes(routes!(show_volume, remove_volume))
        .routes(routes!(map_volume))
        .routes(routes!(extend_volume))
        .routes(routes!(reduce_volume))
        .routes(routes!(rename_volume))
        .routes(routes!(activate_volume))
        .routes(routes!(deactivate_volume))
        .routes(routes!(change_volume))
        .routes(routes!(commit_volume))
        .routes(routes!(flatten_volume))
        .routes(routes!(convert_volume))
        .routes(routes!(split_volume))
}

/// Which volumes are listed.
#[derive(Deserialize, IntoParams)]
struct InGroup {
    /// Only those of this group.
    group: Option<String>,
}

/// List volumes.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", params(InGroup),
    responses((status = 200, body = Envelope<Vec<LogicalVolume>>)))]
async fn list_volumes(
    State(control): State<ControlHandle>,
    Query(query): Query<InGroup>,
) -> Reply<Vec<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.list_volumes(query.group.as_deref()).await).await?))
}

/// Make a volume.
#[utoipa::path(post, path = "/v1/volumes", tag = "volumes", request_body = VolumeCreate,
    responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn create_volume(
    State(control): State<ControlHandle>,
    Body(request): Body<VolumeCreate>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.create_volume(request).await).await?))
}

/// Show a volume and where it lies.
#[utoipa::path(get, path = "/v1/volumes/{volume}", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    responses((status = 200, body = Envelope<LogicalVolume>)))]
async fn show_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
) -> Reply<LogicalVolume> {
    Ok(Data(control.call(async move |control| control.show_volume(&volume).await).await?))
}

/// Which bytes are asked for.
#[derive(Deserialize, IntoParams)]
struct Bytes {
    /// The first byte, as a size; the first of the volume if not given.
    offset: Option<String>,
    /// How many, as a size; all behind it if not given.
    length: Option<String>,
}

/// List where the bytes of a volume or snapshot lie. There may be more than one answer lists: ask again from its end on.
#[utoipa::path(get, path = "/v1/volumes/{volume}/map", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment"), Bytes),
    responses((status = 200, body = Envelope<VolumeMap>)))]
async fn map_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Query(query): Query<Bytes>,
) -> Reply<VolumeMap> {
    let map = async move |control: std::rc::Rc<varve_control::Control>| {
        control.map_volume(&volume, query.offset.as_deref(), query.length.as_deref()).await
    };
    Ok(Data(control.call(map).await?))
}

/// Remove a volume and its content.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Remove, responses((status = 200, body = Envelope<Changed<Empty>>)))]
async fn remove_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Remove>,
) -> Reply<Changed<Empty>> {
    Ok(Data(control.call(async move |control| control.remove_volume(&volume, request).await).await?))
}

/// Grow a volume while it is in use.
#[utoipa::path(post, path = "/v1/volumes/{volume}/extend", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Resize, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn extend_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Resize>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.extend_volume(&volume, request).await).await?))
}

/// Shrink a volume.
#[utoipa::path(post, path = "/v1/volumes/{volume}/reduce", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Resize, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn reduce_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Resize>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.reduce_volume(&volume, request).await).await?))
}

/// Give a volume another name in its group.
#[utoipa::path(post, path = "/v1/volumes/{volume}/rename", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Rename, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn rename_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Rename>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.rename_volume(&volume, request).await).await?))
}

/// Change what a volume declares for its snapshot stores.
#[utoipa::path(post, path = "/v1/volumes/{volume}/change", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = VolumeChange, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn change_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<VolumeChange>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.change_volume(&volume, request).await).await?))
}

/// Put what the image of a volume holds into the image below it, in which the volume lies then; the answer is a job.
#[utoipa::path(post, path = "/v1/volumes/{volume}/commit", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Commit, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn commit_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Commit>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.commit_volume(&volume, request).await).await?))
}

/// Copy what a thin volume or snapshot shows of its origin into its pool, so that it needs that no more; the answer is a job.
#[utoipa::path(post, path = "/v1/volumes/{volume}/flatten", tag = "volumes", params(("volume" = String, Path, description = "VG/LV or VG/LV@SNAP, escaped as one segment")),
    request_body = Flatten, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn flatten_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Flatten>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.flatten_volume(&volume, request).await).await?))
}

/// Convert a volume to another layout while it is in use; the answer is a job.
#[utoipa::path(post, path = "/v1/volumes/{volume}/convert", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Convert, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn convert_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Convert>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.convert_volume(&volume, request).await).await?))
}

/// Let a copy of a mirror go as a linear volume, with the content of one instant.
#[utoipa::path(post, path = "/v1/volumes/{volume}/split", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Split, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn split_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Split>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.split_volume(&volume, request).await).await?))
}

/// Take a volume into use again.
#[utoipa::path(post, path = "/v1/volumes/{volume}/activate", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Activate, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn activate_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Activate>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.activate_volume(&volume, request).await).await?))
}

/// Take a volume out of use until it is activated.
#[utoipa::path(post, path = "/v1/volumes/{volume}/deactivate", tag = "volumes", params(("volume" = String, Path, description = "VG/LV, escaped as one segment")),
    request_body = Deactivate, responses((status = 200, body = Envelope<Changed<LogicalVolume>>)))]
async fn deactivate_volume(
    State(control): State<ControlHandle>,
    Path(volume): Path<String>,
    Body(request): Body<Deactivate>,
) -> Reply<Changed<LogicalVolume>> {
    Ok(Data(control.call(async move |control| control.deactivate_volume(&volume, request).await).await?))
}
