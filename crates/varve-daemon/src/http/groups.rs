//! Routes of groups.

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{
    Activate, Backup, Changed, Deactivate, Empty, Envelope, Group, GroupChange, GroupCreate, GroupExtend,
    GroupReduce, GroupRestore, History, Remove, Rename, Restored,
};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new()
        .routes(routes!(list_groups, create_group))
        .routes(routes!(show_group, remove_group))
        .routes(routes!(extend_group))
        .routes(routes!(reduce_group))
        .routes(routes!(rename_group))
        .routes(routes!(activate_group))
        .routes(routes!(deactivate_group))
        .routes(routes!(change_group))
        .routes(routes!(backup_group))
        .routes(routes!(restore_group))
        .routes(routes!(group_history))
}

/// List groups.
#[utoipa::path(get, path = "/v1/groups", tag = "groups", responses((status = 200, body = Envelope<Vec<Group>>)))]
async fn list_groups(State(control): State<ControlHandle>) -> Reply<Vec<Group>> {
    Ok(Data(control.call(async |control| control.list_groups_with_health().await).await?))
}

/// Make a group of disks.
#[utoipa::path(post, path = "/v1/groups", tag = "groups", request_body = GroupCreate,
    responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn create_group(
    State(control): State<ControlHandle>,
    Body(request): Body<GroupCreate>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.create_group(request).await).await?))
}

/// Show a group and its disks.
#[utoipa::path(get, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    responses((status = 200, body = Envelope<Group>)))]
async fn show_group(State(control): State<ControlHandle>, Path(group): Path<String>) -> Reply<Group> {
    Ok(Data(control.call(async move |control| control.show_group(&group).await).await?))
}

/// Give up an empty group.
#[utoipa::path(delete, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = Remove, responses((status = 200, body = Envelope<Changed<Empty>>)))]
async fn remove_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<Remove>,
) -> Reply<Changed<Empty>> {
    Ok(Data(control.call(async move |control| control.remove_group(&group, request).await).await?))
}

/// Add disks to a group.
#[utoipa::path(post, path = "/v1/groups/{group}/extend", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = GroupExtend, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn extend_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<GroupExtend>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.extend_group(&group, request).await).await?))
}

/// Take an unused disk out of a group.
#[utoipa::path(post, path = "/v1/groups/{group}/reduce", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = GroupReduce, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn reduce_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<GroupReduce>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.reduce_group(&group, request).await).await?))
}

/// Give a group another name.
#[utoipa::path(post, path = "/v1/groups/{group}/rename", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = Rename, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn rename_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<Rename>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.rename_group(&group, request).await).await?))
}

/// Change how a group keeps the metadata of its snapshot stores and pools.
#[utoipa::path(post, path = "/v1/groups/{group}/change", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = GroupChange, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn change_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<GroupChange>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.change_group(&group, request).await).await?))
}

/// The group's description as text.
#[utoipa::path(get, path = "/v1/groups/{group}/backup", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    responses((status = 200, body = Envelope<Backup>)))]
async fn backup_group(State(control): State<ControlHandle>, Path(group): Path<String>) -> Reply<Backup> {
    Ok(Data(control.call(async move |control| control.backup_group(&group)).await?))
}

/// Write a description back to the group's disks.
#[utoipa::path(post, path = "/v1/groups/{group}/restore", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = GroupRestore, responses((status = 200, body = Envelope<Changed<Restored>>)))]
async fn restore_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<GroupRestore>,
) -> Reply<Changed<Restored>> {
    Ok(Data(control.call(async move |control| control.restore_group(&group, request).await).await?))
}

/// The changes that the group's disks remember.
#[utoipa::path(get, path = "/v1/groups/{group}/history", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    responses((status = 200, body = Envelope<History>)))]
async fn group_history(State(control): State<ControlHandle>, Path(group): Path<String>) -> Reply<History> {
    Ok(Data(control.call(async move |control| control.group_history(&group).await).await?))
}

/// Take everything in a group into use again.
#[utoipa::path(post, path = "/v1/groups/{group}/activate", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = Activate, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn activate_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<Activate>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.activate_whole_group(&group, request).await).await?))
}

/// Take everything in a group out of use until it is activated.
#[utoipa::path(post, path = "/v1/groups/{group}/deactivate", tag = "groups", params(("group" = String, Path, description = "Name or identity")),
    request_body = Deactivate, responses((status = 200, body = Envelope<Changed<Group>>)))]
async fn deactivate_group(
    State(control): State<ControlHandle>,
    Path(group): Path<String>,
    Body(request): Body<Deactivate>,
) -> Reply<Changed<Group>> {
    Ok(Data(control.call(async move |control| control.deactivate_whole_group(&group, request).await).await?))
}
