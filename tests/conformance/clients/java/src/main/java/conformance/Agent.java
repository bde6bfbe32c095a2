package conformance;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import danube.Danube.ConsumerRequest;
import danube.Danube.DispatchStrategy;
import danube.Danube.ProducerRequest;
import danube.Danube.StreamMessage;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Drives a client that behaves as the Java client does, by JSON lines; the protocol is in ../README.md. */
public final class Agent {
    /** A consumer with the messages it has handed out, by tag, so that a later ack can name one. */
    private record Receiver(Consumer consumer, List<StreamMessage> messages) {}

    private static final Gson JSON = new Gson().newBuilder().serializeNulls().create();

    private final Client client;
    private final SchemaCommands schemaCommands;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, Receiver> receivers = new ConcurrentHashMap<>();

    private Agent(Client client) {
        this.client = client;
        this.schemaCommands = new SchemaCommands(new Schemas(client));
    }

    public static void main(String[] arguments) throws IOException {
        Agent agent = new Agent(new Client(arguments[1]));
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> agent.answer(command));
        }
        System.exit(0);
    }

    private void answer(JsonObject command) {
        JsonObject reply = new JsonObject();
        reply.add("id", command.get("id"));
        try {
            reply.add("ok", perform(command));
        } catch (RuntimeException error) {
            reply.add("error", describe(error));
        }
        emit(reply);
    }

    private JsonObject perform(JsonObject command) {
        String label = text(command, "label");
        switch (text(command, "do")) {
            case "producer" -> producers.put(label, createProducer(command));
            case "send" -> {
                for (JsonElement message : command.getAsJsonArray("messages")) {
                    send(producers.get(label), message.getAsJsonObject());
                }
            }
            case "close_producer" -> producers.remove(label).close();
            case "consumer" -> receivers.put(label, new Receiver(subscribe(command), new CopyOnWriteArrayList<>()));
            case "receive" -> startForwarding(label, receivers.get(label), command.get("auto_ack").getAsBoolean());
            case "ack" -> {
                Receiver from = receivers.get(label);
                from.consumer().ack(from.messages().get(command.get("tag").getAsInt()));
            }
            case "close_consumer" -> receivers.remove(label).consumer().close();
            default -> {
                return schemaCommands.perform(command);
            }
        }
        return new JsonObject();
    }

    private Producer createProducer(JsonObject command) {
        boolean reliable = command.get("reliable").getAsBoolean();
        DispatchStrategy strategy = reliable ? DispatchStrategy.Reliable : DispatchStrategy.NonReliable;
        ProducerRequest.Builder request = ProducerRequest.newBuilder()
                .setTopicName(text(command, "topic"))
                .setProducerName(text(command, "name"))
                .setDispatchStrategy(strategy);
        if (command.has("schema")) {
            request.setSchemaRef(SchemaCommands.reference(command.getAsJsonObject("schema")));
        }
        int partitions = command.get("partitions").getAsInt();
        return new Producer(client, request.build(), partitions, command.get("retries").getAsInt());
    }

    private static void send(Producer producer, JsonObject message) {
        Map<String, String> attributes = new TreeMap<>();
        message.getAsJsonObject("attributes").entrySet()
                .forEach(pair -> attributes.put(pair.getKey(), pair.getValue().getAsString()));
        producer.send(Base64.getDecoder().decode(text(message, "payload")), attributes);
    }

    private Consumer subscribe(JsonObject command) {
        ConsumerRequest request = ConsumerRequest.newBuilder()
                .setTopicName(text(command, "topic"))
                .setConsumerName(text(command, "name"))
                .setSubscription(text(command, "subscription"))
                .setSubscriptionType(ConsumerRequest.SubscriptionType.valueOf(text(command, "type")))
                .build();
        return new Consumer(client, request, command.get("retries").getAsInt());
    }

    private void startForwarding(String label, Receiver from, boolean autoAck) {
        Thread thread = new Thread(() -> {
            try {
                forward(label, from, autoAck);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void forward(String label, Receiver from, boolean autoAck) throws InterruptedException {
        JsonObject about = new JsonObject();
        about.addProperty("consumer", label);
        while (true) {
            StreamMessage message = from.consumer().take();
            if (message == Consumer.ENDED) {
                emit(wrapped("ended", about));
                return;
            }
            from.messages().add(message);
            if (autoAck) {
                try {
                    from.consumer().ack(message);
                } catch (RuntimeException error) {
                    JsonObject failure = about.deepCopy();
                    failure.add("error", describe(error));
                    emit(wrapped("ack_failed", failure));
                }
            }
            emit(wrapped("message", event(label, from.messages().size() - 1, message)));
        }
    }

    private static JsonObject event(String label, int tag, StreamMessage message) {
        JsonObject event = new JsonObject();
        event.addProperty("consumer", label);
        event.addProperty("tag", tag);
        event.addProperty("topic", message.getMsgId().getTopicName());
        event.addProperty("offset", message.getMsgId().getTopicOffset());
        event.addProperty("producer_id", message.getMsgId().getProducerId());
        event.addProperty("producer_name", message.getProducerName());
        event.addProperty("publish_time", message.getPublishTime());
        event.addProperty("payload", Base64.getEncoder().encodeToString(message.getPayload().toByteArray()));
        event.add("attributes", JSON.toJsonTree(message.getAttributesMap()));
        event.add("key", JsonNull.INSTANCE);
        event.addProperty("schema_id", message.hasSchemaId() ? message.getSchemaId() : null);
        event.addProperty("schema_version", message.hasSchemaVersion() ? message.getSchemaVersion() : null);
        return event;
    }

    /** The gRPC status behind an error, also one the client has wrapped, and what all of them say. */
    private static JsonObject describe(RuntimeException error) {
        Status status = null;
        StringJoiner words = new StringJoiner(": ");
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            words.add(String.valueOf(cause.getMessage()));
            if (status == null && cause instanceof StatusRuntimeException failed) {
                status = failed.getStatus();
            }
        }
        JsonObject described = new JsonObject();
        described.addProperty("code", status == null ? "" : status.getCode().name());
        described.addProperty("text", words.toString());
        return described;
    }

    private static JsonObject wrapped(String name, JsonElement content) {
        JsonObject line = new JsonObject();
        line.add(name, content);
        return line;
    }

    static String text(JsonObject object, String field) {
        return object.get(field) == null ? "" : object.get(field).getAsString();
    }

    private static synchronized void emit(JsonObject line) {
        System.out.println(JSON.toJson(line));
    }
}
