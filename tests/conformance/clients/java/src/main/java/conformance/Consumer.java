package conformance;

import danube.ConsumerServiceGrpc;
import danube.Danube.AckRequest;
import danube.Danube.ConsumerRequest;
import danube.Danube.HealthCheckRequest;
import danube.Danube.ReceiveRequest;
import danube.Danube.StreamMessage;
import io.grpc.Context;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Reads all partitions of a topic, one stream each, opened as soon as all are subscribed. */
final class Consumer {
    private static final int QUEUE_MESSAGES_MAX = 256;
    private static final long CLOSE_PAUSE_MS = 100;

    /** Put into the queue when a receive loop has given up: nothing more will come. */
    static final StreamMessage ENDED = StreamMessage.newBuilder().setSubscriptionName("ended").build();

    private final int retriesMax;
    private final Map<String, TopicConsumer> consumers = new LinkedHashMap<>();
    private final AtomicBoolean running = new AtomicBoolean(true);
    private final BlockingQueue<StreamMessage> queue = new LinkedBlockingQueue<>(QUEUE_MESSAGES_MAX);

    Consumer(Client client, ConsumerRequest wanted, int retriesMax) {
        this.retriesMax = Retry.limit(retriesMax);
        List<String> topics = client.partitions(wanted.getTopicName());
        if (topics.isEmpty()) {
            topics = List.of(wanted.getTopicName());
        }
        for (int i = 0; i < topics.size(); i++) {
            String name = topics.size() == 1 ? wanted.getConsumerName() : wanted.getConsumerName() + "-" + i;
            ConsumerRequest request =
                    wanted.toBuilder().setTopicName(topics.get(i)).setConsumerName(name).build();
            TopicConsumer consumer = new TopicConsumer(client, request);
            consumer.subscribe();
            consumers.put(topics.get(i), consumer);
        }
        for (TopicConsumer consumer : consumers.values()) {
            Thread thread = new Thread(consumer::receiveLoop);
            thread.setDaemon(true);
            thread.start();
        }
    }

    StreamMessage take() throws InterruptedException {
        return queue.take();
    }

    void ack(StreamMessage message) {
        TopicConsumer consumer = consumers.get(message.getMsgId().getTopicName());
        if (consumer == null) {
            throw new IllegalStateException("no consumer for topic " + message.getMsgId().getTopicName());
        }
        consumer.ack(message);
    }

    void close() {
        running.set(false);
        consumers.values().forEach(TopicConsumer::cancel);
        Retry.sleep(CLOSE_PAUSE_MS);
    }

    private final class TopicConsumer {
        private final Client client;
        private final ConsumerRequest request;
        private final AtomicLong requestId = new AtomicLong();
        private final AtomicBoolean closed = new AtomicBoolean();
        private volatile Client.Address at;
        private volatile ConsumerServiceGrpc.ConsumerServiceBlockingStub stub;
        private volatile Context.CancellableContext stream;
        private volatile long id;

        TopicConsumer(Client client, ConsumerRequest request) {
            this.client = client;
            this.request = request;
            this.at = client.serviceAddress();
        }

        synchronized void subscribe() {
            for (int retries = 0; ; retries++) {
                at = client.lookup(request.getTopicName(), at);
                if (retries > 0) {
                    Retry.pause(retries);
                }
                try {
                    trySubscribe();
                    return;
                } catch (RuntimeException error) {
                    if (!Retry.retryable(error) || retries == retriesMax) {
                        throw error;
                    }
                }
            }
        }

        private void trySubscribe() {
            stub = ConsumerServiceGrpc.newBlockingStub(client.channel(at));
            id = stub.subscribe(request.toBuilder().setRequestId(requestId.incrementAndGet()).build())
                    .getConsumerId();
            closed.set(false);
            client.startPings(at, HealthCheckRequest.ClientType.Consumer, id, closed, running::get);
        }

        void cancel() {
            Context.CancellableContext open = stream;
            if (open != null) {
                open.cancel(null);
            }
        }

        /** Keep one stream open: reopen after a clean end, look up and subscribe anew where that may help. */
        void receiveLoop() {
            int retries = 0;
            while (running.get()) {
                try {
                    if (forward()) {
                        retries = 0;
                    }
                    if (running.get() && closed.get()) {
                        subscribe();
                    }
                } catch (RuntimeException error) {
                    if (!running.get()) {
                        return;
                    }
                    try {
                        if (closed.get() || Retry.recreates(error)) {
                            subscribe();
                            retries = 0;
                        } else if (!Retry.retryable(error)) {
                            throw error;
                        } else if (++retries > retriesMax) {
                            subscribe();
                            retries = 0;
                        } else {
                            Retry.pause(retries);
                        }
                    } catch (RuntimeException fatal) {
                        System.err.println("receive loop of " + request.getTopicName() + " ended: " + fatal);
                        queue.offer(ENDED);
                        return;
                    }
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        }

        /** Pass on what one stream brings until it ends; true if it brought anything. */
        private boolean forward() throws InterruptedException {
            stream = Context.current().withCancellation();
            Context before = stream.attach();
            try {
                ReceiveRequest opening = ReceiveRequest.newBuilder()
                        .setRequestId(requestId.incrementAndGet()).setConsumerId(id).build();
                Iterator<StreamMessage> messages = stub.receiveMessages(opening);
                boolean any = false;
                while (running.get() && messages.hasNext()) {
                    queue.put(messages.next());
                    any = true;
                }
                return any;
            } finally {
                stream.detach(before);
                stream.cancel(null);
            }
        }

        void ack(StreamMessage message) {
            int retries = 0;
            while (true) {
                try {
                    stub.ack(AckRequest.newBuilder()
                            .setRequestId(requestId.incrementAndGet())
                            .setMsgId(message.getMsgId())
                            .setSubscriptionName(request.getSubscription())
                            .build());
                    return;
                } catch (RuntimeException error) {
                    if (Retry.recreates(error)) {
                        subscribe();
                        retries = 0;
                    } else if (!Retry.retryable(error)) {
                        throw error;
                    } else if (++retries > retriesMax) {
                        subscribe();
                        retries = 0;
                    } else {
                        Retry.pause(retries);
                    }
                }
            }
        }
    }
}
