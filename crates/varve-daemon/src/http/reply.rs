//! Bodies in and out: JSON, always in an envelope, errors included.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use varve_api::{Code, Empty, Envelope, Exit, Failure};

/// How long a request's body may take; its size is bounded by axum's own limit of 2 MB.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// An answer.
pub(super) type Reply<T> = Result<Data<T>, Refusal>;

/// Data in its envelope.
pub(super) struct Data<T>(pub(super) T);

/// An error in its envelope.
pub(super) struct Refusal(pub(super) Failure);

/// A request's body. No body at all is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Data<T> {
    fn into_response(self) -> Response {
        Json(Envelope::data(self.0)).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (status(self.0.exit()), Json(Envelope::<Empty>::error(self.0))).into_response()
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let refuse =
            |error: String| Refusal(Failure::new(Code::Usage, format!("the request's body: {error}")));
        let received = tokio::time::timeout(BODY_LIMIT, Bytes::from_request(request, state)).await;
        let bytes = received
            .map_err(|_| refuse("it did not come in time".to_owned()))?
            .map_err(|error| refuse(error.to_string()))?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(bytes).map(Body).map_err(|error| refuse(error.to_string()))
    }
}

fn status(exit: Exit) -> StatusCode {
    match exit {
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::NotFound => StatusCode::NOT_FOUND,
        Exit::Exists | Exit::Busy => StatusCode::CONFLICT,
        Exit::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Exit::Declined => StatusCode::PRECONDITION_REQUIRED,
        Exit::Ok | Exit::Failed | Exit::NeedsRepair | Exit::Partial => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
