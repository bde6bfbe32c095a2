//! Drives the published Rust client by JSON lines; the protocol is in ../README.md.

mod schemas;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use base64::prelude::{Engine, BASE64_STANDARD};
use danube_client::errors::DanubeError;
use danube_client::{Consumer, ConsumerOptions, DanubeClient, Producer, ProducerOptions, SubType};
use danube_core::message::StreamMessage;
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{mpsc, Mutex};

type Outcome = Result<Value, Value>;

/// A consumer with the messages it has handed out, by tag, so that a later ack can name one.
struct Receiver {
    consumer: Mutex<Consumer>,
    messages: Mutex<HashMap<u64, StreamMessage>>,
    next_tag: AtomicU64,
}

struct Agent {
    client: DanubeClient,
    url: String,
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    receivers: Mutex<HashMap<String, Arc<Receiver>>>,
    out: mpsc::UnboundedSender<Value>,
}

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let url = std::env::args().nth(2).expect("usage: --broker-url URL");
    let client = DanubeClient::builder().service_url(&url).build().await.expect("a client");
    let (out, mut lines) = mpsc::unbounded_channel::<Value>();
    std::thread::spawn(move || {
        while let Some(line) = lines.blocking_recv() {
            println!("{line}");
        }
    });
    let agent = Arc::new(Agent {
        client,
        url,
        producers: Mutex::default(),
        receivers: Mutex::default(),
        out,
    });
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = commands.next_line().await {
        let command: Value = serde_json::from_str(&line).expect("a JSON command");
        let agent = agent.clone();
        tokio::spawn(async move {
            let reply = match agent.perform(&command).await {
                Ok(value) => json!({"id": command["id"], "ok": value}),
                Err(error) => json!({"id": command["id"], "error": error}),
            };
            let _ = agent.out.send(reply);
        });
    }
}

impl Agent {
    async fn perform(self: &Arc<Self>, command: &Value) -> Outcome {
        match text(command, "do").as_str() {
            "producer" => self.create_producer(command).await,
            "send" => self.send(command).await,
            "close_producer" => {
                self.producers.lock().await.remove(&text(command, "label"));
                Ok(json!({}))
            }
            "consumer" => self.subscribe(command).await,
            "receive" => self.receive(command).await,
            "ack" | "nack" => self.settle(command).await,
            "close_consumer" => {
                let receiver = self.receivers.lock().await.remove(&text(command, "label"));
                if let Some(receiver) = receiver {
                    receiver.consumer.lock().await.close().await;
                }
                Ok(json!({}))
            }
            other => schemas::perform(&self.client, &self.url, other, command).await,
        }
    }

    async fn create_producer(&self, command: &Value) -> Outcome {
        let mut builder = self
            .client
            .new_producer()
            .with_topic(text(command, "topic"))
            .with_name(text(command, "name"))
            .with_options(ProducerOptions::new(retries(command), 0, 0));
        if command["reliable"].as_bool().unwrap_or(false) {
            builder = builder.with_reliable_dispatch();
        }
        match command["partitions"].as_u64().unwrap_or(0) {
            0 => {}
            partitions => builder = builder.with_partitions(partitions as usize),
        }
        let schema = &command["schema"];
        if let Some(subject) = schema["subject"].as_str() {
            builder = match (number(schema, "version"), number(schema, "min_version")) {
                (Some(version), _) => builder.with_schema_version(subject, version),
                (None, Some(version)) => builder.with_schema_min_version(subject, version),
                (None, None) => builder.with_schema_subject(subject),
            };
        }
        let mut producer = builder.build().map_err(describe)?;
        producer.create().await.map_err(describe)?;
        let mut producers = self.producers.lock().await;
        producers.insert(text(command, "label"), Arc::new(producer));
        Ok(json!({}))
    }

    async fn send(&self, command: &Value) -> Outcome {
        let producer = self.producers.lock().await[&text(command, "label")].clone();
        for message in command["messages"].as_array().into_iter().flatten() {
            let payload = BASE64_STANDARD.decode(text(message, "payload")).expect("base64");
            let attributes = message["attributes"].as_object().map(|pairs| {
                let value = |v: &Value| v.as_str().unwrap_or_default().to_string();
                pairs.iter().map(|(k, v)| (k.clone(), value(v))).collect()
            });
            match message["key"].as_str() {
                Some(key) => producer.send_with_key(payload, attributes, key).await,
                None => producer.send(payload, attributes).await,
            }
            .map_err(describe)?;
        }
        Ok(json!({}))
    }

