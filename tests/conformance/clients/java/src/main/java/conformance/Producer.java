package conformance;

import com.google.protobuf.ByteString;
import danube.Danube.HealthCheckRequest;
import danube.Danube.MsgID;
import danube.Danube.ProducerAccessMode;
import danube.Danube.ProducerRequest;
import danube.Danube.StreamMessage;
import danube.ProducerServiceGrpc;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/** Sends to one topic or, in turn, to its partitions. */
final class Producer {
    private final int retriesMax;
    private final List<TopicProducer> targets = new ArrayList<>();
    private final AtomicInteger next = new AtomicInteger();

    Producer(Client client, ProducerRequest wanted, int partitions, int retriesMax) {
        String topic = wanted.getTopicName();
        String name = wanted.getProducerName();
        this.retriesMax = Retry.limit(retriesMax);
        List<String> topics = new ArrayList<>(client.partitions(topic));
        if (topics.isEmpty()) {
            IntStream.range(0, partitions).forEach(n -> topics.add(topic + "-part-" + n));
        }
        if (topics.isEmpty()) {
            topics.add(topic);
        }
        for (int i = 0; i < topics.size(); i++) {
            String targetName = topics.size() == 1 ? name : name + "-" + i;
            TopicProducer target = new TopicProducer(client, wanted.toBuilder()
                    .setTopicName(topics.get(i))
                    .setProducerName(targetName)
                    .setProducerAccessMode(ProducerAccessMode.Shared)
                    .build());
            target.create();
            targets.add(target);
        }
    }

    void send(byte[] payload, Map<String, String> attributes) {
        TopicProducer target = targets.get(Math.floorMod(next.getAndIncrement(), targets.size()));
        int retries = 0;
        while (true) {
            try {
                target.send(payload, attributes);
                return;
            } catch (RuntimeException error) {
                if (Retry.recreates(error)) {
                    target.create();
                    retries = 0;
                } else if (!Retry.retryable(error)) {
                    throw error;
                } else if (++retries > retriesMax) {
                    target.create();
                    retries = 0;
                } else {
                    Retry.pause(retries);
                }
            }
        }
    }

    void close() {
        targets.forEach(target -> target.running.set(false));
    }

    private final class TopicProducer {
        private final Client client;
        private final ProducerRequest request;
        private final AtomicLong requestId = new AtomicLong();
        private final AtomicBoolean running = new AtomicBoolean(true);
        private final AtomicBoolean closed = new AtomicBoolean();
        private Client.Address at;
        private ProducerServiceGrpc.ProducerServiceBlockingStub stub;
        private long id;
        private Schemas.Stamp schema;

        TopicProducer(Client client, ProducerRequest request) {
            this.client = client;
            this.request = request;
            this.at = client.serviceAddress();
        }

        synchronized void create() {
            for (int retries = 0; ; retries++) {
                at = client.lookup(request.getTopicName(), at);
                if (retries > 0) {
                    Retry.pause(retries);
                }
                try {
                    tryCreate();
                    return;
                } catch (RuntimeException error) {
                    if (!Retry.retryable(error) || retries == retriesMax) {
                        throw error;
                    }
                }
            }
        }

        private void tryCreate() {
            stub = ProducerServiceGrpc.newBlockingStub(client.channel(at));
            id = stub.createProducer(request.toBuilder().setRequestId(requestId.incrementAndGet()).build())
                    .getProducerId();
            if (request.hasSchemaRef()) {
                schema = new Schemas(client).resolve(request.getSchemaRef());
            }
            closed.set(false);
            client.startPings(at, HealthCheckRequest.ClientType.Producer, id, closed, running::get);
        }

        void send(byte[] payload, Map<String, String> attributes) {
            if (closed.get() || id == 0) {
                create();
            }
            MsgID.Builder from = MsgID.newBuilder()
                    .setProducerId(id).setTopicName(request.getTopicName()).setBrokerAddr(at.brokerUrl());
            StreamMessage.Builder message = StreamMessage.newBuilder()
                    .setRequestId(requestId.incrementAndGet())
                    .setMsgId(from)
                    .setPayload(ByteString.copyFrom(payload))
                    .setPublishTime(System.currentTimeMillis())
                    .setProducerName(request.getProducerName())
                    .putAllAttributes(attributes);
            if (schema != null) {
                message.setSchemaId(schema.id()).setSchemaVersion(schema.version());
            }
            stub.sendMessage(message.build());
        }
    }
}
