import com.rabbitmq.stream.Address;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.Producer;
import com.rabbitmq.stream.StreamException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/** Drives RabbitMQ streams over the stream protocol, with confirms. */
public final class StreamDriver {
    private final Load load;
    private final Environment environment;

    private StreamDriver(Load load) {
        this.load = load;
        Address server = new Address("127.0.0.1", load.port());
        this.environment = Environment.builder()
                .host(server.host())
                .port(server.port())
                .addressResolver(address -> server)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        StreamDriver driver = new StreamDriver(new Load(arguments));
        driver.createStreams();
        switch (driver.load.work) {
            case "publish" -> Load.print(driver.load.number("count"), driver.publish());
            case "consume" -> driver.consume();
            case "fanout" -> driver.fanOut();
            case "latency" -> driver.latency();
            default -> throw new IllegalArgumentException("unknown work " + driver.load.work);
        }
        System.exit(0);
    }

    private void createStreams() {
        for (String name : load.topics()) {
            if (!environment.streamExists(name)) environment.streamCreator().stream(name).create();
        }
    }

    private Producer producer(String stream) {
        return environment
                .producerBuilder()
                .stream(stream)
                .maxUnconfirmedMessages(Math.max(1, load.number("in-flight") / load.number("topics")))
                .confirmTimeout(java.time.Duration.ofSeconds(Load.STALL_SECONDS_MAX))
                .enqueueTimeout(java.time.Duration.ofSeconds(Load.STALL_SECONDS_MAX))
                .build();
    }

    private double publish() throws Exception {
        String[] streams = load.topics();
        Load.Publisher[] publishers = new Load.Publisher[load.number("producers")];
        byte[] payload = new byte[load.number("size")];
        for (int i = 0; i < publishers.length; i++) {
            Producer[] producers = new Producer[streams.length];
            for (int s = 0; s < streams.length; s++) producers[s] = producer(streams[s]);
            publishers[i] = messages -> {
                CountDownLatch confirmed = new CountDownLatch(messages);
                AtomicInteger refused = new AtomicInteger();
                for (int sent = 0; sent < messages; sent++) {
                    Producer producer = producers[sent % producers.length];
                    producer.send(producer.messageBuilder().addData(payload).build(), status -> {
                        if (!status.isConfirmed()) refused.incrementAndGet();
                        confirmed.countDown();
                    });
                }
                Load.await(confirmed);
                if (refused.get() > 0) throw new StreamException(refused + " messages were refused");
            };
        }
        return load.secondsOf(publishers);
    }

    private CountDownLatch follow(OffsetSpecification from, Consumer<byte[]> seen) {
        CountDownLatch done = new CountDownLatch(load.number("count"));
        environment
                .consumerBuilder()
                .stream(load.topics()[0])
                .offset(from)
                .messageHandler((context, message) -> {
                    seen.accept(message.getBodyAsBinary());
                    done.countDown();
                })
                .build();
        return done;
    }

    private void consume() throws Exception {
        long start = System.nanoTime();
        Load.await(follow(OffsetSpecification.first(), payload -> {}));
        Load.print(load.number("count"), (System.nanoTime() - start) / 1e9);
    }

    private void fanOut() throws Exception {
        CountDownLatch[] ends = new CountDownLatch[load.number("consumers")];
        for (int i = 0; i < ends.length; i++) ends[i] = follow(OffsetSpecification.next(), payload -> {});
        long start = System.nanoTime();
        publish();
        for (CountDownLatch done : ends) Load.await(done);
        Load.print((long) load.number("count") * ends.length, (System.nanoTime() - start) / 1e9);
    }

    private void latency() throws Exception {
        Load.Stopwatch watch = new Load.Stopwatch(load.number("count"));
        CountDownLatch done = follow(OffsetSpecification.next(), watch::receive);
        Producer producer = producer(load.topics()[0]);
        long start = System.nanoTime();
        load.pace(payload -> producer.send(producer.messageBuilder().addData(payload).build(), status -> {}));
        Load.await(done);
        watch.print((System.nanoTime() - start) / 1e9);
    }
}
