//! The HTTP interface: routes to the control, envelopes around its answers, the OpenAPI document.

mod arrays;
mod exports;
mod groups;
pub(crate) mod guard;
mod jobs;
pub(crate) mod listen;
mod physical;
mod pools;
mod program;
mod reply;
mod scrub;
mod snapshots;
mod volumes;

use axum::{Extension, Router};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use varve_control::ControlHandle;

#[derive(OpenApi)]
#[openapi(info(
    title = "Varve",
    description = "Block volumes, snapshots and exports. Every answer is an envelope: \
        `{\"schema\":\"varve.v1\",\"data\":…}` or `{\"schema\":\"varve.v1\",\"error\":{code, message, help}}`.",
    version = "1"
))]
struct Document;

fn routes() -> OpenApiRouter<ControlHandle> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(physical::routes())
        .merge(groups::routes())
        .merge(volumes::routes())
        .merge(pools::routes())
        .merge(arrays::routes())
        .merge(snapshots::routes())
        .merge(exports::routes())
        .merge(scrub::routes())
        .merge(jobs::routes())
        .merge(program::routes())
}

/// The service.
pub(crate) fn service(control: ControlHandle) -> Router {
    let (router, _) = routes().split_for_parts();
    let document = program::OpenApiText(openapi_json());
    router.fallback(program::unknown).layer(Extension(document)).with_state(control)
}

/// The OpenAPI document, as JSON.
pub fn openapi_json() -> String {
    let (_, document) = routes().split_for_parts();
    document.to_pretty_json().expect("the document is plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_that_is_checked_in_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("VARVE_UPDATE_DOCS").is_some() {
            std::fs::write(path, openapi_json()).expect("a writable tree");
        }
        let written = std::fs::read_to_string(path).expect("docs/openapi.json");
        assert!(
            written == openapi_json(),
            "docs/openapi.json is old: VARVE_UPDATE_DOCS=1 cargo test -p varve-daemon"
        );
    }
}
