package conformance;

import danube.Danube.HealthCheckRequest;
import danube.Danube.HealthCheckResponse;
import danube.Danube.TopicLookupRequest;
import danube.Danube.TopicLookupResponse;
import danube.DiscoveryGrpc;
import danube.HealthCheckGrpc;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;

/** What producers and consumers share: connections, lookup, health pings. */
final class Client {
    private static final long PING_INTERVAL_MS = 5_000;
    private static final Metadata.Key<String> BROKER_URL =
            Metadata.Key.of("x-danube-broker-url", Metadata.ASCII_STRING_MARSHALLER);

    /** Where a topic is served: who owns it, where to dial, and whether a proxy is between. */
    record Address(String brokerUrl, String connectUrl, boolean proxy) {}

    private final String serviceUrl;
    private final AtomicLong requestId = new AtomicLong();
    private final Map<Address, Channel> channels = new ConcurrentHashMap<>();

    Client(String serviceUrl) {
        this.serviceUrl = serviceUrl;
    }

    Address serviceAddress() {
        return new Address(serviceUrl, serviceUrl, false);
    }

    /** A channel to the address; behind a proxy every call carries the routing header. */
    Channel channel(Address address) {
        return channels.computeIfAbsent(address, at -> {
            URI uri = URI.create(at.connectUrl());
            Channel plain = ManagedChannelBuilder.forAddress(uri.getHost(), uri.getPort()).usePlaintext().build();
            if (!at.proxy()) {
                return plain;
            }
            Metadata headers = new Metadata();
            headers.put(BROKER_URL, at.brokerUrl());
            return ClientInterceptors.intercept(plain, MetadataUtils.newAttachHeadersInterceptor(headers));
        });
    }

    /** Ask the configured service URL for the owner; any failure leaves the address as it was. */
    Address lookup(String topic, Address known) {
        try {
            TopicLookupResponse answer = DiscoveryGrpc.newBlockingStub(channel(serviceAddress()))
                    .topicLookup(TopicLookupRequest.newBuilder().setRequestId(nextRequestId()).setTopic(topic).build());
            if (answer.getResponseType() == TopicLookupResponse.LookupType.Failed) {
                return known;
            }
            return new Address(answer.getBrokerUrl(), answer.getConnectUrl(), answer.getProxy());
        } catch (RuntimeException ignored) {
            return known;
        }
    }

    List<String> partitions(String topic) {
        return DiscoveryGrpc.newBlockingStub(channel(serviceAddress()))
                .topicPartitions(TopicLookupRequest.newBuilder().setRequestId(nextRequestId()).setTopic(topic).build())
                .getPartitionsList();
    }

    /** Ping from now on, first after one interval, until CLOSE is answered; failed calls are ignored. */
    void startPings(Address at, HealthCheckRequest.ClientType kind, long id, AtomicBoolean closed, BooleanSupplier running) {
        if (id <= 0) {
            return;
        }
        Thread thread = new Thread(() -> {
            while (running.getAsBoolean()) {
                Retry.sleep(PING_INTERVAL_MS);
                try {
                    HealthCheckRequest request = HealthCheckRequest.newBuilder()
                            .setRequestId(nextRequestId()).setClient(kind).setId(id).build();
                    HealthCheckResponse answer = HealthCheckGrpc.newBlockingStub(channel(at)).healthCheck(request);
                    if (answer.getStatus() == HealthCheckResponse.ClientStatus.CLOSE) {
                        closed.set(true);
                        return;
                    }
                } catch (RuntimeException ignored) {
                    // The next ping tells.
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private long nextRequestId() {
        return requestId.incrementAndGet();
    }
}
