//! Routes of exports.

use super::reply::{Body, Data, Reply};
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use varve_api::{Changed, Envelope, Export, ExportCreate, ExportRemove};
use varve_control::ControlHandle;

pub(super) fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::new().routes(routes!(list_exports, create_export)).routes(routes!(remove_export))
}

/// List exports.
#[utoipa::path(get, path = "/v1/exports", tag = "exports", responses((status = 200, body = Envelope<Vec<Export>>)))]
async fn list_exports(State(control): State<ControlHandle>) -> Reply<Vec<Export>> {
    Ok(Data(control.call(async |control| control.list_exports().await).await?))
}

/// Open a door onto a volume or snapshot.
#[utoipa::path(post, path = "/v1/exports", tag = "exports", request_body = ExportCreate,
    responses((status = 200, body = Envelope<Changed<Export>>)))]
async fn create_export(
    State(control): State<ControlHandle>,
    Body(request): Body<ExportCreate>,
) -> Reply<Changed<Export>> {
    Ok(Data(control.call(async move |control| control.create_export(request).await).await?))
}

/// Close a door; what is in flight is finished first.
#[utoipa::path(delete, path = "/v1/exports/{export}", tag = "exports",
    params(("export" = String, Path, description = "ID, URI, address or volume, escaped as one segment")),
    request_body = ExportRemove, responses((status = 200, body = Envelope<Changed<Export>>)))]
async fn remove_export(
    State(control): State<ControlHandle>,
    Path(export): Path<String>,
    Body(request): Body<ExportRemove>,
) -> Reply<Changed<Export>> {
    Ok(Data(control.call(async move |control| control.remove_export(&export, request).await).await?))
}
