//! One administrative call by the published stubs: `conformance-admin URL COMMAND ARGUMENT...`.
//!
//! The answer is one line of JSON; a refusal is its status and text on stderr, and exit code 1.

use std::env;
use std::process::exit;

use danube_core::admin_proto as admin;
use danube_core::admin_proto::broker_admin_client::BrokerAdminClient;
use danube_core::admin_proto::cluster_admin_client::ClusterAdminClient;
use danube_core::admin_proto::namespace_admin_client::NamespaceAdminClient;
use danube_core::admin_proto::security_admin_client::SecurityAdminClient;
use danube_core::admin_proto::topic_admin_client::TopicAdminClient;
use danube_core::proto::danube_schema as schema;
use danube_core::proto::danube_schema::schema_registry_client::SchemaRegistryClient;
use serde_json::{json, Value};
use tonic::transport::{Channel, Endpoint};
use tonic::Status;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, command) = words.split_first().expect("conformance-admin URL COMMAND ARGUMENT...");
    let endpoint = Endpoint::from_shared(url.to_string()).expect("an address");
    let channel = endpoint.connect().await.expect("a broker");
    match call(channel, command).await {
        Ok(answer) => println!("{answer}"),
        Err(status) => {
            eprintln!("{:?}: {}", status.code(), status.message());
            exit(1);
        }
    }
}

async fn call(channel: Channel, command: &[&str]) -> Result<Value, Status> {
    match command {
        ["brokers", words @ ..] => brokers(channel, words).await,
        ["cluster", words @ ..] => cluster(channel, words).await,
        ["namespaces", words @ ..] => namespaces(channel, words).await,
        ["topics", words @ ..] => topics(channel, words).await,
        ["schemas", words @ ..] => schemas(channel, words).await,
        ["roles", words @ ..] => roles(channel, words).await,
        ["bindings", words @ ..] => bindings(channel, words).await,
        _ => panic!("unknown command {command:?}"),
    }
}

async fn brokers(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = BrokerAdminClient::new(channel);
    Ok(match words {
        ["list"] => {
            let found = client.list_brokers(admin::Empty {}).await?.into_inner().brokers;
            found
                .into_iter()
                .map(|each| {
                    json!({
                        "id": each.broker_id, "addr": each.broker_addr, "role": each.broker_role,
                        "admin": each.admin_addr, "metrics": each.metrics_addr, "status": each.broker_status,
                    })
                })
                .collect()
        }
        ["leader"] => json!(client.get_leader_broker(admin::Empty {}).await?.into_inner().leader),
        ["namespaces"] => json!(client.list_namespaces(admin::Empty {}).await?.into_inner().namespaces),
        ["activate", id] => {
            let request = admin::ActivateBrokerRequest { broker_id: id.to_string(), reason: "test".into() };
            json!(client.activate_broker(request).await?.into_inner().success)
        }
        ["unload", id] => {
            let request = admin::UnloadBrokerRequest {
                broker_id: id.to_string(),
                max_parallel: 1,
                timeout_seconds: 5,
                ..Default::default()
            };
            json!(client.unload_broker(request).await?.into_inner().started)
        }
        ["balance"] => {
            let request = admin::ClusterBalanceRequest {};
            json!(client.get_cluster_balance(request).await?.into_inner().broker_count)
        }
        ["rebalance"] => {
            let request = admin::RebalanceRequest { dry_run: true, ..Default::default() };
            json!(client.trigger_rebalance(request).await?.into_inner().success)
        }
        _ => panic!("unknown command brokers {words:?}"),
    })
}

async fn cluster(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    assert_eq!(words, ["status"]);
    let status = ClusterAdminClient::new(channel).cluster_status(admin::Empty {}).await?.into_inner();
    Ok(json!({
        "leader": status.leader_id, "self": status.self_node_id,
        "voters": status.voters, "learners": status.learners,
    }))
}

async fn namespaces(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = NamespaceAdminClient::new(channel);
    let [verb, name] = words else { panic!("namespaces VERB NAME, not {words:?}") };
    let request = admin::NamespaceRequest { name: name.to_string() };
    Ok(match *verb {
        "create" => json!(client.create_namespace(request).await?.into_inner().success),
        "delete" => json!(client.delete_namespace(request).await?.into_inner().success),
        "topics" => json!(client.get_namespace_topics(request).await?.into_inner().topics),
        "policies" => json!(client.get_namespace_policies(request).await?.into_inner().policies),
        _ => panic!("unknown command namespaces {words:?}"),
    })
}

