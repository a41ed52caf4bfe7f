//! The HTTP interface: routes to the control, envelopes around its answers, the OpenAPI document.

mod calls;
pub(crate) mod guard;
mod interface;
pub(crate) mod listen;
mod program;
mod reply;

use crate::metrics::Scrapes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use interface::Interface;
use std::sync::{Arc, LazyLock};
use utoipa::OpenApi;
use varve_control::ControlHandle;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Varve",
        description = "Block volumes, snapshots and exports. Every answer is an envelope: \
            `{\"schema\":\"varve.v1\",\"data\":…}` or `{\"schema\":\"varve.v1\",\"error\":{code, message, help}}`.",
        version = "1"
    ),
    paths(program::healthz, program::prometheus, openapi_document)
)]
struct Document;

fn interface() -> Interface {
    calls::serve(Interface::new(program::routes()))
}

/// The service for metrics alone.
pub(crate) fn metrics_service(control: ControlHandle, scrapes: Arc<Scrapes>) -> Router {
    program::metrics_route().layer(Extension(scrapes)).with_state(control)
}

/// The service, without the control to which it leads.
pub(crate) fn routes() -> Router<ControlHandle> {
    interface().router.route("/v1/openapi.json", get(openapi_document)).fallback(program::unknown)
}

/// The same, complete.
pub(crate) fn service(
    routes: Router<ControlHandle>,
    control: ControlHandle,
    scrapes: Arc<Scrapes>,
) -> Router {
    routes.layer(Extension(scrapes)).with_state(control)
}

/// This interface as an OpenAPI document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "program", responses((status = 200, content_type = "application/json")))]
async fn openapi_document() -> Response {
    /// Made when somebody asks for it.
    static DOCUMENT: LazyLock<String> = LazyLock::new(openapi_json);
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// The OpenAPI document, as JSON.
pub fn openapi_json() -> String {
    let document = interface().describe(Document::openapi());
    document.to_pretty_json().expect("the document is plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::calls::CALLS;

    #[test]
    fn each_call_that_is_declared_is_served() {
        let mut declared: Vec<&str> = CALLS.iter().map(|call| call.name).collect();
        let mut served = interface().served();
        declared.sort_unstable();
        served.sort_unstable();
        assert_eq!(served, declared);
    }

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
