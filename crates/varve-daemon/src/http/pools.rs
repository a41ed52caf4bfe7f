//! Routes of thin pools.
#![allow(unused_qualifications, reason = "the path macro qualifies the types of query parameters")]

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{
    Activate, Changed, Convert, Deactivate, Empty, Envelope, Job, Pool, PoolChange, PoolCreate, Remove,
    Rename, Resize,
};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(show_pool, remove_pool))
        .routes(routes!(extend_pool))
        .routes(routes!(change_pool))
        .routes(routes!(rename_pool))
        .routes(routes!(activate_pool))
        .routes(routes!(deactivate_pool))
        .routes(routes!(check_pool))
        .routes(routes!(convert_pool))
}

/// Which pools are listed.
#[derive(Deserialize, IntoParams)]
struct InGroup {
    /// Only those of this group.
    group: Option<String>,
}

/// List thin pools.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", params(InGroup),
    responses((status = 200, body = Envelope<Vec<Pool>>)))]
async fn list_pools(State(control): State<ControlHandle>, Query(query): Query<InGroup>) -> Reply<Vec<Pool>> {
    Ok(Data(control.call(async move |control| control.list_pools(query.group.as_deref()).await).await?))
}

/// Make a thin pool.
#[utoipa::path(post, path = "/v1/pools", tag = "pools", request_body = PoolCreate,
    responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn create_pool(
    State(control): State<ControlHandle>,
    Body(request): Body<PoolCreate>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.create_pool(request).await).await?))
}

/// Show a pool and where it lies.
#[utoipa::path(get, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    responses((status = 200, body = Envelope<Pool>)))]
async fn show_pool(State(control): State<ControlHandle>, Path(pool): Path<String>) -> Reply<Pool> {
    Ok(Data(control.call(async move |control| control.show_pool(&pool).await).await?))
}

/// Remove a pool that holds no volume.
#[utoipa::path(delete, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Remove, responses((status = 200, body = Envelope<Changed<Empty>>)))]
async fn remove_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Remove>,
) -> Reply<Changed<Empty>> {
    Ok(Data(control.call(async move |control| control.remove_pool(&pool, request).await).await?))
}

/// Make a pool larger while it is in use.
#[utoipa::path(post, path = "/v1/pools/{pool}/extend", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Resize, responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn extend_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Resize>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.extend_pool(&pool, request).await).await?))
}

/// Change what a pool does when it fills.
#[utoipa::path(post, path = "/v1/pools/{pool}/change", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = PoolChange, responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn change_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<PoolChange>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.change_pool(&pool, request).await).await?))
}

/// Give a pool another name.
#[utoipa::path(post, path = "/v1/pools/{pool}/rename", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Rename, responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn rename_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Rename>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.rename_pool(&pool, request).await).await?))
}

/// Check the last commit of a pool while it serves; the answer is a job, which fails if anything is damaged.
#[utoipa::path(post, path = "/v1/pools/{pool}/check", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    responses((status = 200, body = Envelope<Job>)))]
async fn check_pool(State(control): State<ControlHandle>, Path(pool): Path<String>) -> Reply<Job> {
    Ok(Data(control.call(async move |control| control.check_pool(&pool).await).await?))
}

/// Convert a pool to another layout while it is in use; the answer is a job.
#[utoipa::path(post, path = "/v1/pools/{pool}/convert", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Convert, responses((status = 200, body = Envelope<Changed<Job>>)))]
async fn convert_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Convert>,
) -> Reply<Changed<Job>> {
    Ok(Data(control.call(async move |control| control.convert_pool(&pool, request).await).await?))
}

/// Take a pool and its volumes into use again.
#[utoipa::path(post, path = "/v1/pools/{pool}/activate", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Activate, responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn activate_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Activate>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.activate_pool(&pool, request).await).await?))
}

/// Take a pool and its volumes out of use until it is activated.
#[utoipa::path(post, path = "/v1/pools/{pool}/deactivate", tag = "pools", params(("pool" = String, Path, description = "VG/POOL, escaped as one segment")),
    request_body = Deactivate, responses((status = 200, body = Envelope<Changed<Pool>>)))]
async fn deactivate_pool(
    State(control): State<ControlHandle>,
    Path(pool): Path<String>,
    Body(request): Body<Deactivate>,
) -> Reply<Changed<Pool>> {
    Ok(Data(control.call(async move |control| control.deactivate_pool(&pool, request).await).await?))
}