async fn topics(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = TopicAdminClient::new(channel);
    Ok(match words {
        ["list", name] => {
            let request = admin::NamespaceRequest { name: name.to_string() };
            let found = client.list_namespace_topics(request).await?.into_inner().topics;
            found.into_iter().map(|each| json!({"name": each.name, "delivery": each.delivery})).collect()
        }
        ["create", name, strategy] => {
            let request = admin::NewTopicRequest {
                name: name.to_string(),
                schema_subject: None,
                dispatch_strategy: strategy.parse().expect("a number"),
            };
            json!(client.create_topic(request).await?.into_inner().success)
        }
        ["create-partitions", name, partitions] => {
            let request = admin::PartitionedTopicRequest {
                base_name: name.to_string(),
                partitions: partitions.parse().expect("a number"),
                schema_subject: None,
                dispatch_strategy: 1,
            };
            json!(client.create_partitioned_topic(request).await?.into_inner().success)
        }
        ["describe", name] => {
            let request = admin::DescribeTopicRequest { name: name.to_string() };
            let found = client.describe_topic(request).await?.into_inner();
            json!({"name": found.name, "delivery": found.delivery, "subscriptions": found.subscriptions})
        }
        ["subscriptions", name] => {
            let request = admin::TopicRequest { name: name.to_string() };
            json!(client.list_subscriptions(request).await?.into_inner().subscriptions)
        }
        ["delete", name] => {
            let request = admin::TopicRequest { name: name.to_string() };
            json!(client.delete_topic(request).await?.into_inner().success)
        }
        _ => panic!("unknown command topics {words:?}"),
    })
}

async fn schemas(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = SchemaRegistryClient::new(channel);
    Ok(match words {
        ["register", subject, kind, definition] => {
            let request = schema::RegisterSchemaRequest {
                subject: subject.to_string(),
                schema_type: kind.to_string(),
                schema_definition: definition.as_bytes().to_vec(),
                ..Default::default()
            };
            let made = client.register_schema(request).await?.into_inner();
            json!({"version": made.version, "new": made.is_new_version})
        }
        ["latest", subject] => {
            let request = schema::GetLatestSchemaRequest { subject: subject.to_string() };
            let found = client.get_latest_schema(request).await?.into_inner();
            json!({"subject": found.subject, "version": found.version, "type": found.schema_type})
        }
        ["versions", subject] => {
            let request = schema::ListVersionsRequest { subject: subject.to_string() };
            let found = client.list_versions(request).await?.into_inner().versions;
            found.into_iter().map(|each| json!(each.version)).collect()
        }
        _ => panic!("unknown command schemas {words:?}"),
    })
}

async fn roles(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = SecurityAdminClient::new(channel);
    Ok(match words {
        ["create", name, permissions @ ..] => {
            let role = admin::RoleDefinition {
                name: name.to_string(),
                permissions: permissions.iter().map(|each| each.to_string()).collect(),
                system: false,
            };
            let request = admin::CreateRoleRequest { role: Some(role) };
            json!(client.create_role(request).await?.into_inner().success)
        }
        ["get", name] => {
            let request = admin::GetRoleRequest { name: name.to_string() };
            let role = client.get_role(request).await?.into_inner().role.expect("a role");
            json!({"name": role.name, "permissions": role.permissions})
        }
        ["list"] => {
            let found = client.list_roles(admin::Empty {}).await?.into_inner().roles;
            found.into_iter().map(|each| json!(each.name)).collect()
        }
        ["delete", name] => {
            let request = admin::DeleteRoleRequest { name: name.to_string() };
            json!(client.delete_role(request).await?.into_inner().success)
        }
        _ => panic!("unknown command roles {words:?}"),
    })
}

async fn bindings(channel: Channel, words: &[&str]) -> Result<Value, Status> {
    let mut client = SecurityAdminClient::new(channel);
    Ok(match words {
        ["create", id, user, role, scope, resource] => {
            let binding = admin::BindingDefinition {
                id: id.to_string(),
                principal_type: "user".into(),
                principal_name: user.to_string(),
                role_names: vec![role.to_string()],
                scope: scope.to_string(),
                resource_name: resource.to_string(),
            };
            let request = admin::CreateBindingRequest { binding: Some(binding) };
            json!(client.create_binding(request).await?.into_inner().success)
        }
        ["list", scope, resource] => {
            let request =
                admin::ListBindingsRequest { scope: scope.to_string(), resource_name: resource.to_string() };
            let found = client.list_bindings(request).await?.into_inner().bindings;
            found
                .into_iter()
                .map(|each| json!({"id": each.id, "name": each.principal_name, "roles": each.role_names}))
                .collect()
        }
        ["delete", id, scope, resource] => {
            let request = admin::DeleteBindingRequest {
                scope: scope.to_string(),
                resource_name: resource.to_string(),
                binding_id: id.to_string(),
            };
            json!(client.delete_binding(request).await?.into_inner().success)
        }
        _ => panic!("unknown command bindings {words:?}"),
    })
}