    async fn subscribe(&self, command: &Value) -> Outcome {
        let kind = match text(command, "type").as_str() {
            "Exclusive" => SubType::Exclusive,
            "Shared" => SubType::Shared,
            "Failover" => SubType::FailOver,
            _ => SubType::KeyShared,
        };
        let filters = command["key_filters"].as_array().into_iter().flatten();
        let filters = filters.filter_map(|filter| filter.as_str().map(String::from)).collect();
        let mut consumer = self
            .client
            .new_consumer()
            .with_topic(text(command, "topic"))
            .with_consumer_name(text(command, "name"))
            .with_subscription(text(command, "subscription"))
            .with_subscription_type(kind)
            .with_key_filters(filters)
            .with_options(ConsumerOptions::new(retries(command), 0, 0))
            .build()
            .map_err(describe)?;
        consumer.subscribe().await.map_err(describe)?;
        let receiver = Receiver {
            consumer: Mutex::new(consumer),
            messages: Mutex::default(),
            next_tag: AtomicU64::new(0),
        };
        let mut receivers = self.receivers.lock().await;
        receivers.insert(text(command, "label"), Arc::new(receiver));
        Ok(json!({}))
    }

    async fn receive(self: &Arc<Self>, command: &Value) -> Outcome {
        let label = text(command, "label");
        let auto_ack = command["auto_ack"].as_bool().unwrap_or(false);
        let receiver = self.receivers.lock().await[&label].clone();
        let mut stream = receiver.consumer.lock().await.receive().await.map_err(describe)?;
        let agent = self.clone();
        tokio::spawn(async move {
            while let Some(message) = stream.recv().await {
                let tag = receiver.next_tag.fetch_add(1, Ordering::SeqCst);
                let event = event_of(&label, tag, &message);
                if auto_ack {
                    let acked = receiver.consumer.lock().await.ack(&message).await;
                    if let Err(error) = acked {
                        let event = json!({"consumer": label, "error": describe(error)});
                        let _ = agent.out.send(json!({"ack_failed": event}));
                    }
                } else {
                    receiver.messages.lock().await.insert(tag, message);
                }
                let _ = agent.out.send(json!({"message": event}));
            }
            let _ = agent.out.send(json!({"ended": {"consumer": label}}));
        });
        Ok(json!({}))
    }

    async fn settle(&self, command: &Value) -> Outcome {
        let receiver = self.receivers.lock().await[&text(command, "label")].clone();
        let tag = command["tag"].as_u64().expect("a tag");
        let message = receiver.messages.lock().await[&tag].clone();
        let mut consumer = receiver.consumer.lock().await;
        if command["do"] == "ack" {
            consumer.ack(&message).await.map_err(describe)?;
        } else {
            let reason = command["reason"].as_str().map(String::from);
            consumer.nack(&message, command["delay_ms"].as_u64(), reason).await.map_err(describe)?;
        }
        Ok(json!({}))
    }
}

fn event_of(label: &str, tag: u64, message: &StreamMessage) -> Value {
    json!({
        "consumer": label,
        "tag": tag,
        "topic": message.msg_id.topic_name,
        "offset": message.msg_id.topic_offset,
        "producer_id": message.msg_id.producer_id,
        "producer_name": message.producer_name,
        "publish_time": message.publish_time,
        "payload": BASE64_STANDARD.encode(&message.payload),
        "attributes": message.attributes,
        "key": message.routing_key,
        "schema_id": message.schema_id,
        "schema_version": message.schema_version,
    })
}

fn text(command: &Value, field: &str) -> String {
    command[field].as_str().unwrap_or_default().to_string()
}

fn number(command: &Value, field: &str) -> Option<u32> {
    command[field].as_u64().map(|number| number as u32)
}

fn retries(command: &Value) -> usize {
    command["retries"].as_u64().unwrap_or_default() as usize
}

fn describe(error: DanubeError) -> Value {
    let code = error.extract_status().map(|status| upper_snake(&format!("{:?}", status.code())));
    json!({"code": code.unwrap_or_default(), "text": error.to_string()})
}

/// Renders a status code's Rust name the way the gRPC specification writes it.
fn upper_snake(camel: &str) -> String {
    let mut name = String::new();
    for (index, letter) in camel.chars().enumerate() {
        if index > 0 && letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
