//! A call of the interface as a route and in the OpenAPI document, both from its declaration.

use super::reply::{Data, Refusal, Sent};
use axum::Router;
use axum::extract::State;
use axum::routing::{MethodFilter, on};
use std::rc::Rc;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::ArrayItems;
use utoipa::openapi::{
    Components, ContentBuilder, HttpMethod, Object, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema, ToSchema};
use varve_api::calls::{Call, Declaration, Method};
use varve_api::{Envelope, Failure};
use varve_control::{Control, ControlHandle};

/// A schema under its name.
type Named = (String, RefOr<Schema>);

/// Adds a call to a document.
type Describe = fn(&mut OpenApi);

/// Routes, and what describes them.
pub(super) struct Interface {
    pub(super) router: Router<ControlHandle>,
    /// Each call that is served, and what adds it to a document. It is made only when somebody asks: it takes longer than all
    /// else of a start.
    described: Vec<(&'static str, Describe)>,
}

impl Interface {
    /// An interface without calls.
    pub(super) fn new(router: Router<ControlHandle>) -> Self {
        Self { router, described: Vec::new() }
    }

    /// The names of the calls that are served.
    #[cfg(test)]
    pub(super) fn served(&self) -> Vec<&'static str> {
        self.described.iter().map(|(name, _)| *name).collect()
    }

    /// `document` with all calls.
    pub(super) fn describe(&self, mut document: OpenApi) -> OpenApi {
        for (_, describe) in &self.described {
            describe(&mut document);
        }
        document
    }

    /// Serves a call by work beside the control.
    pub(super) fn on<C, W>(self, work: W) -> Self
    where
        C: Call<Request: ToSchema>,
        Envelope<C::Answer>: ToSchema,
        W: AsyncFn(Rc<Control>, C) -> Result<C::Answer, Failure> + Clone + Send + Sync + 'static,
    {
        self.on_http(move |handle: ControlHandle, call: C| {
            let work = work.clone();
            async move { handle.call(async move |control| work(control, call).await).await }
        })
    }

    /// Serves a call by work on the thread of HTTP.
    pub(super) fn on_http<C, W, F>(mut self, work: W) -> Self
    where
        C: Call<Request: ToSchema>,
        Envelope<C::Answer>: ToSchema,
        W: Fn(ControlHandle, C) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<C::Answer, Failure>> + Send + 'static,
    {
        let Declaration { name, method, path, .. } = C::DECLARED;
        self.described.push((name, describe::<C>));
        let handler = move |State(control): State<ControlHandle>, Sent(call): Sent<C>| {
            let answer = work(control, call);
            async move { answer.await.map(Data).map_err(Refusal) }
        };
        let (filter, _) = method_of(method);
        self.router = self.router.route(path, on(filter, handler));
        self
    }
}

/// A method for a route and in a document.
fn method_of(method: Method) -> (MethodFilter, HttpMethod) {
    match method {
        Method::Get => (MethodFilter::GET, HttpMethod::Get),
        Method::Post => (MethodFilter::POST, HttpMethod::Post),
        Method::Delete => (MethodFilter::DELETE, HttpMethod::Delete),
    }
}

/// Adds a call to a document.
fn describe<C>(document: &mut OpenApi)
where
    C: Call<Request: ToSchema>,
    Envelope<C::Answer>: ToSchema,
{
    let Declaration { method, path, .. } = C::DECLARED;
    let (_, method) = method_of(method);
    let (operation, schemas) = described::<C>();
    let item = PathItem::new(method, operation);
    match document.paths.paths.get_mut(path) {
        Some(there) => there.merge_operations(item),
        None => drop(document.paths.paths.insert(path.to_owned(), item)),
    }
    document.components.get_or_insert_with(Components::new).schemas.extend(schemas);
}

/// A call in the document, and the schemas that it names.
fn described<C>() -> (OperationBuilder, Vec<Named>)
where
    C: Call<Request: ToSchema>,
    Envelope<C::Answer>: ToSchema,
{
    let Declaration { name, method, tag, summary, .. } = C::DECLARED;
    let mut schemas = Vec::new();
    let answer = ContentBuilder::new().schema(Some(named::<Envelope<C::Answer>>(&mut schemas))).build();
    let mut operation = OperationBuilder::new()
        .tag(tag)
        .summary(Some(summary))
        .operation_id(Some(snake_case(name)))
        .response("200", ResponseBuilder::new().content("application/json", answer));
    if let Some((parameter, description)) = C::DECLARED.parameter() {
        let parameter = ParameterBuilder::new().name(parameter).parameter_in(ParameterIn::Path);
        let parameter = parameter.required(Required::True).description(Some(description));
        operation = operation.parameter(parameter.schema(Some(String::schema())));
    }
    match C::Request::schema() {
        RefOr::T(Schema::Object(request)) if request.properties.is_empty() => {}
        RefOr::T(Schema::Object(request)) if method == Method::Get => {
            operation = operation.parameters(Some(query(request)));
        }
        _ => {
            let body = ContentBuilder::new().schema(Some(named::<C::Request>(&mut schemas))).build();
            let body =
                RequestBodyBuilder::new().content("application/json", body).required(Some(Required::True));
            operation = operation.request_body(Some(body.build()));
        }
    }
    (operation, schemas)
}

/// A type among the schemas, with the noun that it is of and all that it names; what leads to it.
fn named<T: ToSchema>(schemas: &mut Vec<Named>) -> Ref {
    let words = std::any::type_name::<T>().split(['<', '>']).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.map(|word| word.rsplit("::").next().unwrap_or(word)).collect();
    let (name, noun) = (words.join("_"), words.last().copied().unwrap_or_default());
    schemas.push((noun.to_owned(), noun_of(T::schema())));
    schemas.push((name.clone(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(name)
}

/// The noun in an envelope, beside a plan, in a list.
fn noun_of(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    let within = match &mut schema {
        RefOr::T(Schema::Object(object)) if object.properties.contains_key("data") => {
            object.properties.remove("data")
        }
        RefOr::T(Schema::OneOf(either)) => either.items.pop(),
        RefOr::T(Schema::Array(list)) => match &mut list.items {
            ArrayItems::RefOrSchema(item) => Some((**item).clone()),
            ArrayItems::False => None,
        },
        _ => None,
    };
    within.map_or(schema, noun_of)
}

/// The fields of a query.
fn query(request: Object) -> impl Iterator<Item = Parameter> {
    let required = request.required;
    request.properties.into_iter().map(move |(name, mut schema)| {
        let is_required = if required.contains(&name) { Required::True } else { Required::False };
        let description = match &mut schema {
            RefOr::T(Schema::Object(object)) => object.description.take(),
            _ => None,
        };
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query);
        parameter.required(is_required).description(description).schema(Some(schema)).build()
    })
}

/// `ListGroups` as `list_groups`.
fn snake_case(name: &str) -> String {
    let mut words = String::new();
    for char in name.chars() {
        if char.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(char.to_ascii_lowercase());
    }
    words
}
