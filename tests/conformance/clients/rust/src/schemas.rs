//! The schema commands. What the client has no words for is called as Danube's own administration tool,
//! a Rust program too, calls it: through the generated stubs of danube-core.

use danube_client::errors::DanubeError;
use danube_client::{DanubeClient, SchemaInfo};
use danube_core::proto::danube_schema::schema_registry_client::SchemaRegistryClient;
use danube_core::proto::danube_schema::{
    ConfigureTopicSchemaRequest, DeleteSchemaVersionRequest, GetTopicSchemaConfigRequest,
    UpdateTopicValidationPolicyRequest,
};
use serde_json::{json, Value};

use crate::{describe, number, text, Outcome};

pub async fn perform(client: &DanubeClient, url: &str, verb: &str, command: &Value) -> Outcome {
    match verb {
        "register_schema" | "get_schema" | "schema_versions" | "check_schema" | "set_schema_mode" => {
            with_client(client, verb, command).await
        }
        _ => as_administrator(url, verb, command).await,
    }
}

async fn with_client(client: &DanubeClient, verb: &str, command: &Value) -> Outcome {
    let schemas = client.schema();
    let subject = text(command, "subject");
    match verb {
        "register_schema" => {
            let registration = schemas
                .register_schema(subject)
                .with_type(parsed(command, "type")?)
                .with_schema_data(text(command, "definition"));
            Ok(json!({"schema_id": registration.execute().await.map_err(describe)?}))
        }
        "get_schema" => {
            let found = match (command["schema_id"].as_u64(), number(command, "version")) {
                (None, _) => schemas.get_latest_schema(subject).await,
                (Some(id), None) => schemas.get_schema_by_id(id).await,
                (Some(id), version) => schemas.get_schema_version(id, version).await,
            };
            found.map(schema_info).map_err(describe)
        }
        "schema_versions" => {
            Ok(json!({"versions": schemas.list_versions(subject).await.map_err(describe)?}))
        }
        "check_schema" => {
            let mode = match command["mode"].as_str() {
                Some(_) => Some(parsed(command, "mode")?),
                None => None,
            };
            let definition = text(command, "definition").into_bytes();
            let kind = parsed(command, "type")?;
            let verdict = schemas.check_compatibility(subject, definition, kind, mode).await.map_err(describe)?;
            Ok(json!({"is_compatible": verdict.is_compatible, "errors": verdict.errors}))
        }
        _ => {
            let mode = parsed(command, "mode")?;
            let done = schemas.set_compatibility_mode(subject, mode).await.map_err(describe)?;
            Ok(json!({"success": done.success, "message": done.message}))
        }
    }
}

async fn as_administrator(url: &str, verb: &str, command: &Value) -> Outcome {
    let connected = SchemaRegistryClient::connect(url.to_string()).await;
    let mut registry = connected.map_err(|error| describe(error.into()))?;
    let topic_name = text(command, "topic");
    let validation_policy = text(command, "policy");
    let enable_payload_validation = command["payloads"].as_bool().unwrap_or(false);
    let answer = match verb {
        "delete_schema" => {
            let version = number(command, "version").expect("a version");
            let request = DeleteSchemaVersionRequest { subject: text(command, "subject"), version };
            let done = registry.delete_schema_version(request).await;
            done.map(|done| done.into_inner()).map(|done| (done.success, done.message))
        }
        "configure_topic" => {
            let request = ConfigureTopicSchemaRequest {
                topic_name,
                schema_subject: text(command, "subject"),
                validation_policy,
                enable_payload_validation,
            };
            let done = registry.configure_topic_schema(request).await;
            done.map(|done| done.into_inner()).map(|done| (done.success, done.message))
        }
        "set_topic_policy" => {
            let request =
                UpdateTopicValidationPolicyRequest { topic_name, validation_policy, enable_payload_validation };
            let done = registry.update_topic_validation_policy(request).await;
            done.map(|done| done.into_inner()).map(|done| (done.success, done.message))
        }
        "topic_schema" => {
            let found = registry.get_topic_schema_config(GetTopicSchemaConfigRequest { topic_name }).await;
            let found = found.map_err(|status| describe(DanubeError::FromStatus(status)))?.into_inner();
            return Ok(json!({
                "subject": found.schema_subject,
                "policy": found.validation_policy,
                "payloads": found.enable_payload_validation,
                "schema_id": found.schema_id,
            }));
        }
        other => return Err(json!({"code": "", "text": format!("no such verb: {other}")})),
    };
    let (success, message) = answer.map_err(|status| describe(DanubeError::FromStatus(status)))?;
    Ok(json!({"success": success, "message": message}))
}

fn schema_info(found: SchemaInfo) -> Value {
    json!({
        "schema_id": found.schema_id,
        "subject": found.subject,
        "version": found.version,
        "schema_type": found.schema_type,
        "schema_definition": found.schema_definition_as_string(),
        "fingerprint": found.fingerprint,
    })
}

/// One of the client's own names for schema types and compatibility modes.
fn parsed<T: std::str::FromStr<Err = String>>(command: &Value, field: &str) -> Result<T, Value> {
    text(command, field).parse().map_err(|error: String| json!({"code": "", "text": error}))
}
