//! Routes of snapshots.
#![allow(unused_qualifications, reason = "the path macro qualifies the types of query parameters")]

use super::reply::{Body, Data, Reply};
use axum::extract::{Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{
    Changed, Envelope, Job, Snapshot, SnapshotChange, SnapshotCreate, SnapshotDiff, SnapshotHold,
    SnapshotRemove, SnapshotRollback,
};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_snapshots, create_snapshots))
        .routes(routes!(diff_snapshots))
        .routes(routes!(remove_snapshots))
        .routes(routes!(rollback_snapshot))
        .routes(routes!(change_snapshots))
        .routes(routes!(hold_snapshots))
        .routes(routes!(release_snapshots))
}

/// Which snapshots are listed.
#[derive(Deserialize, IntoParams)]
struct OfVolume {
    /// Only those of this volume.
    volume: Option<String>,
}

/// List snapshots, the oldest first.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots", params(OfVolume),
    responses((status = 200, body = Envelope<Vec<Snapshot>>)))]
async fn list_snapshots(
    State(control): State<ControlHandle>,
    Query(query): Query<OfVolume>,
) -> Reply<Vec<Snapshot>> {
    Ok(Data(control.call(async move |control| control.list_snapshots(query.volume.as_deref()).await).await?))
}

/// Keep the present state of volumes, all of one instant.
#[utoipa::path(post, path = "/v1/snapshots", tag = "snapshots", request_body = SnapshotCreate,
    responses((status = 200, body = Envelope<Changed<Vec<Snapshot>>>)))]
async fn create_snapshots(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotCreate>,
) -> Reply<Changed<Vec<Snapshot>>> {
    Ok(Data(control.call(async move |control| control.create_snapshots(request).await).await?))
}

/// Which states are compared.
#[derive(Deserialize, IntoParams)]
struct Between {
    /// `VG/LV@SNAP` or `VG/LV`.
    from: String,
    /// Another state of the same volume, or any other of the same pool; the volume of the snapshot if not given.
    to: Option<String>,
}

/// List the extents that differ between two states of a volume, or any two volumes of a pool; no content is read.
#[utoipa::path(get, path = "/v1/snapshots/diff", tag = "snapshots", params(Between),
    responses((status = 200, body = Envelope<SnapshotDiff>)))]
async fn diff_snapshots(
    State(control): State<ControlHandle>,
    Query(query): Query<Between>,
) -> Reply<SnapshotDiff> {
    let diff = async move |control: std::rc::Rc<varve_control::Control>| {
        control.diff_snapshots(&query.from, query.to.as_deref()).await
    };
    Ok(Data(control.call(diff).await?))
}

/// Remove snapshots; the answer is a job.
#[utoipa::path(post, path = "/v1/snapshots/remove", tag = "snapshots", request_body = SnapshotRemove,
    responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn remove_snapshots(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotRemove>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.remove_snapshots(request).await).await?))
}

/// Make a volume's content that of a snapshot; the answer is a job.
#[utoipa::path(post, path = "/v1/snapshots/rollback", tag = "snapshots", request_body = SnapshotRollback,
    responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn rollback_snapshot(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotRollback>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.rollback_snapshot(request).await).await?))
}

/// Let snapshots be written, or no more.
#[utoipa::path(post, path = "/v1/snapshots/change", tag = "snapshots", request_body = SnapshotChange,
    responses((status = 200, body = Envelope<Changed<Vec<Snapshot>>>)))]
async fn change_snapshots(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotChange>,
) -> Reply<Changed<Vec<Snapshot>>> {
    Ok(Data(control.call(async move |control| control.change_snapshots(request).await).await?))
}

/// Protect snapshots against removal.
#[utoipa::path(post, path = "/v1/snapshots/hold", tag = "snapshots", request_body = SnapshotHold,
    responses((status = 200, body = Envelope<Changed<Vec<Snapshot>>>)))]
async fn hold_snapshots(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotHold>,
) -> Reply<Changed<Vec<Snapshot>>> {
    Ok(Data(control.call(async move |control| control.hold_snapshots(request, true).await).await?))
}

/// End the protection of snapshots.
#[utoipa::path(post, path = "/v1/snapshots/release", tag = "snapshots", request_body = SnapshotHold,
    responses((status = 200, body = Envelope<Changed<Vec<Snapshot>>>)))]
async fn release_snapshots(
    State(control): State<ControlHandle>,
    Body(request): Body<SnapshotHold>,
) -> Reply<Changed<Vec<Snapshot>>> {
    Ok(Data(control.call(async move |control| control.hold_snapshots(request, false).await).await?))
}
