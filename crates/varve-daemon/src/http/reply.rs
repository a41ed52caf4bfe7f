//! Bodies in and out: JSON, always in an envelope, errors included.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::time::Duration;
use varve_api::calls::{Call, Method};
use varve_api::{Code, Empty, Envelope, Exit, Failure};

/// How long a request's body may take; its size is bounded by axum's own limit of 2 MB.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// Data in its envelope.
pub(super) struct Data<T>(pub(super) T);

/// An error in its envelope.
pub(super) struct Refusal(pub(super) Failure);

/// A call as it was sent. No body at all is an empty object.
pub(super) struct Sent<C>(pub(super) C);

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

impl<S: Send + Sync, C: Call> FromRequest<S> for Sent<C> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let subject = Option::<Path<String>>::from_request_parts(&mut parts, state).await;
        let subject = subject.map_err(|error| unreadable("path", error))?.map(|Path(subject)| subject);
        let request = match C::DECLARED.method {
            Method::Get => {
                let query = Query::from_request_parts(&mut parts, state).await;
                query.map_err(|error| unreadable("query", error))?.0
            }
            Method::Post | Method::Delete => read(Request::from_parts(parts, body), state).await?,
        };
        Ok(Self(C::new(subject, request)))
    }
}

/// What the body of a request says.
async fn read<S: Send + Sync, T: DeserializeOwned>(request: Request, state: &S) -> Result<T, Refusal> {
    let received = tokio::time::timeout(BODY_LIMIT, Bytes::from_request(request, state)).await;
    let bytes = received
        .map_err(|_| unreadable("body", "it did not come in time"))?
        .map_err(|error| unreadable("body", error))?;
    let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(bytes).map_err(|error| unreadable("body", error))
}

fn unreadable(part: &str, error: impl Display) -> Refusal {
    Refusal(Failure::new(Code::Usage, format!("the request's {part}: {error}")))
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
